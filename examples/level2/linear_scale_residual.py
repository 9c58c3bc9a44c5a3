"""A projection back to the residual stream with a learned scale per feature (LayerScale), added to
its input. Three operations after the product, all of them elementwise.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.project = nn.Linear(n_features, n_features)
        self.scale = nn.Parameter(0.1 + 0.1 * torch.rand(n_features))

    def forward(self, x):
        return x + self.scale * self.project(x)


n_tokens = 16384
n_features = 1024


def get_inputs():
    return [torch.randn(n_tokens, n_features)]


def get_init_inputs():
    return [n_features]
