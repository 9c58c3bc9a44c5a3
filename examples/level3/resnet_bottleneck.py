"""A bottleneck block of a ResNet in float16 as it is served: three convolutions, batch
normalisation with fixed statistics after each, ReLU, and the residual before the last one.
"""

import torch
import torch.nn as nn


def normalised(in_channels, out_channels, kernel_size):
    conv = nn.Conv2d(
        in_channels,
        out_channels,
        kernel_size,
        padding=kernel_size // 2,
        bias=False,
        dtype=torch.float16,
    )
    norm = nn.BatchNorm2d(out_channels, dtype=torch.float16).eval()
    nn.init.normal_(norm.weight, mean=1.0, std=0.1)
    nn.init.normal_(norm.bias, std=0.1)
    nn.init.normal_(norm.running_mean, std=0.1)
    nn.init.uniform_(norm.running_var, 0.2, 0.6)
    return nn.Sequential(conv, norm)


class Model(nn.Module):
    def __init__(self, channels, narrow):
        super().__init__()
        self.reduce = normalised(channels, narrow, 1)
        self.filter = normalised(narrow, narrow, 3)
        self.expand = normalised(narrow, channels, 1)

    def forward(self, x):
        hidden = torch.relu(self.filter(torch.relu(self.reduce(x))))
        return torch.relu(self.expand(hidden) + x)


batch_size = 128
channels = 256
narrow = 64
height = 56
width = 56


def get_inputs():
    return [torch.randn(batch_size, channels, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels, narrow]
