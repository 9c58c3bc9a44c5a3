"""A 3 x 3 x 3 convolution over the frames of a video or the slices of a scan. As a matrix product
its inner dimension is 27 times the channels, and neighbouring outputs share most of it.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, padding=kernel_size // 2)

    def forward(self, x):
        return self.conv(x)


batch_size = 4
in_channels = 32
out_channels = 64
depth = 16
height = 112
width = 112


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, 3]
