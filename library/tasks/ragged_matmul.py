"""A product whose sizes are multiples of no tile."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


m = 1000
n = 1500
k = 2025


def get_inputs():
    return [torch.randn(m, k, dtype=torch.bfloat16), torch.randn(k, n, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
