"""An encoder block of a vision transformer in bfloat16: LayerNorm, attention over all patches,
LayerNorm, a GELU layer four times as wide, both residuals scaled per feature.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n_features, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm = nn.LayerNorm(n_features, dtype=torch.bfloat16)
        self.qkv = nn.Linear(n_features, 3 * n_features, dtype=torch.bfloat16)
        self.mix = nn.Linear(n_features, n_features, dtype=torch.bfloat16)
        self.mlp_norm = nn.LayerNorm(n_features, dtype=torch.bfloat16)
        self.expand = nn.Linear(n_features, 4 * n_features, dtype=torch.bfloat16)
        self.contract = nn.Linear(4 * n_features, n_features, dtype=torch.bfloat16)
        self.attention_scale = nn.Parameter(0.5 + torch.rand(n_features).bfloat16())
        self.mlp_scale = nn.Parameter(0.5 + torch.rand(n_features).bfloat16())

    def forward(self, x):
        x = x + self.attention_scale * self.attention(self.attention_norm(x))
        hidden = F.gelu(self.expand(self.mlp_norm(x)))
        return x + self.mlp_scale * self.contract(hidden)

    def attention(self, x):
        batch, tokens, features = x.shape
        packed = self.qkv(x).view(batch, tokens, 3, self.n_heads, features // self.n_heads)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.mix(mixed.transpose(1, 2).reshape(batch, tokens, features))


batch_size = 64
n_tokens = 197
n_features = 768
n_heads = 12


def get_inputs():
    return [torch.randn(batch_size, n_tokens, n_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [n_features, n_heads]
