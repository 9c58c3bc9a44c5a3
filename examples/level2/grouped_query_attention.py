"""Causal attention with fewer heads of keys and values than of queries, the prefill of current
language models, in bfloat16. Four heads of queries share each head of keys.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


batch_size = 4
n_kv_heads = 8
queries_per_kv = 4
n_tokens = 2048
head_dim = 128


def get_inputs():
    q = torch.randn(
        batch_size, n_kv_heads * queries_per_kv, n_tokens, head_dim, dtype=torch.bfloat16
    )
    k = torch.randn(batch_size, n_kv_heads, n_tokens, head_dim, dtype=torch.bfloat16)
    v = torch.randn(batch_size, n_kv_heads, n_tokens, head_dim, dtype=torch.bfloat16)
    return [q, k, v]


def get_init_inputs():
    return []
