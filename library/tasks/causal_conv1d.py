"""A short causal convolution along time, one filter per channel, as in state space models."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, width) / width)

    def forward(self, x):
        channels, width = self.weight.shape
        padded = F.pad(x, (width - 1, 0))
        return F.conv1d(padded, self.weight[:, None, :], groups=channels)


batch_size = 8
channels = 2048
n_tokens = 4096
width = 4


def get_inputs():
    return [torch.randn(batch_size, channels, n_tokens)]


def get_init_inputs():
    return [channels, width]
