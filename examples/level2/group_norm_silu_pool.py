"""GroupNorm, SiLU and average pooling of feature maps, a step of a diffusion model's encoder.
Statistics over a group have to be complete before the first output, and the pooled output is a
quarter of the input.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, n_groups):
        super().__init__()
        self.norm = nn.GroupNorm(n_groups, channels)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.1)
        nn.init.normal_(self.norm.bias, std=0.1)

    def forward(self, x):
        return F.avg_pool2d(F.silu(self.norm(x)), kernel_size=2)


batch_size = 32
channels = 128
height = 128
width = 128
n_groups = 32


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, n_groups]
