"""A gated recurrent unit over a short sequence: the inputs are projected at once, the steps follow
one another, and each needs a product with the state before its gates.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, n_hidden):
        super().__init__()
        self.from_input = nn.Linear(in_features, 3 * n_hidden)
        self.from_hidden = nn.Linear(n_hidden, 3 * n_hidden)

    def forward(self, x, hidden):
        states = []
        for step in self.from_input(x).unbind(dim=1):
            reset, update, content = step.chunk(3, dim=-1)
            old_reset, old_update, old_content = self.from_hidden(hidden).chunk(3, dim=-1)
            reset = torch.sigmoid(reset + old_reset)
            update = torch.sigmoid(update + old_update)
            content = torch.tanh(content + reset * old_content)
            hidden = (1.0 - update) * content + update * hidden
            states.append(hidden)
        return torch.stack(states, dim=1)


batch_size = 2048
n_steps = 8
in_features = 512
n_hidden = 1024


def get_inputs():
    return [torch.randn(batch_size, n_steps, in_features), torch.randn(batch_size, n_hidden)]


def get_init_inputs():
    return [in_features, n_hidden]
