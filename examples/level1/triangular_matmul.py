"""A lower triangular matrix times a full one, as in causal mixing without softmax and in
triangular solves. Half of the left matrix is zero and need be neither read nor multiplied.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(torch.tril(a), b)


n_rows = 4096
n_cols = 2048


def get_inputs():
    return [torch.randn(n_rows, n_rows), torch.randn(n_rows, n_cols)]


def get_init_inputs():
    return []
