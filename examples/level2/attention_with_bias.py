"""Attention in float16 with a bias per head and pair of positions added to the scores, as relative
positions and pair representations need it; the softmax is taken in float32.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, head_dim):
        super().__init__()
        self.scale = head_dim**-0.5

    def forward(self, q, k, v, bias):
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale + bias
        weights = torch.softmax(scores.float(), dim=-1).to(v.dtype)
        return torch.matmul(weights, v)


batch_size = 8
n_heads = 16
n_tokens = 1024
head_dim = 64


def get_inputs():
    shape = (batch_size, n_heads, n_tokens, head_dim)
    q, k, v = (torch.randn(shape, dtype=torch.float16) for _ in range(3))
    bias = torch.randn(n_heads, n_tokens, n_tokens, dtype=torch.float16)
    return [q, k, v, bias]


def get_init_inputs():
    return [head_dim]
