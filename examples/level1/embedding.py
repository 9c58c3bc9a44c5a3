"""The embedding of token ids at the entrance of a language model: rows of a bfloat16 table in an
order that only the data knows.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_words, n_features):
        super().__init__()
        self.embedding = nn.Embedding(n_words, n_features, dtype=torch.bfloat16)

    def forward(self, token_ids):
        return self.embedding(token_ids)


batch_size = 32
n_tokens = 2048
n_words = 128000
n_features = 1024


def get_inputs():
    return [torch.randint(0, n_words, (batch_size, n_tokens))]


def get_init_inputs():
    return [n_words, n_features]
