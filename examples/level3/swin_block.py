"""A Swin block in float16: attention inside windows of 7 x 7 positions of a shifted image, with a
learned bias per pair of positions, then the usual feed-forward part.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n_features, n_heads, window_size):
        super().__init__()
        self.n_heads, self.window_size = n_heads, window_size
        self.attention_norm = nn.LayerNorm(n_features, dtype=torch.float16)
        self.qkv = nn.Linear(n_features, 3 * n_features, dtype=torch.float16)
        self.mix = nn.Linear(n_features, n_features, dtype=torch.float16)
        self.bias = nn.Parameter(torch.randn(n_heads, window_size**2, window_size**2).half())
        self.mlp_norm = nn.LayerNorm(n_features, dtype=torch.float16)
        self.expand = nn.Linear(n_features, 4 * n_features, dtype=torch.float16)
        self.contract = nn.Linear(4 * n_features, n_features, dtype=torch.float16)

    def forward(self, x):
        shift = self.window_size // 2
        shifted = torch.roll(self.attention_norm(x), (-shift, -shift), dims=(1, 2))
        x = x + torch.roll(self.attention(shifted), (shift, shift), dims=(1, 2))
        return x + self.contract(F.gelu(self.expand(self.mlp_norm(x))))

    def attention(self, x):
        batch, height, width, features = x.shape
        size = self.window_size
        split = x.view(batch, height // size, size, width // size, size, features)
        windows = split.transpose(2, 3).reshape(-1, size * size, features)
        packed = self.qkv(windows).view(-1, size * size, 3, self.n_heads, features // self.n_heads)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(-2, -1)) * q.shape[-1] ** -0.5 + self.bias
        mixed = torch.matmul(torch.softmax(scores, dim=-1), v)
        windows = self.mix(mixed.transpose(1, 2).reshape(-1, size * size, features))
        split = windows.view(batch, height // size, width // size, size, size, features)
        return split.transpose(2, 3).reshape(batch, height, width, features)


batch_size = 64
windows_high = 4
windows_wide = 4
window_size = 7
n_features = 384
n_heads = 12


def get_inputs():
    shape = (batch_size, windows_high * window_size, windows_wide * window_size, n_features)
    return [torch.randn(shape, dtype=torch.float16)]


def get_init_inputs():
    return [n_features, n_heads, window_size]
