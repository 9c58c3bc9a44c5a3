"""A ConvNeXt block: a depthwise 7 x 7 convolution, LayerNorm over the channels, two pointwise
layers with GELU between them, a scale per channel and the residual.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.expand = nn.Linear(channels, 4 * channels)
        self.contract = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(0.5 + torch.rand(channels))

    def forward(self, x):
        hidden = self.norm(self.conv(x).permute(0, 2, 3, 1))
        hidden = self.scale * self.contract(F.gelu(self.expand(hidden)))
        return x + hidden.permute(0, 3, 1, 2)


batch_size = 32
channels = 128
height = 56
width = 56


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels]
