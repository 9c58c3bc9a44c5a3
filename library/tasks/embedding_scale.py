"""Rows of a table by index, scaled, with a position added."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_words, n_tokens, n_features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(n_words, n_features))
        self.position = nn.Parameter(torch.randn(n_tokens, n_features))
        self.scale = 2.5

    def forward(self, ids):
        return self.table[ids] * self.scale + self.position


batch_size = 16
n_tokens = 2048
n_features = 1024
n_words = 32000


def get_inputs():
    return [torch.randint(0, n_words, (batch_size, n_tokens))]


def get_init_inputs():
    return [n_words, n_tokens, n_features]
