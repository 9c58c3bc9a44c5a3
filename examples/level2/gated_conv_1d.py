"""A causal dilated convolution along time whose two halves gate each other, plus the residual: the
layer of autoregressive audio models, in bfloat16.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, kernel_size, dilation):
        super().__init__()
        self.lead = dilation * (kernel_size - 1)
        self.conv = nn.Conv1d(
            channels, 2 * channels, kernel_size, dilation=dilation, dtype=torch.bfloat16
        )

    def forward(self, x):
        content, gate = self.conv(F.pad(x, (self.lead, 0))).chunk(2, dim=1)
        return x + torch.tanh(content) * torch.sigmoid(gate)


batch_size = 32
channels = 192
n_steps = 4096


def get_inputs():
    return [torch.randn(batch_size, channels, n_steps, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, 2, 4]
