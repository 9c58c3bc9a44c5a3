"""Kernels for test_compiling.py: ones that compile, and ones that do not, at a known line (marked `# fault: name`)."""

import torch
import triton
import triton.language as tl


@triton.jit
def double(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@triton.autotune(
    [
        triton.Config({"BM": 256, "BN": 128, "BK": 64}, num_stages=6, num_warps=8),
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=3, num_warps=4),
        triton.Config({"BM": 32, "BN": 64, "BK": 32}, num_stages=2, num_warps=4),
        triton.Config({"BM": 32, "BN": 32, "BK": 32}, num_stages=2, num_warps=2),
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
        ta = tl.load(a + rm[:, None] * K + rk[None, :], mask=rk[None, :] < K, other=0.0)
        tb = tl.load(b + rk[:, None] * N + rn[None, :], mask=rk[:, None] < K, other=0.0)
        acc += tl.dot(ta, tb, input_precision=P)
    keep = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=keep)


@triton.jit
def spills_in_its_loop(x, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(x + BLOCK + i)
    for k in range(n):
        a, b = tl.cumsum(b + k, 0), a * b
    tl.store(o + i, a + b)


@triton.jit
def spills_after_its_loop(x, o, n, BLOCK: tl.constexpr):
    total = 0.0
    for k in range(n):
        total += tl.load(x + k)
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i) * total, tl.load(x + BLOCK + i)
    tl.store(o + i, tl.cumsum(a, 0) + tl.cumsum(b, 0) + a * b)


@triton.jit
def helper(v):
    return tl.row_softmax(v)  # fault: in_helper


@triton.jit
def calls_helper(x, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, helper(tl.load(x + i)))


@triton.jit
def unlike_shapes(x, o, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK), tl.arange(0, 64)
    v = tl.load(x + i) + tl.load(x + j)  # fault: unlike_shapes
    tl.store(o + i, v)


@triton.jit
def unknown_name(o, BLOCK: tl.constexpr):
    tl.store(o + tl.arange(0, BLOCK), undefined_name)  # fault: unknown_name  # noqa: F821


@triton.jit
def bad_block(x, o, n):
    i = tl.arange(0, 100)  # fault: bad_block
    tl.store(o + i, tl.load(x + i))


def run_double(n):
    x, o = torch.empty(n), torch.empty(n)
    double[(triton.cdiv(n, 1024),)](x, o, n, BLOCK=1024, num_warps=8)
    double[(triton.cdiv(n, 1024),)](o, x, n, BLOCK=1024, num_warps=8)


def run_matmul(precision, dtype=torch.float32):
    a, b, c = torch.empty(2048, 1024, dtype=dtype), torch.empty(1024, 4096, dtype=dtype), None
    c = torch.empty(2048, 4096, dtype=dtype)
    grid = lambda m: (triton.cdiv(2048, m["BM"]), triton.cdiv(4096, m["BN"]))  # noqa: E731
    matmul[grid](a, b, c, 2048, 4096, 1024, P=precision)


def falls_back():
    x, o = torch.empty(128), torch.empty(128)
    try:
        calls_helper[(1,)](x, o, BLOCK=128)
    except Exception:  # noqa: BLE001
        return x + o
    return o


def run_with_registers(n):
    x, o = torch.empty(n), torch.empty(n)
    kernel = double.warmup(x, o, n, BLOCK=1024, grid=(1,))
    kernel._init_handles()
    properties = triton.runtime.driver.active.utils.get_device_properties(0)
    resident = properties["max_num_regs"] // (kernel.n_regs * 32 * kernel.metadata.num_warps)
    double[(min(properties["multiprocessor_count"] * resident, n),)](x, o, n, BLOCK=1024)


def run_warmed(n):
    x, o = torch.empty(n), torch.empty(n)
    kernel = double.warmup(x, o, n, BLOCK=512, num_warps=2, grid=(1,))
    kernel[(triton.cdiv(n, 512), 1, 1)](x, o, n, 512)
