"""Batched matrix product c = epilogue(a @ b) of a (B, M, K) and b (B, K, N), any strides, any sizes.

Domain: float32, float16, bfloat16; sums in float32; c has the dtype of `out`. The batch is the second axis of the
grid, so at most 65,535 matrices; a batch stride of 0 shares one matrix among all.
Preconditions: a and b have one dtype; BLOCK_M, BLOCK_N and BLOCK_K are powers of two, at least 16.
"""


@triton.jit
def batched_gemm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    # @arguments
    M,
    N,
    K,
    stride_ab,
    stride_am,
    stride_ak,
    stride_bb,
    stride_bk,
    stride_bn,
    stride_cb,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # Neighbouring programs share columns of b: GROUP_M rows of tiles at a time.
    pid = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
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
    a_ptrs = a_ptr + batch * stride_ab + a_rows * stride_am + depth[None, :] * stride_ak
    b_ptrs = b_ptr + batch * stride_bb + depth[:, None] * stride_bk + b_cols * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=depth[None, :] < K - k, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < K - k, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    # @halves
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    # @epilogue
    c_ptrs = c_ptr + batch * stride_cb + row * stride_cm + col * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def batched_gemm(a, b, *operands, out=None):
    """The (B, M, N) products of a (B, M, K) and b (B, K, N) with their epilogue."""
    B, M, K = a.shape
    N = b.shape[2]
    if out is None:
        out = torch.empty((B, M, N), device=a.device, dtype=a.dtype)
    # @order
    # @operands
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]), B)
    batched_gemm_kernel[grid](
        a, b, out, *operands, M, N, K,
        a.stride(0), a.stride(1), a.stride(2), b.stride(0), b.stride(1), b.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP_M=8, num_warps=4, num_stages=3,
    )
    return out
