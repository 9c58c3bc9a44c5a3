"""A linear layer with GELU in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.bfloat16)

    def forward(self, x):
        return F.gelu(self.linear(x))


n_tokens = 8192
in_features = 1024
out_features = 4096


def get_inputs():
    return [torch.randn(n_tokens, in_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [in_features, out_features]
