"""A linear layer whose weight is stored as int8 with one scale per output."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        weight = torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", 0.001 + 0.001 * torch.rand(out_features))

    def forward(self, x):
        weight = (self.weight.float() * self.scale[:, None]).to(x.dtype)
        return torch.matmul(x, weight.t())


n_tokens = 64
in_features = 4096
out_features = 8192


def get_inputs():
    return [torch.randn(n_tokens, in_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [in_features, out_features]
