"""Max pooling along time over overlapping windows of five with stride two, the subsampling of audio
and sequence models.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.pool = nn.MaxPool1d(kernel_size, stride=stride, padding=padding)

    def forward(self, x):
        return self.pool(x)


batch_size = 64
channels = 128
n_steps = 8192


def get_inputs():
    return [torch.randn(batch_size, channels, n_steps)]


def get_init_inputs():
    return [5, 2, 2]
