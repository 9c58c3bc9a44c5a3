"""What sampling does before it draws: a penalty on tokens already said, a temperature per request,
all but the fifty highest logits removed, softmax. The draw itself is left out: it is random.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, top_k, penalty):
        super().__init__()
        self.top_k, self.penalty = top_k, penalty

    def forward(self, logits, said, temperature):
        old = logits.gather(1, said)
        punished = torch.where(old > 0, old / self.penalty, old * self.penalty)
        logits = logits.scatter(1, said, punished)
        lowest = logits.topk(self.top_k, dim=-1).values[:, -1:]
        kept = logits.masked_fill(logits < lowest, float("-inf"))
        return torch.softmax(kept / temperature, dim=-1)


batch_size = 256
n_words = 128256
n_said = 1024
top_k = 50


def get_inputs():
    logits = 4.0 * torch.randn(batch_size, n_words)
    said = torch.randint(0, n_words, (batch_size, n_said))
    return [logits, said, 0.5 + torch.rand(batch_size, 1)]


def get_init_inputs():
    return [top_k, 1.2]
