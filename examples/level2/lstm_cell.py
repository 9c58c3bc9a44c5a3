"""One step of an LSTM: two products make the four gates, which update the cell and the hidden state.
Both states are outputs, and the gates need not be written to memory.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, n_hidden):
        super().__init__()
        self.from_input = nn.Linear(in_features, 4 * n_hidden)
        self.from_hidden = nn.Linear(n_hidden, 4 * n_hidden, bias=False)

    def forward(self, x, hidden, cell):
        gates = self.from_input(x) + self.from_hidden(hidden)
        enter, forget, content, leave = gates.chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(content)
        return torch.sigmoid(leave) * torch.tanh(cell), cell


batch_size = 8192
in_features = 512
n_hidden = 1024


def get_inputs():
    x = torch.randn(batch_size, in_features)
    hidden = torch.randn(batch_size, n_hidden)
    return [x, hidden, torch.randn(batch_size, n_hidden)]


def get_init_inputs():
    return [in_features, n_hidden]
