"""The cosine between pairs of float16 embeddings, as in retrieval and contrastive training. Three
sums over the same two rows, which need to be read once.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, a, b):
        return F.cosine_similarity(a, b, dim=-1)


n_pairs = 65536
n_features = 1024


def get_inputs():
    a = torch.randn(n_pairs, n_features)
    b = torch.randn(n_pairs, n_features) + torch.randn(n_pairs, 1) * a
    return [a.half(), b.half()]


def get_init_inputs():
    return []
