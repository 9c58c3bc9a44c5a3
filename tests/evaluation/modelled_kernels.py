"""Kernels of which it is known which is faster, for test_roofline.py."""

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        rk = k0 + tl.arange(0, BK)
        ta = tl.load(
            a + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < M) & (rk[None, :] < K),
            other=0.0,
        )
        tb = tl.load(
            b + rk[:, None] * N + rn[None, :],
            mask=(rk[:, None] < K) & (rn[None, :] < N),
            other=0.0,
        )
        acc += tl.dot(ta, tb, input_precision=P)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def silu(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i, v * tl.sigmoid(v), mask=i < n)


@triton.jit
def scaled(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@triton.jit
def scaled_silu(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n) * 2.0
    tl.store(o + i, v * tl.sigmoid(v), mask=i < n)


@triton.jit
def softmax_once(x, o, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + c, mask=c < n, other=-float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(o + row * n + c, v / tl.sum(v, axis=0), mask=c < n)


@triton.jit
def softmax_thrice(x, o, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = tl.full((BLOCK,), -float("inf"), tl.float32)
    for k in range(0, n, BLOCK):
        c = k + tl.arange(0, BLOCK)
        m = tl.maximum(m, tl.load(x + row * n + c, mask=c < n, other=-float("inf")))
    largest = tl.max(m, axis=0)
    s = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        c = k + tl.arange(0, BLOCK)
        s += tl.exp(tl.load(x + row * n + c, mask=c < n, other=-float("inf")) - largest)
    total = tl.sum(s, axis=0)
    for k in range(0, n, BLOCK):
        c = k + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + c, mask=c < n, other=-float("inf"))
        tl.store(o + row * n + c, tl.exp(v - largest) / total, mask=c < n)


@triton.jit
def transpose_by_columns(x, o, M, N, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    r = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + c * M + r, tl.load(x + r * N + c, mask=r < M), mask=r < M)


@triton.jit
def transpose_by_tiles(x, o, M, N, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    keep = (r[:, None] < M) & (c[None, :] < N)
    tile = tl.load(x + r[:, None] * N + c[None, :], mask=keep)
    tl.store(o + c[None, :] * M + r[:, None], tile, mask=keep)


@triton.jit
def attention(q, k, v, o, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Causal, one head per program of the second axis."""
    base = tl.program_id(1) * T * D
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    tq = tl.load(q + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < T, other=0.0)
    acc = tl.zeros((BM, D), tl.float32)
    m = tl.full((BM,), -float("inf"), tl.float32)
    s = tl.zeros((BM,), tl.float32)
    for start in range(0, tl.minimum(T, (tl.program_id(0) + 1) * BM), BN):
        rn = start + tl.arange(0, BN)
        tk = tl.load(k + base + rn[None, :] * D + rd[:, None], mask=rn[None, :] < T, other=0.0)
        scores = tl.dot(tq, tk) * scale
        scores = tl.where(rn[None, :] < T, scores, -float("inf"))
        scores = tl.where(rm[:, None] >= rn[None, :], scores, -float("inf"))
        new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2((scores - new[:, None]) * 1.44269504)
        shrink = tl.exp2((m - new) * 1.44269504)
        s = s * shrink + tl.sum(p, 1)
        tv = tl.load(v + base + rn[:, None] * D + rd[None, :], mask=rn[:, None] < T, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p.to(tv.dtype), tv)
        m = new
    acc = (acc / s[:, None]).to(o.dtype.element_ty)
    tl.store(o + base + rm[:, None] * D + rd[None, :], acc, mask=rm[:, None] < T)
