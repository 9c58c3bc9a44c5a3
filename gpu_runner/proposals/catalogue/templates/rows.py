"""Whole rows at once: elementwise operations and reductions over the last dimension of (M, N), each row kept on the chip.

Domain: float32, float16, bfloat16 in memory, float32 in registers. A program holds BLOCK_M rows of BLOCK_N columns.
Preconditions: BLOCK_N is a power of two, at least N; a row fits in registers (N up to about 32,768); the last dimension
of every full operand is contiguous.
"""


@triton.jit
def rows_kernel(
    # @arguments
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    in_rows = rows[:, None] < M
    in_cols = cols[None, :] < N
    inside = in_rows & in_cols
    # @epilogue


def rows(*operands):
    # @docstring
    # @operands
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]),)
    rows_kernel[grid](
        # @passed
        M, N,
        BLOCK_M=1, BLOCK_N=triton.next_power_of_2(N), num_warps=4,
    )
    # @return
