"""The entrance of an encoder like BERT: word, position and segment embeddings are gathered, added
and normalised. One pass over the output is enough for all of it.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_words, n_tokens, n_segments, n_features):
        super().__init__()
        self.words = nn.Embedding(n_words, n_features)
        self.positions = nn.Embedding(n_tokens, n_features)
        self.segments = nn.Embedding(n_segments, n_features)
        self.norm = nn.LayerNorm(n_features)

    def forward(self, token_ids, segment_ids):
        positions = torch.arange(token_ids.shape[1], device=token_ids.device)
        x = self.words(token_ids) + self.segments(segment_ids) + self.positions(positions)
        return self.norm(x)


batch_size = 64
n_tokens = 512
n_words = 30522
n_segments = 2
n_features = 768


def get_inputs():
    token_ids = torch.randint(0, n_words, (batch_size, n_tokens))
    segment_ids = torch.randint(0, n_segments, (batch_size, n_tokens))
    return [token_ids, segment_ids]


def get_init_inputs():
    return [n_words, n_tokens, n_segments, n_features]
