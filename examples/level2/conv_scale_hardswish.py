"""A strided convolution, a learned scale and shift per channel (a folded batch normalisation) and
Hardswish, as in a mobile backbone.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, stride=2, padding=1, bias=False)
        self.scale = nn.Parameter(1.0 + 0.1 * torch.randn(out_channels, 1, 1))
        self.shift = nn.Parameter(0.1 * torch.randn(out_channels, 1, 1))

    def forward(self, x):
        return F.hardswish(self.conv(x) * self.scale + self.shift)


batch_size = 64
in_channels = 32
out_channels = 64
height = 224
width = 224


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
