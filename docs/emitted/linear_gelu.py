# Triton kernel for the task linear_gelu, by Kernel Foundry.
# Candidate 7, generation 2, island 1, from rewrite:emulate_float32.
#
# Verdict:     correct
# Verified at: probe size
# Device:      cpu
# Speed:       modelled (computed for the target h200; nothing was timed)
#   1.46 times as fast as PyTorch eager
# Track:       own_kernels
# Precision:   reference
#
# Check it again, with the task's source in task.py:
#   python -m gpu_runner evaluate task.py best.py --track own_kernels --precision reference --target h200

"""linear_gelu: 1 kernel (product)."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_gelu_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    bias_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # Neighbouring programs share columns of b: GROUP_M rows of tiles at a time.
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first_m = (pid // (GROUP_M * tiles_n)) * GROUP_M
    group_m = tl.minimum(tiles_m - first_m, GROUP_M)
    tile_m = first_m + (pid % (GROUP_M * tiles_n)) % group_m
    tile_n = (pid % (GROUP_M * tiles_n)) // group_m

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    row, col = rows.to(tl.int64)[:, None], cols.to(tl.int64)[None, :]
    depth = tl.arange(0, BLOCK_K)
    # What lies beyond the end is read from the start instead and never stored: a load needs a mask along K alone.
    a_rows, b_cols = tl.where(row < M, row, 0), tl.where(col < N, col, 0)
    a_ptrs = a_ptr + a_rows * stride_am + depth[None, :] * stride_ak
    b_ptrs = b_ptr + depth[:, None] * stride_bk + b_cols * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=depth[None, :] < K - k, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < K - k, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    inside = (rows[:, None] < M) & (cols[None, :] < N)
    bias_ptrs = bias_ptr + cols
    bias = tl.load(bias_ptrs, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    acc += bias
    acc = 0.5 * acc * (1.0 + tl.erf(0.7071067811865476 * acc))
    c_ptrs = c_ptr + row * stride_cm + col * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def linear_gelu(a, b, bias, out=None):
    """The product of a (M, K) and b (K, N), then gelu in registers."""
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # Across the order in which this precision reads its operands a product takes two to four times as long.
    a = a if a.stride(1) == 1 else a.contiguous()
    b = b if b.stride(0) == 1 else b.t().contiguous().t()
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)
    linear_gelu_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BLOCK_M=128, BLOCK_N=256, BLOCK_K=32, GROUP_M=8, num_warps=8, num_stages=3,
    )
    return out


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return linear_gelu(x, self.linear.weight.t(), self.linear.bias)
