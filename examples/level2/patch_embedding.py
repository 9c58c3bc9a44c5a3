"""The entrance of a vision transformer in bfloat16: an image is cut into patches of 16 x 16, each is
projected to a token, and the token's position is added. A convolution whose windows do not overlap.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, n_features, patch_size, n_patches):
        super().__init__()
        self.project = nn.Conv2d(
            channels, n_features, patch_size, stride=patch_size, dtype=torch.bfloat16
        )
        self.positions = nn.Parameter(0.5 * torch.randn(n_patches, n_features).bfloat16())

    def forward(self, images):
        return self.project(images).flatten(2).transpose(1, 2) + self.positions


batch_size = 256
channels = 3
patch_size = 16
patches_high = 14
patches_wide = 14
n_features = 768


def get_inputs():
    shape = (batch_size, channels, patches_high * patch_size, patches_wide * patch_size)
    return [torch.randn(shape, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, n_features, patch_size, patches_high * patches_wide]
