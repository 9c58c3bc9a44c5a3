"""Squeeze and excitation: feature maps are averaged per channel, two small layers make a gate of the
averages, and the gate scales the maps. The input is wanted twice, with a reduction in between.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, n_hidden):
        super().__init__()
        self.squeeze = nn.Linear(channels, n_hidden)
        self.excite = nn.Linear(n_hidden, channels)

    def forward(self, x):
        hidden = torch.relu(self.squeeze(x.mean(dim=(2, 3))))
        gate = torch.sigmoid(self.excite(hidden))
        return x * gate[:, :, None, None]


batch_size = 64
channels = 256
n_hidden = 64
height = 64
width = 64


def get_inputs():
    brightness = 2.0 * torch.randn(batch_size, channels, 1, 1)
    return [torch.randn(batch_size, channels, height, width) + brightness]


def get_init_inputs():
    return [channels, n_hidden]
