"""A memory addressed by n-grams (Engram): the last two and three token ids are hashed to rows of two
bfloat16 tables, and a gate that compares them with the hidden state decides how much is added.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    MULTIPLIERS = (2654435761, 2246822519, 3266489917)

    def __init__(self, n_rows, n_memory, n_features):
        super().__init__()
        self.n_rows = n_rows
        self.pairs = nn.Embedding(n_rows, n_memory, dtype=torch.bfloat16)
        self.triples = nn.Embedding(n_rows, n_memory, dtype=torch.bfloat16)
        self.key = nn.Linear(2 * n_memory, n_features, bias=False, dtype=torch.bfloat16)
        self.value = nn.Linear(2 * n_memory, n_features, bias=False, dtype=torch.bfloat16)

    def forward(self, token_ids, hidden):
        first, second, third = (
            F.pad(token_ids, (back, 0))[:, : token_ids.shape[1]] * multiplier
            for back, multiplier in enumerate(self.MULTIPLIERS)
        )
        pairs = self.pairs((first ^ second) % self.n_rows)
        triples = self.triples((first ^ second ^ third) % self.n_rows)
        memory = torch.cat([pairs, triples], dim=-1)
        match = (self.key(memory).float() * hidden.float()).sum(dim=-1, keepdim=True)
        gate = torch.sigmoid(match * hidden.shape[-1] ** -0.5)
        return hidden + (gate * self.value(memory)).to(hidden.dtype)


batch_size = 8
n_tokens = 4096
n_words = 128000
n_rows = 262144
n_memory = 256
n_features = 1024


def get_inputs():
    token_ids = torch.randint(0, n_words, (batch_size, n_tokens))
    return [token_ids, torch.randn(batch_size, n_tokens, n_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [n_rows, n_memory, n_features]
