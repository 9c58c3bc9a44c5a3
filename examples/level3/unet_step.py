"""One level of a diffusion U-Net: a residual block that is told the time step, down to half the
size, a block there, up again, and a convolution over the result beside the skipped features.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    def __init__(self, channels, n_time, n_groups):
        super().__init__()
        self.norm1 = nn.GroupNorm(n_groups, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(n_time, channels)
        self.norm2 = nn.GroupNorm(n_groups, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, time):
        hidden = self.conv1(F.silu(self.norm1(x)))
        hidden = hidden + self.time(F.silu(time))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(hidden)))


class Model(nn.Module):
    def __init__(self, channels, n_time, n_groups):
        super().__init__()
        self.first = Residual(channels, n_time, n_groups)
        self.down = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        self.middle = Residual(2 * channels, n_time, n_groups)
        self.up = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.join = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x, time):
        skipped = self.first(x, time)
        deep = self.middle(self.down(skipped), time)
        up = self.up(F.interpolate(deep, size=x.shape[-2:], mode="nearest"))
        return self.join(torch.cat([up, skipped], dim=1))


batch_size = 16
channels = 64
height = 128
width = 128
n_time = 256
n_groups = 8


def get_inputs():
    return [torch.randn(batch_size, channels, height, width), torch.randn(batch_size, n_time)]


def get_init_inputs():
    return [channels, n_time, n_groups]
