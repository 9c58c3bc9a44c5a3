"""The sums of a few very long rows."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=-1)


n_rows = 8
n_cols = 4194304


def get_inputs():
    return [torch.rand(n_rows, n_cols)]


def get_init_inputs():
    return []
