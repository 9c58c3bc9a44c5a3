"""Two products of the same input, one gating the other."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n_features, n_hidden):
        super().__init__()
        self.gate = nn.Linear(n_features, n_hidden, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(n_features, n_hidden, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        return F.silu(self.gate(x).float()).to(x.dtype) * self.up(x)


n_tokens = 8192
n_features = 512
n_hidden = 4096


def get_inputs():
    return [torch.randn(n_tokens, n_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [n_features, n_hidden]
