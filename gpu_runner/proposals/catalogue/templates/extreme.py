"""Where the largest number along the middle axis of x (O, N, I) lies, the first of equals, with the number itself.

Domain: float32, float16, bfloat16 without NaN; any strides. A program walks the axis for BLOCK_I neighbours, BLOCK_N at a time.
Preconditions: BLOCK_N and BLOCK_I are powers of two; N below 2**31.
"""


@triton.jit
def extreme_kernel(
    x_ptr,
    values_ptr,
    places_ptr,
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
    best = tl.full((BLOCK_I,), float("-inf"), dtype=tl.float32)
    place = tl.zeros((BLOCK_I,), dtype=tl.int32)
    for start in range(0, N, BLOCK_N):
        rows = start + tl.arange(0, BLOCK_N)
        inside = (rows[:, None] < N) & (inner[None, :] < I)
        x = tl.load(x_base + rows[:, None].to(tl.int64) * stride_n, mask=inside, other=float("-inf"))
        value, index = tl.max(x.to(tl.float32), axis=0, return_indices=True)
        place = tl.where(value > best, index + start, place)
        best = tl.maximum(best, value)
    out = outer * I + inner
    tl.store(values_ptr + out, best, mask=inner < I)
    tl.store(places_ptr + out, place.to(tl.int64), mask=inner < I)


def extreme(x):
    """The largest numbers along the middle axis of x (O, N, I), and the places of the first of them."""
    O, N, I = x.shape
    values = torch.empty((O, I), device=x.device, dtype=x.dtype)
    places = torch.empty((O, I), device=x.device, dtype=torch.int64)
    grid = lambda META: (O * triton.cdiv(I, META["BLOCK_I"]),)
    extreme_kernel[grid](
        x, values, places, N, I, x.stride(0), x.stride(1), x.stride(2), BLOCK_N=256, BLOCK_I=16, num_warps=4
    )
    return values, places
