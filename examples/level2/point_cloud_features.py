"""One linear layer shared by all points of a cloud, ReLU, and the maximum over the points: how
PointNet makes one vector of a set. Only the maxima need to leave the chip.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, points):
        return torch.relu(self.linear(points)).amax(dim=1)


batch_size = 64
n_points = 4096
in_features = 128
out_features = 512


def get_inputs():
    return [torch.randn(batch_size, n_points, in_features)]


def get_init_inputs():
    return [in_features, out_features]
