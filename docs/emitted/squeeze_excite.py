# Triton kernel for the task squeeze_excite, by Kernel Foundry.
# Candidate 22, generation 7, island 0, from tune.
#
# Verdict:     correct
# Verified at: probe size
# Device:      cpu
# Speed:       modelled (computed for the target h200; nothing was timed)
#   1.09 times as fast as PyTorch eager
# Track:       own_kernels
# Precision:   reference
#
# Check it again, with the task's source in task.py:
#   python -m gpu_runner evaluate task.py best.py --track own_kernels --precision reference --target h200

"""The compiler's fusion as plain Triton; matrix products and convolutions by own kernels."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def addmm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    bias_ptr,
    stride_bias_m,
    stride_bias_n,
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
    bias_ptrs = bias_ptr + row * stride_bias_m + col * stride_bias_n
    bias = tl.load(bias_ptrs, mask=inside, other=0.0).to(tl.float32)
    acc = acc + bias
    c_ptrs = c_ptr + row * stride_cm + col * stride_cn
    relu = tl.maximum(acc, 0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(c_ptrs, relu.to(c_ptr.dtype.element_ty), mask=inside)


def addmm(bias, a, b, *, out=None):
    """bias + a @ b, the bias broadcast to the product."""
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    bias = bias.expand(M, N)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)
    addmm_kernel[grid](
        a, b, out, bias, bias.stride(0), bias.stride(1), M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP_M=8, num_warps=4, num_stages=3,
    )
    return out


@triton.jit
def addmm_2_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    bias_ptr,
    stride_bias_m,
    stride_bias_n,
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
    bias_ptrs = bias_ptr + row * stride_bias_m + col * stride_bias_n
    bias = tl.load(bias_ptrs, mask=inside, other=0.0).to(tl.float32)
    acc = acc + bias
    c_ptrs = c_ptr + row * stride_cm + col * stride_cn
    sigmoid = tl.sigmoid(acc)
    tl.store(c_ptrs, sigmoid.to(c_ptr.dtype.element_ty), mask=inside)


def addmm_2(bias, a, b, *, out=None):
    """bias + a @ b, the bias broadcast to the product."""
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    bias = bias.expand(M, N)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)
    addmm_2_kernel[grid](
        a, b, out, bias, bias.stride(0), bias.stride(1), M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP_M=8, num_warps=4, num_stages=3,
    )
    return out


@triton.jit
def mean_kernel(
    x_ptr,
    mean_ptr,
    height,
    width,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Fused: mean."""
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    row_mask = rows < n_rows
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    col_mask = cols < n_cols
    x = tl.load(x_ptr + (cols + height * width * rows), mask=col_mask & row_mask, other=0.0, eviction_policy="evict_first")
    total = tl.sum(x, 1)[:, None]
    mean = total / (height * width)
    tl.store(mean_ptr + rows, mean, mask=row_mask)


@triton.jit
def sigmoid_mul_kernel(x_ptr, sigmoid_ptr, output_ptr, output_stride_1, numel, BLOCK: tl.constexpr):
    """Fused: sigmoid, unsqueeze, mul."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < numel
    x = tl.load(x_ptr + offsets, mask=mask, eviction_policy="evict_first")
    sigmoid = tl.load(sigmoid_ptr + offsets // output_stride_1, mask=mask)
    output = x * sigmoid
    tl.store(output_ptr + offsets, output, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, n_hidden):
        super().__init__()
        self.squeeze = nn.Linear(channels, n_hidden)
        self.excite = nn.Linear(n_hidden, channels)

    def forward(self, x):
        n_hidden, channels = self.squeeze.weight.shape
        batch_size, _, height, width = x.shape
        mean = torch.empty((batch_size, channels), device=x.device, dtype=torch.float32)
        n_rows = mean.numel()
        n_cols = height * width
        grid = lambda META: (triton.cdiv(n_rows, META["BLOCK_ROWS"]),)
        mean_kernel[grid](
            x,
            mean,
            height,
            width,
            n_rows,
            n_cols,
            BLOCK_ROWS=2,
            BLOCK_COLS=triton.next_power_of_2(n_cols),
            num_warps=4,
        )
        relu = torch.empty((batch_size, n_hidden), device=x.device, dtype=torch.float32)
        addmm(self.squeeze.bias, mean, self.squeeze.weight.t(), out=relu)
        sigmoid = torch.empty((batch_size, channels), device=x.device, dtype=torch.float32)
        addmm_2(self.excite.bias, relu, self.excite.weight.t(), out=sigmoid)
        output = torch.empty_like(x)
        numel_3 = output.numel()
        grid = lambda META: (triton.cdiv(numel_3, META["BLOCK"]),)
        sigmoid_mul_kernel[grid](
            x, sigmoid, output, output.stride(1), numel_3, BLOCK=1024, num_warps=2
        )
        return output
