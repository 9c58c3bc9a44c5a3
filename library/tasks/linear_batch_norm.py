"""A linear layer followed by batch normalisation with fixed statistics."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.bfloat16)
        self.norm = nn.BatchNorm1d(out_features)
        self.norm.running_mean.normal_(std=0.1)
        self.norm.running_var.uniform_(0.5, 1.5)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.1)
        nn.init.normal_(self.norm.bias, std=0.1)
        self.eval()

    def forward(self, x):
        return self.norm(self.linear(x).float()).to(x.dtype)


n_tokens = 8192
in_features = 512
out_features = 2048


def get_inputs():
    return [torch.randn(n_tokens, in_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [in_features, out_features]
