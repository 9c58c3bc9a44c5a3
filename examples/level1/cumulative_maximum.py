"""Running maximum along time for every feature, as in drawdowns and envelopes of series. A scan
along an axis that is not the contiguous one, with an operation that is no sum.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cummax(x, dim=1).values


batch_size = 64
n_steps = 1024
n_features = 1024


def get_inputs():
    return [torch.randn(batch_size, n_steps, n_features)]


def get_init_inputs():
    return []
