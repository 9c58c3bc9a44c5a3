"""Row sums of bfloat16, which torch accumulates in float32."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=-1)


n_rows = 16384
n_cols = 4096


def get_inputs():
    return [torch.rand(n_rows, n_cols, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
