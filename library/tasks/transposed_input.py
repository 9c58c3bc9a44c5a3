"""A pointwise function of an input that is a transposed view."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0


n_rows = 4096
n_cols = 8192


def get_inputs():
    return [torch.randn(n_cols, n_rows).t()]


def get_init_inputs():
    return []
