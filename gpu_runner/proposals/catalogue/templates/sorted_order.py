"""The numbers along the middle axis of x (O, N, I) in rising order, of equals the first first, with their places.

Domain: float32, float16, bfloat16 without NaN; any strides. A number's place in the order is how many come before it, which
a program counts for BLOCK_M numbers, BLOCK_N others of their axis at a time.
Preconditions: BLOCK_M and BLOCK_N are powers of two; N below 2**31. Takes N * N steps: for axes of some thousands.
"""


@triton.jit
def sorted_order_kernel(
    x_ptr,
    values_ptr,
    places_ptr,
    numel,
    N,
    I,
    stride_o,
    stride_n,
    stride_i,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    offsets = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    inside = offsets < numel
    outer, row, inner = offsets // (N * I), offsets // I % N, offsets % I
    x_base = x_ptr + outer * stride_o + inner * stride_i
    value = tl.load(x_base + row * stride_n, mask=inside, other=0.0)
    rank = tl.zeros((BLOCK_M,), dtype=tl.int32)
    for start in range(0, N, BLOCK_N):
        others = start + tl.arange(0, BLOCK_N)[None, :]
        are_inside = inside[:, None] & (others < N)
        other = tl.load(
            x_base[:, None] + others.to(tl.int64) * stride_n, mask=are_inside, other=0.0
        )
        is_equal = (other == value[:, None]) & (others < row[:, None])
        is_before = are_inside & ((other < value[:, None]) | is_equal)
        rank += tl.sum(is_before.to(tl.int32), axis=1)
    out = (outer * N + rank) * I + inner
    tl.store(values_ptr + out, value, mask=inside)
    tl.store(places_ptr + out, row, mask=inside)


def sorted_order(x):
    """The numbers along the middle axis of x (O, N, I) in rising order, and their places."""
    O, N, I = x.shape
    values = torch.empty((O, N, I), device=x.device, dtype=x.dtype)
    places = torch.empty((O, N, I), device=x.device, dtype=torch.int64)
    grid = lambda META: (triton.cdiv(x.numel(), META["BLOCK_M"]),)
    sorted_order_kernel[grid](
        x, values, places, x.numel(), N, I, x.stride(0), x.stride(1), x.stride(2),
        BLOCK_M=64, BLOCK_N=64, num_warps=4,
    )
    return values, places
