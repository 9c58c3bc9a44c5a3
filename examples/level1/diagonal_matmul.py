"""A diagonal matrix times a full one, written as a matrix product as in many derivations. All but
one term of each sum is zero: it is a scaling of rows.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, diagonal, x):
        return torch.matmul(torch.diag(diagonal), x)


n_rows = 512
n_cols = 131072


def get_inputs():
    return [torch.randn(n_rows), torch.randn(n_rows, n_cols)]


def get_init_inputs():
    return []
