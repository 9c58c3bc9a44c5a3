"""The K largest numbers along the middle axis of x (O, N, I), in falling order, with their places.

Domain: float32, float16, bfloat16 without NaN; any strides. A program takes BLOCK_L of the O * I lines and passes over the
axis once for each of the K: it looks for the largest of those that come after the last one found, of equals the first.
Preconditions: BLOCK_N and BLOCK_L are powers of two; K is at most N; N below 2**31. Suits a K that is small beside N.
"""


@triton.jit
def top_k_kernel(
    x_ptr,
    values_ptr,
    places_ptr,
    n_lines,
    N,
    K,
    I,
    stride_o,
    stride_n,
    stride_i,
    BLOCK_L: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    lines = (tl.program_id(0) * BLOCK_L + tl.arange(0, BLOCK_L))[:, None].to(tl.int64)
    outer, inner = lines // I, lines % I
    x_base = x_ptr + outer * stride_o + inner * stride_i
    last = tl.full((BLOCK_L, 1), float("inf"), dtype=tl.float32)
    last_place = tl.full((BLOCK_L, 1), -1, dtype=tl.int32)
    for k in range(0, K):
        best = tl.full((BLOCK_L, BLOCK_N), float("-inf"), dtype=tl.float32)
        place = tl.zeros((BLOCK_L, BLOCK_N), dtype=tl.int32) + N
        for start in range(0, N, BLOCK_N):
            cols = start + tl.arange(0, BLOCK_N)[None, :]
            inside = (lines < n_lines) & (cols < N)
            x = tl.load(x_base + cols.to(tl.int64) * stride_n, mask=inside, other=float("-inf"))
            x = x.to(tl.float32)
            is_left = (x < last) | ((x == last) & (cols > last_place))
            is_better = inside & is_left & ((x > best) | (place == N))
            best = tl.where(is_better, x, best)
            place = tl.where(is_better, cols, place)
        last = tl.max(best, axis=1)[:, None]
        last_place = tl.min(tl.where(best == last, place, N), axis=1)[:, None]
        out = (outer * K + k) * I + inner
        tl.store(values_ptr + out, last, mask=lines < n_lines)
        tl.store(places_ptr + out, last_place.to(tl.int64), mask=lines < n_lines)


def top_k(x, k):
    """The k largest numbers along the middle axis of x (O, N, I) in falling order, and their places."""
    O, N, I = x.shape
    values = torch.empty((O, k, I), device=x.device, dtype=x.dtype)
    places = torch.empty((O, k, I), device=x.device, dtype=torch.int64)
    grid = lambda META: (triton.cdiv(O * I, META["BLOCK_L"]),)
    top_k_kernel[grid](
        x, values, places, O * I, N, k, I, x.stride(0), x.stride(1), x.stride(2),
        BLOCK_L=1, BLOCK_N=1024, num_warps=4,
    )
    return values, places
