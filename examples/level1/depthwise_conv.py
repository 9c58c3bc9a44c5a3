"""A depthwise 3 x 3 convolution in float16: every channel has a filter of its own, as in mobile
backbones. There is no reduction over channels, so it is bound by memory and tensor cores are idle.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(
            channels,
            channels,
            kernel_size,
            padding=kernel_size // 2,
            groups=channels,
            dtype=torch.float16,
        )

    def forward(self, x):
        return self.conv(x)


batch_size = 32
channels = 128
height = 128
width = 128


def get_inputs():
    return [torch.randn(batch_size, channels, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels, 3]
