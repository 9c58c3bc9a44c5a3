"""Causal self-attention in bfloat16 through PyTorch's scaled dot product, from a packed projection
of queries, keys and values. Half of the scores are masked and need not be computed.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n_features, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(n_features, 3 * n_features, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        batch, tokens, features = x.shape
        packed = self.qkv(x).view(batch, tokens, 3, self.n_heads, features // self.n_heads)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, tokens, features)


batch_size = 8
n_tokens = 1024
n_features = 1024
n_heads = 16


def get_inputs():
    return [torch.randn(batch_size, n_tokens, n_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [n_features, n_heads]
