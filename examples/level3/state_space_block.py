"""A Mamba-2 block: projection, short causal convolution, a selective state space computed chunk by
chunk, gate, normalisation, projection. Inside a chunk it is products, between chunks a scan.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def scanned(x, decay, enter, leave):
    """The states' answers to x.

    x (batch, chunks, steps, heads, values) · decay (batch, chunks, steps, heads), logarithms ·
    enter and leave (batch, chunks, steps, states)
    """
    steps = x.shape[2]
    total = decay.cumsum(dim=2)
    later = torch.ones(steps, steps, dtype=torch.bool, device=x.device).triu(1)
    between = total[:, :, :, None] - total[:, :, None]
    kept = between.masked_fill(later[:, :, None], float("-inf")).exp()
    scores = torch.einsum("bcqn,bckn->bcqk", leave, enter)
    within = torch.einsum("bcqkh,bckhp->bcqhp", scores[..., None] * kept, x)

    until_end = (total[:, :, -1:] - total).exp()
    gained = torch.einsum("bckn,bckhp->bchnp", enter, x * until_end[..., None])
    whole = total[:, :, -1].exp()
    carried = [torch.zeros_like(gained[:, 0])]
    for chunk in range(x.shape[1] - 1):
        carried.append(carried[-1] * whole[:, chunk, :, None, None] + gained[:, chunk])
    before = torch.einsum("bcqn,bchnp->bcqhp", leave, torch.stack(carried, dim=1))
    return within + before * total.exp()[..., None]


class Model(nn.Module):
    def __init__(self, n_features, n_heads, head_dim, n_states, chunk_size, eps=1e-6):
        super().__init__()
        inner = n_heads * head_dim
        self.widths = (inner, inner + 2 * n_states, n_heads)
        self.n_heads, self.n_states, self.chunk_size, self.eps = n_heads, n_states, chunk_size, eps
        mixed = inner + 2 * n_states
        self.enter = nn.Linear(n_features, sum(self.widths), bias=False)
        self.conv = nn.Conv1d(mixed, mixed, 4, padding=3, groups=mixed)
        self.rate = nn.Parameter(torch.rand(n_heads))
        self.step = nn.Parameter(torch.randn(n_heads) - 2.0)
        self.skip = nn.Parameter(torch.ones(n_heads) + 0.1 * torch.randn(n_heads))
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(inner))
        self.leave = nn.Linear(inner, n_features, bias=False)

    def forward(self, u):
        batch, tokens, _ = u.shape
        gate, mixed, step = self.enter(u).split(self.widths, dim=-1)
        mixed = F.silu(self.conv(mixed.transpose(1, 2))[..., :tokens].transpose(1, 2))
        inner = self.widths[0]
        x, enter, leave = mixed.split((inner, self.n_states, self.n_states), dim=-1)

        chunks = (batch, tokens // self.chunk_size, self.chunk_size)
        step = F.softplus(step + self.step).view(*chunks, self.n_heads)
        x = x.reshape(*chunks, self.n_heads, inner // self.n_heads)
        decay = -step * self.rate.exp()
        y = scanned(x * step[..., None], decay, enter.reshape(*chunks, -1), leave.reshape(*chunks, -1))
        y = (y + x * self.skip[:, None]).reshape(batch, tokens, inner) * F.silu(gate)
        scale = torch.rsqrt(y.square().mean(dim=-1, keepdim=True) + self.eps)
        return self.leave(y * scale * self.weight)


batch_size = 8
n_chunks = 8
chunk_size = 128
n_features = 768
n_heads = 24
head_dim = 64
n_states = 64


def get_inputs():
    return [torch.randn(batch_size, n_chunks * chunk_size, n_features)]


def get_init_inputs():
    return [n_features, n_heads, head_dim, n_states, chunk_size]
