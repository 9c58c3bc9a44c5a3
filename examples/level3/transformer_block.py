"""A whole block of a Llama-like language model in bfloat16: RMSNorm, causal attention with grouped
queries and rotary positions, RMSNorm, SwiGLU, and both residuals.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, n_features, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(n_features, dtype=torch.bfloat16))

    def forward(self, x):
        exact = x.float()
        scale = torch.rsqrt(exact.square().mean(dim=-1, keepdim=True) + self.eps)
        return (exact * scale).to(x.dtype) * self.weight


def rotated(x, cosine, sine):
    first, second = x.float().chunk(2, dim=-1)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return torch.cat(turned, dim=-1).to(x.dtype)


class Model(nn.Module):
    def __init__(self, n_features, n_kv_heads, queries_per_kv, head_dim, n_hidden, n_tokens):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = (
            n_kv_heads * queries_per_kv,
            n_kv_heads,
            head_dim,
        )
        wide, narrow = self.n_heads * head_dim, n_kv_heads * head_dim
        self.attention_norm = RMSNorm(n_features)
        self.queries = nn.Linear(n_features, wide, bias=False, dtype=torch.bfloat16)
        self.keys = nn.Linear(n_features, narrow, bias=False, dtype=torch.bfloat16)
        self.values = nn.Linear(n_features, narrow, bias=False, dtype=torch.bfloat16)
        self.mix = nn.Linear(wide, n_features, bias=False, dtype=torch.bfloat16)
        self.mlp_norm = RMSNorm(n_features)
        self.gate = nn.Linear(n_features, n_hidden, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(n_features, n_hidden, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(n_hidden, n_features, bias=False, dtype=torch.bfloat16)
        rates = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
        angles = torch.arange(n_tokens)[:, None] * rates
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        normed = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))

    def attention(self, x):
        batch, tokens, _ = x.shape
        q = self.queries(x).view(batch, tokens, self.n_heads, self.head_dim).transpose(1, 2)
        k = self.keys(x).view(batch, tokens, self.n_kv_heads, self.head_dim).transpose(1, 2)
        v = self.values(x).view(batch, tokens, self.n_kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotated(q, self.cosine, self.sine), rotated(k, self.cosine, self.sine)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.mix(mixed.transpose(1, 2).reshape(batch, tokens, -1))


batch_size = 4
n_tokens = 2048
n_features = 1024
n_kv_heads = 4
queries_per_kv = 4
head_dim = 64
n_hidden = 2816


def get_inputs():
    return [torch.randn(batch_size, n_tokens, n_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [n_features, n_kv_heads, queries_per_kv, head_dim, n_hidden, n_tokens]
