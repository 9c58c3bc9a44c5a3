"""A bfloat16 matrix times one vector, a linear layer when a single token is decoded. Each weight is
used once, so only the reading of the matrix counts.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, weight, x):
        return torch.mv(weight, x)


out_features = 16384
in_features = 8192


def get_inputs():
    weight = torch.randn(out_features, in_features, dtype=torch.bfloat16)
    return [weight, torch.randn(in_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
