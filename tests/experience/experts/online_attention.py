"""Causal attention with a running softmax that stops at the diagonal.

Task: library/tasks/causal_attention.py
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention(q, k, v, out, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    base = tl.program_id(1).to(tl.int64) * T * D
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    tq = tl.load(q + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < T, other=0.0)
    acc = tl.zeros((BM, D), tl.float32)
    most = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, tl.minimum(T, (tl.program_id(0) + 1) * BM), BN):
        rn = start + tl.arange(0, BN)
        tk = tl.load(k + base + rn[None, :] * D + rd[:, None], mask=rn[None, :] < T, other=0.0)
        scores = tl.dot(tq, tk) * (scale * 1.4426950408889634)
        scores = tl.where((rn[None, :] <= rm[:, None]) & (rn[None, :] < T), scores, -float("inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(most - higher)
        total = total * shrink + tl.sum(weights, axis=1)
        tv = tl.load(v + base + rn[:, None] * D + rd[None, :], mask=rn[:, None] < T, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(weights.to(tv.dtype), tv)
        most = higher
    acc = acc / total[:, None]
    tl.store(
        out + base + rm[:, None] * D + rd[None, :],
        acc.to(out.dtype.element_ty),
        mask=rm[:, None] < T,
    )


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        B, H, T, D = q.shape
        out = torch.empty_like(q)
        grid = (triton.cdiv(T, 128), B * H)
        attention[grid](q, k, v, out, T, D**-0.5, D=D, BM=128, BN=64, num_warps=8, num_stages=3)
        return out
