"""The seam between two blocks of a language model in bfloat16: a block's output is added to the
residual stream, and the sum is handed on both as it is and RMS-normalised.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_features, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(n_features, dtype=torch.bfloat16))

    def forward(self, x, residual):
        residual = x + residual
        exact = residual.float()
        scale = torch.rsqrt(exact.square().mean(dim=-1, keepdim=True) + self.eps)
        return (exact * scale).to(x.dtype) * self.weight, residual


n_tokens = 16384
n_features = 4096


def get_inputs():
    x = torch.randn(n_tokens, n_features, dtype=torch.bfloat16)
    residual = torch.randn(n_tokens, n_features, dtype=torch.bfloat16)
    return [x, residual]


def get_init_inputs():
    return [n_features]
