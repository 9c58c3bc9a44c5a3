"""Scores of queries against keys: the second operand is stored by rows of its transpose."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b.t())


m = 4096
n = 4096
k = 1024


def get_inputs():
    return [torch.randn(m, k, dtype=torch.bfloat16), torch.randn(n, k, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
