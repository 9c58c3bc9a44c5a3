"""Mean over the middle dimension, the pooling that turns a sequence of embeddings into one. The
dimension that is summed is not the contiguous one, so neighbouring threads should walk along the
features.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


batch_size = 128
n_tokens = 512
n_features = 2048


def get_inputs():
    return [torch.randn(batch_size, n_tokens, n_features)]


def get_init_inputs():
    return []
