"""The entrance of a Llama block's feed-forward part: RMSNorm, then one projection to gate and
value, and SiLU of the gate times the value (SwiGLU).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n_features, n_hidden, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(n_features))
        self.gate_and_value = nn.Linear(n_features, 2 * n_hidden, bias=False)

    def forward(self, x):
        scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps)
        gate, value = self.gate_and_value(x * scale * self.weight).chunk(2, dim=-1)
        return F.silu(gate) * value


n_tokens = 8192
n_features = 1024
n_hidden = 2048


def get_inputs():
    return [torch.randn(n_tokens, n_features)]


def get_init_inputs():
    return [n_features, n_hidden]
