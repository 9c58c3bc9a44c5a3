"""An addition over more elements than 32-bit offsets can count."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1.0


n_rows = 70000
n_cols = 40000


def get_inputs():
    return [torch.randn(n_rows, n_cols)]


def get_init_inputs():
    return []
