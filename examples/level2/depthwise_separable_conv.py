"""A depthwise 3 x 3 convolution followed by a pointwise one, with ReLU6 after each: the building
block of mobile image models. The tensor between them need not reach memory.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.depthwise = nn.Conv2d(in_channels, in_channels, 3, padding=1, groups=in_channels)
        self.pointwise = nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, x):
        return F.relu6(self.pointwise(F.relu6(self.depthwise(x))))


batch_size = 32
in_channels = 64
out_channels = 128
height = 112
width = 112


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
