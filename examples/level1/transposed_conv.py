"""A transposed 4 x 4 convolution with stride 2, which doubles an image's height and width in
decoders and generators. Each output is reached by four of the sixteen filter taps.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.ConvTranspose2d(in_channels, out_channels, 4, stride=2, padding=1)

    def forward(self, x):
        return self.conv(x)


batch_size = 32
in_channels = 128
out_channels = 64
height = 64
width = 64


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
