"""Running sums along the middle axis of x (O, N, I).

Domain: float32, float16, bfloat16, any strides; sums in float32. A program walks the axis for BLOCK_I neighbours, BLOCK_N at a
time, and carries the last row of a tile into the next.
Preconditions: BLOCK_N and BLOCK_I are powers of two.
"""


@triton.jit
def scan_kernel(
    x_ptr,
    y_ptr,
    N,
    I,
    stride_o,
    stride_n,
    stride_i,
    BLOCK_N: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    tiles = tl.cdiv(I, BLOCK_I)
    outer = (tl.program_id(0) // tiles).to(tl.int64)
    inner = (tl.program_id(0) % tiles) * BLOCK_I + tl.arange(0, BLOCK_I)
    x_base = x_ptr + outer * stride_o + inner[None, :].to(tl.int64) * stride_i
    y_base = y_ptr + outer * N * I + inner[None, :]
    is_last = tl.arange(0, BLOCK_N)[:, None] == BLOCK_N - 1
    carry = tl.full((1, BLOCK_I), 0.0, dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        rows = (start + tl.arange(0, BLOCK_N))[:, None].to(tl.int64)
        inside = (rows < N) & (inner[None, :] < I)
        x = tl.load(x_base + rows * stride_n, mask=inside, other=0.0).to(tl.float32)
        y = tl.cumsum(x, axis=0) + carry
        tl.store(y_base + rows * I, y.to(y_ptr.dtype.element_ty), mask=inside)
        carry = tl.sum(tl.where(is_last, y, 0.0), axis=0)[None, :]


def scan(x):
    """Running sums along the middle axis of x (O, N, I)."""
    O, N, I = x.shape
    y = torch.empty((O, N, I), device=x.device, dtype=x.dtype)
    grid = lambda META: (O * triton.cdiv(I, META["BLOCK_I"]),)
    scan_kernel[grid](
        x, y, N, I, x.stride(0), x.stride(1), x.stride(2), BLOCK_N=256, BLOCK_I=16, num_warps=4
    )
    return y
