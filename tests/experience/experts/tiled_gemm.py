"""A tiled product on tensor cores: grouped tiles, masks only where needed, a pipelined loop.

Task: library/tasks/matmul_bf16.py
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(
    a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN_K: tl.constexpr
):
    tile_m, tile_n = tl.swizzle2d(
        tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 8
    )
    rm = tile_m * BM + tl.arange(0, BM)
    rn = tile_n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        inside = EVEN_K | (rk < K)
        ta = tl.load(
            a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & inside[None, :], other=0.0
        )
        tb = tl.load(
            b + rk[:, None] * N + rn[None, :], mask=inside[:, None] & (rn[None, :] < N), other=0.0
        )
        acc = tl.dot(ta, tb, acc)
    tl.store(
        out + rm[:, None] * N + rn[None, :],
        acc.to(out.dtype.element_ty),
        mask=(rm[:, None] < M) & (rn[None, :] < N),
    )


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
        product[grid](
            a, b, out, M, N, K, BM=128, BN=128, BK=64, EVEN_K=K % 64 == 0, num_warps=8, num_stages=3
        )
        return out
