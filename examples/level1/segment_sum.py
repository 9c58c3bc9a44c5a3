"""Messages summed into the nodes they are addressed to, the aggregation of graph networks. Several
messages meet in one node, and which ones is known only from the data.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_nodes):
        super().__init__()
        self.n_nodes = n_nodes

    def forward(self, messages, targets):
        sums = messages.new_zeros(self.n_nodes, messages.shape[1])
        return sums.index_add(0, targets, messages)


n_messages = 262144
n_nodes = 32768
n_features = 256


def get_inputs():
    messages = torch.randn(n_messages, n_features)
    return [messages, torch.randint(0, n_nodes, (n_messages,))]


def get_init_inputs():
    return [n_nodes]
