"""A 3 x 3 x 3 convolution, GroupNorm and SiLU in bfloat16, the unit of a video diffusion model's
encoder.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, n_groups):
        super().__init__()
        self.conv = nn.Conv3d(
            in_channels, out_channels, 3, padding=1, bias=False, dtype=torch.bfloat16
        )
        self.norm = nn.GroupNorm(n_groups, out_channels, dtype=torch.bfloat16)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.1)
        nn.init.normal_(self.norm.bias, std=0.1)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


batch_size = 8
in_channels = 32
out_channels = 64
n_groups = 8
depth = 16
height = 96
width = 96


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [in_channels, out_channels, n_groups]
