import triton
import triton.language as tl


@triton.jit
def relu(x, out, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + index, tl.maximum(tl.load(x + index), 0.0))
