"""LayerNorm without weights, scaled and shifted by vectors that belong to the whole image: how a
diffusion transformer is told its time step, in bfloat16.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, shift, scale):
        normed = F.layer_norm(x, x.shape[-1:])
        return normed * (1 + scale[:, None]) + shift[:, None]


batch_size = 64
n_tokens = 1024
n_features = 1152


def get_inputs():
    x = torch.randn(batch_size, n_tokens, n_features, dtype=torch.bfloat16)
    shift = 0.5 * torch.randn(batch_size, n_features, dtype=torch.bfloat16)
    scale = 0.3 * torch.randn(batch_size, n_features, dtype=torch.bfloat16)
    return [x, shift, scale]


def get_init_inputs():
    return []
