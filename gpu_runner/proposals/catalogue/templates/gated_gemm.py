"""Two matrix products of one left factor, joined: c = epilogue(a @ b_left, a @ b_right), any strides, any sizes.

Domain: float32, float16, bfloat16; sums in float32; c has the dtype of `out`. A tile is BLOCK_M x BLOCK_N, and
GROUP_M rows of tiles are walked together so that they share their columns in the L2 cache.
Preconditions: a and b have one dtype; BLOCK_M, BLOCK_N and BLOCK_K are powers of two, at least 16.
"""


@triton.jit
def gated_gemm_kernel(
    a_ptr,
    b_left_ptr,
    b_right_ptr,
    c_ptr,
    # @arguments
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_lk,
    stride_ln,
    stride_rk,
    stride_rn,
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
    left_ptrs = b_left_ptr + depth[:, None] * stride_lk + b_cols * stride_ln
    right_ptrs = b_right_ptr + depth[:, None] * stride_rk + b_cols * stride_rn

    left = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    right = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=depth[None, :] < K - k, other=0.0)
        b_mask = depth[:, None] < K - k
        b_left = tl.load(left_ptrs, mask=b_mask, other=0.0)
        left = tl.dot(a, b_left, left, input_precision="ieee")
        b_right = tl.load(right_ptrs, mask=b_mask, other=0.0)
        right = tl.dot(a, b_right, right, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        left_ptrs += BLOCK_K * stride_lk
        right_ptrs += BLOCK_K * stride_rk

    inside = (rows[:, None] < M) & (cols[None, :] < N)
    # @epilogue
    c_ptrs = c_ptr + row * stride_cm + col * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def gated_gemm(a, b_left, b_right, *operands, out=None):
    """What the epilogue makes of the (M, N) products of a (M, K) with b_left and b_right (K, N)."""
    M, K = a.shape
    N = b_left.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # @order
    # @operands
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)
    gated_gemm_kernel[grid](
        a, b_left, b_right, out, *operands, M, N, K,
        a.stride(0), a.stride(1), b_left.stride(0), b_left.stride(1), b_right.stride(0), b_right.stride(1),
        out.stride(0), out.stride(1),
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP_M=8, num_warps=4, num_stages=3,
    )
    return out
