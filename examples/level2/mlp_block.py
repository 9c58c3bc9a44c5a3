"""The feed-forward block of a transformer: two linear layers with GELU between them and the
residual around them. The hidden activations are four times the input.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n_features, n_hidden):
        super().__init__()
        self.expand = nn.Linear(n_features, n_hidden)
        self.contract = nn.Linear(n_hidden, n_features)

    def forward(self, x):
        return x + self.contract(F.gelu(self.expand(x), approximate="tanh"))


n_tokens = 4096
n_features = 1024
n_hidden = 4096


def get_inputs():
    return [torch.randn(n_tokens, n_features)]


def get_init_inputs():
    return [n_features, n_hidden]
