"""Causal attention of given queries, keys and values."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


batch_size = 4
n_heads = 16
n_tokens = 2048
head_dim = 64


def get_inputs():
    shape = (batch_size, n_heads, n_tokens, head_dim)
    return [torch.randn(shape, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return []
