"""Normalise, project, activate: LayerNorm, a linear layer and GELU in bfloat16, the entrance of a
pre-norm feed-forward block.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n_features, n_hidden):
        super().__init__()
        self.norm = nn.LayerNorm(n_features, dtype=torch.bfloat16)
        self.linear = nn.Linear(n_features, n_hidden, dtype=torch.bfloat16)

    def forward(self, x):
        return F.gelu(self.linear(self.norm(x)))


n_tokens = 16384
n_features = 1024
n_hidden = 4096


def get_inputs():
    return [torch.randn(n_tokens, n_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [n_features, n_hidden]
