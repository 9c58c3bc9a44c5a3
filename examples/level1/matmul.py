"""A plain matrix product in float32. It is bound by arithmetic, and the policy for TF32 decides
what may be computed on tensor cores: candidates and baselines follow the same one.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


m = 2048
n = 4096
k = 2048


def get_inputs():
    return [torch.randn(m, k), torch.randn(k, n)]


def get_init_inputs():
    return []
