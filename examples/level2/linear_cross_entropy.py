"""The end of a language model in training: a bfloat16 projection to the vocabulary and the cross
entropy of every token. The logits, 250 MiB, are needed only for their log-sum-exp and one entry.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n_features, n_words):
        super().__init__()
        weight = torch.randn(n_words, n_features) / n_features**0.5
        self.weight = nn.Parameter(weight.bfloat16())

    def forward(self, hidden, targets):
        logits = torch.matmul(hidden, self.weight.t())
        return F.cross_entropy(logits.float(), targets, reduction="none")


n_tokens = 4096
n_features = 2048
n_words = 32000


def get_inputs():
    hidden = torch.randn(n_tokens, n_features, dtype=torch.bfloat16)
    return [hidden, torch.randint(0, n_words, (n_tokens,))]


def get_init_inputs():
    return [n_features, n_words]
