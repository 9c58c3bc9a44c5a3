"""A float32 product for which the reference permits TF32."""

import torch
import torch.nn as nn

torch.backends.cuda.matmul.allow_tf32 = True


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


m = 2048
n = 2048
k = 2048


def get_inputs():
    return [torch.randn(m, k), torch.randn(k, n)]


def get_init_inputs():
    return []
