"""A linear layer with a low-rank adapter (LoRA) beside it, in bfloat16: x W + (x A) B. The two thin
products cost little arithmetic, and a pass over the output each unless they are fused.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, rank, alpha):
        super().__init__()
        self.base = nn.Linear(in_features, out_features, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(in_features, rank, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(rank, out_features, bias=False, dtype=torch.bfloat16)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(x))


n_tokens = 16384
in_features = 2048
out_features = 4096
rank = 32


def get_inputs():
    return [torch.randn(n_tokens, in_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [in_features, out_features, rank, 64.0]
