"""Small kernels for test_memory_safety.py: each either goes wrong on the line that says so, or must not be accused."""

import triton
import triton.language as tl


@triton.jit
def stores_beyond(o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, i)  # fault: stores_beyond


@triton.jit
def stores_before(o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK) - 1
    tl.store(o + i, i, mask=i < n)  # fault: stores_before


@triton.jit
def scalar_load(x, o, at):
    tl.store(o, tl.load(x + at))  # fault: scalar_load


@triton.jit
def gathers(x, at, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    j = tl.load(at + i, mask=i < n, other=0)
    tl.store(o + i, tl.load(x + j, mask=i < n), mask=i < n)  # fault: gathers


@triton.jit
def gathers_masked(x, at, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    j = tl.load(at + i, mask=i < n, other=1 << 30)
    good = (i < n) & (j >= 0) & (j < n)
    tl.store(o + i, tl.load(x + j, mask=good, other=0.0), mask=i < n)


@triton.jit
def adds_beyond(o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(o + i, 1.0)  # fault: adds_beyond


@triton.jit
def adds_masked(o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(o + i, 1.0, mask=i < n)


@triton.jit
def swaps_beyond(o, at):
    tl.atomic_cas(o + at, 0, 1)  # fault: swaps_beyond


@triton.jit
def block_store(o, n, BLOCK: tl.constexpr):
    p = tl.make_block_ptr(o, (n,), (1,), (0,), (BLOCK,), (0,))
    tl.store(p, tl.zeros((BLOCK,), tl.float32))  # fault: block_store


@triton.jit
def block_checked(o, n, BLOCK: tl.constexpr):
    p = tl.make_block_ptr(o, (n,), (1,), (0,), (BLOCK,), (0,))
    tl.store(p, tl.zeros((BLOCK,), tl.float32), boundary_check=(0,))


@triton.jit
def block_lies(x, o, n, BLOCK: tl.constexpr):
    p = tl.make_block_ptr(x, (2 * n,), (1,), (0,), (BLOCK,), (0,))
    v = tl.load(p, boundary_check=(0,))  # fault: block_lies
    i = tl.arange(0, BLOCK)
    tl.store(o + i, v, mask=i < n)


@triton.jit
def descriptor_checked(x, o, n, BLOCK: tl.constexpr):
    d = tl.make_tensor_descriptor(x, (n, 16), (16, 1), (BLOCK, 16))
    e = tl.make_tensor_descriptor(o, (n, 16), (16, 1), (BLOCK, 16))
    e.store([tl.program_id(0) * BLOCK, 0], d.load([tl.program_id(0) * BLOCK, 0]))


@triton.jit
def descriptor_lies(x, o, n, BLOCK: tl.constexpr):
    d = tl.make_tensor_descriptor(x, (2 * n, 16), (16, 1), (BLOCK, 16))
    v = d.load([n, 0])  # fault: descriptor_lies
    i = tl.arange(0, BLOCK)
    tl.store(o + i[:, None] * 16 + tl.arange(0, 16)[None, :], v, mask=i[:, None] < n)


@triton.jit
def host_descriptor(d, o, BLOCK: tl.constexpr):
    v = d.load([tl.program_id(0) * BLOCK, 0])
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.sum(v, 1), mask=i < 20)


@triton.jit
def rows(x, o, n, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    r = tl.program_id(0)
    v = tl.load(x + r * stride + i, mask=i < n, other=0.0)  # fault: rows
    tl.store(o + r * n + i, v, mask=i < n)


@triton.jit
def last_row_only(x, o, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + r * n + i)  # fault: last_row_only
    tl.store(o + r * n + i, v, mask=i < n)


@triton.jit
def wraps(x, o, n, far, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + (i + far) * 4, mask=i < n)  # fault: wraps
    tl.store(o + i, v, mask=i < n)


@triton.jit
def all_write(o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, tl.program_id(0).to(tl.float32))  # fault: all_write


@triton.jit
def all_write_same(o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, 3.0)


@triton.jit
def adds_without_atomics(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0)
    tl.store(o, tl.load(o) + s)  # fault: adds_without_atomics


@triton.jit
def adds_with_atomics(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))


@triton.jit
def overlapping_tiles(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * (BLOCK // 2) + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n) + tl.program_id(0)
    tl.store(o + i, v, mask=i < n)  # fault: overlapping_tiles


@triton.jit
def overlapping_but_equal(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * (BLOCK // 2) + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def shifts(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i + 1, mask=i + 1 < n, other=0.0)  # fault: shifts
    tl.store(x + i, v, mask=i < n)  # fault: shifts


@triton.jit
def stores_plainly_what_others_add(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0)
    if tl.program_id(0) == 1:
        tl.store(o, s)  # fault: stores_plainly_what_others_add
    else:
        tl.atomic_add(o, s)  # fault: stores_plainly_what_others_add


@triton.jit
def one_lane_twice(o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i // 2, i.to(tl.float32))  # fault: one_lane_twice


@triton.jit
def copies(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)  # fault: copies


@triton.jit
def accumulates(o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(o + i, mask=i < n) + 1.0, mask=i < n)  # fault: accumulates


@triton.jit
def reads_tail(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i, v, mask=i < n - 5)


@triton.jit
def double_bytes(x, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p = x.to(tl.pointer_type(tl.int64))
    tl.store(o + i, tl.load(p + i, mask=i < n))  # fault: double_bytes
