"""The interaction layer of a recommendation model in float16: inner products of all pairs of a
sample's feature vectors, each pair once, beside the dense vector itself.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_fields):
        super().__init__()
        rows, columns = torch.tril_indices(n_fields, n_fields, offset=-1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, x):
        products = torch.bmm(x, x.transpose(1, 2))
        return torch.cat([x[:, 0], products[:, self.rows, self.columns]], dim=1)


batch_size = 16384
n_fields = 27
n_features = 128


def get_inputs():
    return [torch.randn(batch_size, n_fields, n_features, dtype=torch.float16)]


def get_init_inputs():
    return [n_fields]
