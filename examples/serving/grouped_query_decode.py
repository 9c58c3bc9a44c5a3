"""One decoding step over a contiguous float16 cache: a single query per head against all earlier
tokens of its sequence, four heads to each head of keys. It reads the cache once and computes little.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, keys, values, lengths):
        used = torch.arange(keys.shape[2], device=q.device) < lengths[:, None]
        return F.scaled_dot_product_attention(
            q, keys, values, attn_mask=used[:, None, None], enable_gqa=True
        )


batch_size = 32
n_kv_heads = 8
queries_per_kv = 4
n_tokens = 4096
head_dim = 128


def get_inputs():
    q = torch.randn(batch_size, n_kv_heads * queries_per_kv, 1, head_dim, dtype=torch.float16)
    keys = torch.randn(batch_size, n_kv_heads, n_tokens, head_dim, dtype=torch.float16)
    values = torch.randn(batch_size, n_kv_heads, n_tokens, head_dim, dtype=torch.float16)
    return [q, keys, values, torch.randint(1, n_tokens + 1, (batch_size,))]


def get_init_inputs():
    return []
