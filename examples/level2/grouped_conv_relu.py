"""A 3 x 3 convolution in 32 groups with bias and ReLU, as in ResNeXt, in float16: many small
products side by side, none of which fills a tile.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, n_groups):
        super().__init__()
        self.conv = nn.Conv2d(
            channels, channels, 3, padding=1, groups=n_groups, dtype=torch.float16
        )

    def forward(self, x):
        return torch.relu(self.conv(x))


batch_size = 64
channels = 256
n_groups = 32
height = 56
width = 56


def get_inputs():
    return [torch.randn(batch_size, channels, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels, n_groups]
