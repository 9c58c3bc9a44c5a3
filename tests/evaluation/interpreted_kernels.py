"""Kernels for test_interpreter.py: right ones, and ones with a known fault at a known line (marked `# fault: name`)."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def double(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@triton.jit
def reads_beyond(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)  # fault: reads_beyond
    tl.store(o + i, v, mask=i < n)


@triton.jit
def writes_far(x, o, n, far, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i.to(tl.int64) * far, v, mask=i < n)  # fault: writes_far


@triton.jit
def reads_before(x, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i - 3, mask=i < n)  # fault: reads_before
    tl.store(o + i, v, mask=i < n)


@triton.jit
def all_write_one(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0)
    tl.store(o, total)  # fault: all_write_one


@triton.jit
def all_write_the_same(o, BLOCK: tl.constexpr):
    tl.store(o + tl.arange(0, BLOCK), 7.0)


@triton.jit
def all_add_one(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))


@triton.jit
def shifts_in_place(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i + 1, mask=i + 1 < n, other=0.0)
    tl.store(x + i, v, mask=i < n)  # fault: shifts_in_place


@triton.jit
def doubles_in_place(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@triton.jit
def last_block_sums(x, parts, counter, o, n, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = p * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + p, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))
    if tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        j = tl.arange(0, 16)
        tl.store(o, tl.sum(tl.load(parts + j, mask=j < tl.num_programs(0), other=0.0), axis=0))


@triton.jit
def row_softmax(x, o, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * n_cols + c, mask=c < n_cols, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(o + row * n_cols + c, e / tl.sum(e, axis=0), mask=c < n_cols)


@triton.jit
def unknown_function(x, o, BLOCK: tl.constexpr):
    v = tl.load(x + tl.arange(0, BLOCK))
    tl.store(o + tl.arange(0, BLOCK), tl.row_softmax(v))  # fault: unknown_function


@triton.jit
def many_functions(x, o, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    v = libdevice.tanh(v) + libdevice.pow(v, 2.0) + libdevice.erf(v) * scale.to(tl.float32)
    tl.static_print("n is", n)
    tl.device_print("v", v)
    tl.debug_barrier()
    tl.store(o + i, v + tl.math.erf(v), mask=i < n)


@triton.autotune(
    [
        triton.Config({"BM": 32, "BN": 32, "BK": 16}),
        triton.Config({"BM": 16, "BN": 64, "BK": 32}, num_warps=8),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        rk = k0 + tl.arange(0, BK)
        ta = tl.load(
            a + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < M) & (rk[None, :] < K),
            other=0.0,
        )
        tb = tl.load(
            b + rk[:, None] * N + rn[None, :],
            mask=(rk[:, None] < K) & (rn[None, :] < N),
            other=0.0,
        )
        acc += tl.dot(ta, tb, input_precision=P)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def joined(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    share = tl.where(n == 0.0, 0.0, n_b / n)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def welford(x, o, n, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    keep = c < n
    v = tl.load(x + tl.program_id(0) * n + c, mask=keep, other=0.0)
    mean, m2, count = tl.reduce((v, tl.zeros_like(v), keep.to(tl.float32)), 0, joined)
    tl.store(o + tl.program_id(0) * 2, mean)
    tl.store(o + tl.program_id(0) * 2 + 1, m2 / count)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def running_maximum(x, o, n, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    v = tl.load(x + c, mask=c < n, other=-float("inf"))
    tl.store(o + c, tl.associative_scan(v, 0, larger), mask=c < n)


@triton.jit
def bfloat16_sum(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i, mask=i < n), tl.load(y + i, mask=i < n)
    tl.store(o + i, tl.where(a > b, a + b, a * b), mask=i < n)


@triton.jit
def bfloat16_reductions(x, o, sums, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(sums, tl.sum(a, axis=0))
    tl.store(o + i, tl.cumsum(a, axis=0))


@triton.jit
def waits(flag, o):
    while tl.atomic_add(flag, 0) == 0:
        pass
    tl.store(o, 1.0)


@triton.jit
def assembly(o):
    i = tl.arange(0, 4)
    v = tl.inline_asm_elementwise(
        "add.s32 $0, $1, $2;", "=r,r,r", [i, i], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(o + i, v)


@triton.jit
def through_block_pointers(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    p = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    q = tl.make_block_ptr(o, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    for _ in range(0, N, BN):
        v = tl.load(p, boundary_check=(0, 1), padding_option="zero")
        tl.store(q, v * 2.0, boundary_check=(0, 1))
        p, q = tl.advance(p, (0, BN)), tl.advance(q, (0, BN))


@triton.jit
def block_pointer_without_check(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    p = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    v = tl.load(p)  # fault: block_pointer
    i = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(o + i, v)


@triton.jit
def through_descriptors(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, (M, N), (N, 1), (BM, BN))
    sink = tl.make_tensor_descriptor(o, (M, N), (N, 1), (BM, BN))
    row = tl.program_id(0) * BM
    sink.store((row, 0), source.load((row, 0)) + 1.0)


@triton.jit
def sums_pointed_to(pointers, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(o + tl.program_id(0), tl.sum(tl.load(p + i, mask=i < n, other=0.0), axis=0))


@triton.jit
def takes_scalars(o, flag, whole, real, NAME: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.zeros((BLOCK,), tl.float32) + whole + real.to(tl.float32)
    if flag:
        v += 100.0
    if NAME == "negative":
        v = -v
    tl.store(o + i, v)


def persistent(x, o):
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count
    assert x.is_cuda
    assert o.device.type == "cuda"
    o.record_stream(torch.cuda.current_stream())
    double[(min(programs, triton.cdiv(x.numel(), 64)),)](x, o, x.numel(), BLOCK=64)
    return torch.empty(2, device="cuda").device.type


def warmed(x, o):
    kernel = double.warmup(x, o, x.numel(), BLOCK=128, num_warps=2, grid=(1,))
    kernel._init_handles()
    assert kernel.n_regs > 0
    kernel[(triton.cdiv(x.numel(), 128), 1, 1)](x, o, x.numel())


@triton.jit
def rarer_atomics(x, o, counter, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=-float("inf"))
    tl.atomic_max(o, tl.max(v, axis=0))
    tl.atomic_xchg(o + 1, 5.0)
    tl.atomic_cas(counter, 0, 7)


@triton.jit
def adds_bfloat16(x, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(o + i, tl.load(x + i))


@triton.jit
def rereads_a_scale(x, scale, o, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        i = k + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < n, other=0.0) * tl.load(scale)
    tl.store(o, tl.sum(total, axis=0))
