"""LayerNorm with the row in registers, weight and bias applied before the only store.

Task: examples/level1/layer_norm.py
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm(x, weight, bias, out, C, eps, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * C + c, mask=c < C, other=0.0)
    off = tl.where(c < C, value - tl.sum(value, axis=0) / C, 0.0)
    off *= tl.rsqrt(tl.sum(off * off, axis=0) / C + eps)
    value = off * tl.load(weight + c, mask=c < C) + tl.load(bias + c, mask=c < C)
    tl.store(out + row * C + c, value, mask=c < C)


class ModelNew(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.norm = nn.LayerNorm(n_features)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.1)
        nn.init.normal_(self.norm.bias, std=0.1)

    def forward(self, x):
        C = x.shape[-1]
        rows = x.numel() // C
        out = torch.empty_like(x)
        block = triton.next_power_of_2(C)
        layer_norm[(rows,)](
            x, self.norm.weight, self.norm.bias, out, C, self.norm.eps, BLOCK=block, num_warps=8
        )
        return out
