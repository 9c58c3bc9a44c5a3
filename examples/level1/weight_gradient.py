"""The gradient of a linear layer's weight: activations transposed times gradients, in bfloat16. The
sum runs over all tokens and the output is small, so the sum has to be split to fill a GPU.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, gradient):
        return torch.matmul(gradient.t(), x)


n_tokens = 65536
in_features = 768
out_features = 512


def get_inputs():
    x = torch.randn(n_tokens, in_features, dtype=torch.bfloat16)
    gradient = torch.randn(n_tokens, out_features, dtype=torch.bfloat16)
    return [x, gradient]


def get_init_inputs():
    return []
