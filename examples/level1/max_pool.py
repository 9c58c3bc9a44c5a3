"""Max pooling over 2 x 2 windows, the usual halving of a feature map in float16. Every input is
read once; what matters is that the two rows of a window are read in long contiguous pieces.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel_size):
        super().__init__()
        self.pool = nn.MaxPool2d(kernel_size)

    def forward(self, x):
        return self.pool(x)


batch_size = 64
channels = 64
height = 256
width = 256


def get_inputs():
    return [torch.randn(batch_size, channels, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [2]
