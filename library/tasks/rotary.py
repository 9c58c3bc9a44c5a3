"""Rotary position embedding of queries, by halves of each head."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


batch_size = 8
n_heads = 32
n_tokens = 2048
half_dim = 64


def get_inputs():
    x = torch.randn(batch_size, n_heads, n_tokens, 2 * half_dim)
    angle = torch.rand(n_tokens, half_dim)
    return [x, torch.cos(angle), torch.sin(angle)]


def get_init_inputs():
    return []
