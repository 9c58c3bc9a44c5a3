"""Many small matrix products in float16, as in multi-head attention. One product does not fill the
GPU; the batch has to.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


batch_size = 128
m = 512
n = 512
k = 256


def get_inputs():
    a = torch.randn(batch_size, m, k, dtype=torch.float16)
    b = torch.randn(batch_size, k, n, dtype=torch.float16)
    return [a, b]


def get_init_inputs():
    return []
