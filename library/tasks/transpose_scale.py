"""A transposed copy, scaled."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x.t() * 2.0).contiguous()


n_rows = 8192
n_cols = 4096


def get_inputs():
    return [torch.randn(n_rows, n_cols)]


def get_init_inputs():
    return []
