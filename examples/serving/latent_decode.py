"""A decoding step of multi-head latent attention (DeepSeek), in bfloat16: all heads share one cache
of compressed keys that serve as values as well; queries and results are projected into and out of it.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n_heads, head_dim, n_latent, n_rotary):
        super().__init__()
        self.scale = (head_dim + n_rotary) ** -0.5
        into = torch.randn(n_heads, head_dim, n_latent) / head_dim**0.5
        self.into = nn.Parameter(into.bfloat16())
        out_of = torch.randn(n_heads, n_latent, head_dim) / n_latent**0.5
        self.out_of = nn.Parameter(out_of.bfloat16())

    def forward(self, q, q_rotary, latent, k_rotary):
        compressed = torch.einsum("bhd,hdc->bhc", q, self.into)
        scores = torch.einsum("bhc,btc->bht", compressed, latent)
        scores = (scores + torch.einsum("bhr,btr->bht", q_rotary, k_rotary)).float() * self.scale
        weights = torch.softmax(scores, dim=-1).to(latent.dtype)
        mixed = torch.einsum("bht,btc->bhc", weights, latent)
        return torch.einsum("bhc,hcd->bhd", mixed, self.out_of)


batch_size = 32
n_heads = 128
head_dim = 128
n_latent = 512
n_rotary = 64
n_tokens = 4096


def get_inputs():
    q = torch.randn(batch_size, n_heads, head_dim, dtype=torch.bfloat16)
    q_rotary = torch.randn(batch_size, n_heads, n_rotary, dtype=torch.bfloat16)
    latent = torch.randn(batch_size, n_tokens, n_latent, dtype=torch.bfloat16)
    k_rotary = torch.randn(batch_size, n_tokens, n_rotary, dtype=torch.bfloat16)
    return [q, q_rotary, latent, k_rotary]


def get_init_inputs():
    return [n_heads, head_dim, n_latent, n_rotary]
