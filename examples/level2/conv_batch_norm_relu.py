"""A 3 x 3 convolution, batch normalisation with fixed statistics and ReLU in float16: the unit that
most image models run in production, where the normalisation can be folded into the weights.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False, dtype=torch.float16)
        self.norm = nn.BatchNorm2d(channels, dtype=torch.float16).eval()
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.1)
        nn.init.normal_(self.norm.bias, std=0.1)
        nn.init.normal_(self.norm.running_mean, std=0.1)
        nn.init.uniform_(self.norm.running_var, 0.2, 0.6)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


batch_size = 64
channels = 128
height = 64
width = 64


def get_inputs():
    return [torch.randn(batch_size, channels, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [channels]
