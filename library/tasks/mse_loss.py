"""The mean squared difference of two tensors: one number."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return (a - b).square().mean()


n_rows = 4096
n_cols = 4096


def get_inputs():
    return [torch.randn(n_rows, n_cols), torch.randn(n_rows, n_cols)]


def get_init_inputs():
    return []
