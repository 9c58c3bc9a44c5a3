"""The products of a mixture of experts after routing, in bfloat16: tokens lie in tiles, each tile
belongs to one expert, and an index says to which. A kernel takes the weights where they are.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_experts, in_features, out_features):
        super().__init__()
        weight = torch.randn(n_experts, in_features, out_features) / in_features**0.5
        self.weight = nn.Parameter(weight.bfloat16())

    def forward(self, tiles, expert_of_tile):
        return torch.bmm(tiles, self.weight[expert_of_tile])


n_tiles = 128
tile_rows = 128
n_experts = 40
in_features = 1024
out_features = 2048


def get_inputs():
    tiles = torch.randn(n_tiles, tile_rows, in_features, dtype=torch.bfloat16)
    return [tiles, torch.randint(0, n_experts, (n_tiles,))]


def get_init_inputs():
    return [n_experts, in_features, out_features]
