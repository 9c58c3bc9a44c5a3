"""Elementwise operations on (M, N), in tiles.

Domain: float32, float16, bfloat16 in memory, float32 in registers. A program computes BLOCK_M rows of BLOCK_N columns.
Preconditions: the last dimension of every full operand is contiguous.
"""


@triton.jit
def elementwise_kernel(
    # @arguments
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    blocks = tl.cdiv(N, BLOCK_N)
    row_block = tl.program_id(0) // blocks
    rows = row_block.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % blocks) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = rows[:, None] < M
    in_cols = cols[None, :] < N
    inside = in_rows & in_cols
    # @epilogue


def elementwise(*operands):
    # @docstring
    # @operands
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)
    elementwise_kernel[grid](
        # @passed
        M, N,
        BLOCK_M=1, BLOCK_N=1024, num_warps=4,
    )
    # @return
