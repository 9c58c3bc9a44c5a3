"""A step of an image generator: a transposed 3 x 3 convolution that doubles the image, an added
bias map per channel and leaky ReLU, clamped to the range that the next step expects.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.ConvTranspose2d(
            in_channels, out_channels, 3, stride=2, padding=1, output_padding=1, bias=False
        )
        self.shift = nn.Parameter(0.1 * torch.randn(out_channels, 1, 1))

    def forward(self, x):
        return F.leaky_relu(self.conv(x) + self.shift, negative_slope=0.2).clamp(-0.1, 1.0)


batch_size = 32
in_channels = 96
out_channels = 48
height = 96
width = 96


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
