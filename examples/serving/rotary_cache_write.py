"""Rotary positions for new queries and keys in bfloat16, and the write of keys and values into a
cache at given slots, in place, as a serving engine does before attention.
"""

import torch
import torch.nn as nn

INPLACE = True


def rotated(x, angles):
    first, second = x.float().chunk(2, dim=-1)
    cosine, sine = angles.cos()[:, None], angles.sin()[:, None]
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return torch.cat(turned, dim=-1).to(x.dtype)


class Model(nn.Module):
    def __init__(self, head_dim):
        super().__init__()
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim))

    def forward(self, q, k, v, positions, slots, key_cache, value_cache):
        angles = positions[:, None] * self.rates
        key_cache[slots] = rotated(k, angles)
        value_cache[slots] = v
        return rotated(q, angles)


n_tokens = 8192
slots_per_token = 2
n_kv_heads = 8
queries_per_kv = 4
head_dim = 128
n_positions = 4096


def get_inputs():
    q = torch.randn(n_tokens, n_kv_heads * queries_per_kv, head_dim, dtype=torch.bfloat16)
    k = torch.randn(n_tokens, n_kv_heads, head_dim, dtype=torch.bfloat16)
    v = torch.randn(n_tokens, n_kv_heads, head_dim, dtype=torch.bfloat16)
    positions = torch.randint(0, n_positions, (n_tokens,))
    slots = torch.randperm(n_tokens * slots_per_token)[:n_tokens].sort().values
    cache_shape = (n_tokens * slots_per_token, n_kv_heads, head_dim)
    key_cache = torch.randn(cache_shape, dtype=torch.bfloat16)
    value_cache = torch.randn(cache_shape, dtype=torch.bfloat16)
    return [q, k, v, positions, slots, key_cache, value_cache]


def get_init_inputs():
    return [head_dim]
