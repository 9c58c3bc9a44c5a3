"""Triangle multiplication from structure prediction (AlphaFold, outgoing edges): gated projections
of a pair representation, a product over the third residue per channel, normalised and gated again.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.edges = nn.Linear(channels, 2 * channels, bias=False)
        self.gates = nn.Linear(channels, 2 * channels)
        self.out_norm = nn.LayerNorm(channels)
        self.out = nn.Linear(channels, channels, bias=False)
        self.out_gate = nn.Linear(channels, channels)

    def forward(self, pairs):
        x = self.norm(pairs)
        left, right = (self.edges(x) * torch.sigmoid(self.gates(x))).chunk(2, dim=-1)
        product = torch.einsum("bikc,bjkc->bijc", left, right)
        return self.out(self.out_norm(product)) * torch.sigmoid(self.out_gate(x))


batch_size = 2
n_residues = 384
channels = 128


def get_inputs():
    return [torch.randn(batch_size, n_residues, n_residues, channels)]


def get_init_inputs():
    return [channels]
