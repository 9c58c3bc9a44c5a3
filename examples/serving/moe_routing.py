"""Routing of tokens to experts: the two highest of 64 scores, their softmax as weights, and how many
tokens each expert gets. A small selection per row and a histogram over all rows.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, top_k):
        super().__init__()
        self.top_k = top_k

    def forward(self, scores):
        best, experts = scores.topk(self.top_k, dim=-1)
        loads = torch.zeros(scores.shape[1], dtype=torch.int64, device=scores.device)
        loads = loads.index_add(0, experts.flatten(), torch.ones_like(experts.flatten()))
        return torch.softmax(best, dim=-1), experts, loads


n_tokens = 262144
n_experts = 64
top_k = 2


def get_inputs():
    return [torch.randn(n_tokens, n_experts)]


def get_init_inputs():
    return [top_k]
