"""bfloat16 activations times weights of four bits, two to a byte, with a scale per group of 128
inputs (as in GPTQ and AWQ). The weights should be unpacked on the chip, not in memory.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_slices, group_size, out_features):
        super().__init__()
        packed = torch.randint(0, 256, (out_features, n_slices, group_size // 2))
        self.register_buffer("packed", packed.to(torch.uint8))
        scales = (0.5 + torch.rand(out_features, n_slices, 1)) / (n_slices * group_size) ** 0.5
        self.register_buffer("scales", scales.bfloat16())

    def forward(self, x):
        halves = torch.stack((self.packed & 15, self.packed >> 4), dim=-1)
        weight = (halves.flatten(2).to(x.dtype) - 8) * self.scales
        return torch.matmul(x, weight.flatten(1).t())


n_tokens = 1024
n_slices = 64
group_size = 128
out_features = 8192


def get_inputs():
    return [torch.randn(n_tokens, n_slices * group_size, dtype=torch.bfloat16)]


def get_init_inputs():
    return [n_slices, group_size, out_features]
