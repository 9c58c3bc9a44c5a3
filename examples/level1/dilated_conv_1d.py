"""A dilated convolution along time in bfloat16, from audio and time-series models, where the
dilation widens what one output hears.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, kernel_size, dilation):
        super().__init__()
        padding = dilation * (kernel_size - 1) // 2
        self.conv = nn.Conv1d(
            channels,
            channels,
            kernel_size,
            padding=padding,
            dilation=dilation,
            dtype=torch.bfloat16,
        )

    def forward(self, x):
        return self.conv(x)


batch_size = 16
channels = 256
n_steps = 8192


def get_inputs():
    return [torch.randn(batch_size, channels, n_steps, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, 3, 8]
