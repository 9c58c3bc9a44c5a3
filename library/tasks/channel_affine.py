"""A weight and a bias per feature."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(n_features))
        self.bias = nn.Parameter(0.1 * torch.randn(n_features))

    def forward(self, x):
        return x * self.weight + self.bias


n_tokens = 16384
n_features = 2048


def get_inputs():
    return [torch.randn(n_tokens, n_features)]


def get_init_inputs():
    return [n_features]
