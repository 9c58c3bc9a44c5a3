"""Attention without softmax: keys and values are summed into one small matrix per head, which every
query multiplies. The cost grows with the tokens, not with their square.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        q = F.elu(q) + 1.0
        k = F.elu(k) + 1.0
        state = torch.matmul(k.transpose(-2, -1), v)
        weight = torch.matmul(q, k.sum(dim=-2).unsqueeze(-1))
        return torch.matmul(q, state) / weight


batch_size = 8
n_heads = 16
n_tokens = 4096
head_dim = 64


def get_inputs():
    shape = (batch_size, n_heads, n_tokens, head_dim)
    return [torch.randn(shape), torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return []
