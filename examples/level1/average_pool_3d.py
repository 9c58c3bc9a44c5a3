"""Average pooling of volumes over 3 x 3 x 3 windows with stride 2 and padding that is not counted,
as between the stages of video models.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.pool = nn.AvgPool3d(
            kernel_size, stride=stride, padding=padding, count_include_pad=False
        )

    def forward(self, x):
        return self.pool(x)


batch_size = 4
channels = 32
depth = 32
height = 128
width = 128


def get_inputs():
    return [torch.randn(batch_size, channels, depth, height, width)]


def get_init_inputs():
    return [3, 2, 1]
