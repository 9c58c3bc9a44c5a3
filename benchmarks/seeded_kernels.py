"""Twenty correct kernels that `seeded_faults.py` breaks: a reference and a candidate each."""

from dataclasses import dataclass

HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n"


@dataclass(frozen=True)
class Seed:
    name: str
    reference: str
    candidate: str


def _reference(expression: str, inputs: str, sizes: str, names: str) -> str:
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
        f"{sizes}\n\nclass Model(nn.Module):\n    def forward(self, {names}):\n"
        f"        return {expression}\n\ndef get_inputs():\n    return [{inputs}]\n\n"
        "def get_init_inputs():\n    return []\n"
    )


def _candidate(kernel: str, forward: str, names: str) -> str:
    lines = "".join(f"        {line}\n" for line in forward.strip().splitlines())
    return (
        f"{HEAD}@triton.jit\n{kernel.strip()}\n\n\nclass ModelNew(nn.Module):\n"
        f"    def forward(self, {names}):\n{lines}"
    )


def _seed(
    name: str,
    expression: str,
    inputs: str,
    sizes: str,
    kernel: str,
    forward: str,
    names: str = "x",
) -> Seed:
    return Seed(
        name, _reference(expression, inputs, sizes, names), _candidate(kernel, forward, names)
    )


GRID = "ROWS = 8192\nCOLS = 4100"
TALL = "ROWS = 8200\nCOLS = 4100"
"""For kernels with a block of 8192: a size that stands in the source makes a kernel one for that size only."""
X = "torch.randn(ROWS, COLS)"


def _pointwise(name: str, expression: str, body: str) -> Seed:
    kernel = f"""
def own(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, {body}, mask=i < n)"""
    forward = """
x = x.contiguous()
y = torch.empty_like(x)
n = x.numel()
own[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024, num_warps=4)
return y"""
    return _seed(name, expression, X, GRID, kernel, forward)


def _row(name: str, expression: str, body: str, inputs: str = X, whole: bool = True) -> Seed:
    """A program a row; the row is held whole."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    kernel = f"""
def own(x_ptr, y_ptr, n, stride_r, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
{lines}"""
    out = "torch.empty_like(x)" if whole else "torch.empty(x.shape[0])"
    forward = f"""
y = {out}
own[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=8192, num_warps=8)
return y"""
    return _seed(name, expression, inputs, TALL, kernel, forward)


def _loop(name: str, expression: str, start: str, step: str, end: str, other: str) -> Seed:
    """A program a row, which is reduced in blocks."""
    kernel = f"""
def own(x_ptr, y_ptr, n, stride_r, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    acc = {start}
    for c0 in range(0, n, BLOCK):
        x = tl.load(x_ptr + r * stride_r + c0 + c, mask=c0 + c < n, other={other})
        acc = {step}
    tl.store(y_ptr + r, {end})"""
    forward = """
y = torch.empty(x.shape[0])
own[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=1024, num_warps=4)
return y"""
    return _seed(name, expression, X, GRID, kernel, forward)


def _product(name: str, expression: str, epilogue: str, dtype: str, precision: str) -> Seed:
    kernel = f"""
def own(a_ptr, b_ptr, y_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_ym, stride_yn,
        BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * stride_am + (k0 + k)[None, :] * stride_ak,
                    mask=(m < M)[:, None] & (k0 + k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + (k0 + k)[:, None] * stride_bk + n[None, :] * stride_bn,
                    mask=(k0 + k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc += tl.dot(a, b{precision})
    y = {epilogue}
    tl.store(y_ptr + m[:, None] * stride_ym + n[None, :] * stride_yn, y,
             mask=(m < M)[:, None] & (n < N)[None, :])"""
    forward = """
M, K = x.shape
N = w.shape[1]
y = torch.empty(M, N, dtype=x.dtype)
grid = triton.cdiv(M, 128), triton.cdiv(N, 128)
own[grid](x, w, y, M, N, K, x.stride(0), x.stride(1), w.stride(0), w.stride(1), y.stride(0), y.stride(1),
          BM=128, BN=128, BK=32, num_warps=8, num_stages=3)
return y"""
    made = f"torch.randn(M, K){dtype}, torch.randn(K, N){dtype}"
    return _seed(
        name,
        expression,
        made,
        "M = 2050\nN = 2060\nK = 1030",
        kernel,
        forward,
        "x, w",
    )


_ATOMIC_SUM = """
def own(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.atomic_add(y_ptr, tl.sum({value}, axis=0))"""

_ATOMIC_FORWARD = """
y = torch.zeros(1)
n = x.numel()
own[(triton.cdiv(n, 8192),)](x, y, n, BLOCK=8192, num_warps=8)
return y"""

_COLUMNS = """
def own(x_ptr, y_ptr, rows, cols, stride_r, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    x = tl.load(x_ptr + r[:, None] * stride_r + c[None, :],
                mask=(r < rows)[:, None] & (c < cols)[None, :], other=0.0).to(tl.float32)
    tl.atomic_add(y_ptr + c, tl.sum({value}, axis=0), mask=c < cols)"""

_COLUMNS_FORWARD = """
y = torch.zeros(x.shape[1])
grid = triton.cdiv(x.shape[0], 64), triton.cdiv(x.shape[1], 128)
own[grid](x, y, x.shape[0], x.shape[1], x.stride(0), BR=64, BC=128, num_warps=4)
return y"""

_TURN = """
def own(x_ptr, y_ptr, rows, cols, stride_xr, stride_yc, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    x = tl.load(x_ptr + r[:, None] * stride_xr + c[None, :],
                mask=(r < rows)[:, None] & (c < cols)[None, :], other=0.0)
    tl.store(y_ptr + c[None, :] * stride_yc + r[:, None], x * 2.0,
             mask=(r < rows)[:, None] & (c < cols)[None, :])"""

_TURN_FORWARD = """
y = torch.empty(x.shape[1], x.shape[0])
grid = triton.cdiv(x.shape[0], 64), triton.cdiv(x.shape[1], 64)
own[grid](x, y, x.shape[0], x.shape[1], x.stride(0), y.stride(0), BR=64, BC=64, num_warps=4)
return y"""

_TWO = """
def own(x_ptr, w_ptr, y_ptr, n, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    w = tl.load(w_ptr + {index}, mask=i < n, other=0.0)
    tl.store(y_ptr + i, {body}, mask=i < n)"""

_TWO_FORWARD = """
y = torch.empty_like(x)
n = x.numel()
own[(triton.cdiv(n, 1024),)](x, w, y, n, x.shape[1], BLOCK=1024, num_warps=4)
return y"""

_AT = "x_ptr + r * stride_r + c, mask=c < n"
_OUT = "y_ptr + r * stride_r + c"

SEEDS = [
    _pointwise("gelu", "F.gelu(x)", "0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))"),
    _pointwise("silu", "F.silu(x)", "x / (1.0 + tl.exp(-x))"),
    _pointwise("squared_relu", "torch.relu(x) ** 2", "tl.maximum(x, 0.0) * tl.maximum(x, 0.0)"),
    _seed(
        "row_bias",
        "x + w",
        f"{X}, torch.randn(COLS)",
        GRID,
        _TWO.format(index="i % cols", body="x + w"),
        _TWO_FORWARD,
        "x, w",
    ),
    _seed(
        "gated",
        "x * torch.sigmoid(w)",
        f"{X}, {X}",
        GRID,
        _TWO.format(index="i", body="x / (1.0 + tl.exp(-w))"),
        _TWO_FORWARD,
        "x, w",
    ),
    _row(
        "softmax",
        "torch.softmax(x, 1)",
        f"""
x = tl.load({_AT}, other=float("-inf")).to(tl.float32)
e = tl.exp(x - tl.max(x, axis=0))
tl.store({_OUT}, e / tl.sum(e, axis=0), mask=c < n)""",
    ),
    _row(
        "log_softmax",
        "torch.log_softmax(x, 1)",
        f"""
x = tl.load({_AT}, other=float("-inf")).to(tl.float32)
x = x - tl.max(x, axis=0)
tl.store({_OUT}, x - tl.log(tl.sum(tl.exp(x), axis=0)), mask=c < n)""",
    ),
    _row(
        "layer_norm",
        "F.layer_norm(x, (COLS,))",
        f"""
x = tl.load({_AT}, other=0.0).to(tl.float32)
mean = tl.sum(x, axis=0) / n
d = tl.where(c < n, x - mean, 0.0)
var = tl.sum(d * d, axis=0) / n
tl.store({_OUT}, d / tl.sqrt(var + 1e-5), mask=c < n)""",
    ),
    _row(
        "rms_norm",
        "x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6)",
        f"""
x = tl.load({_AT}, other=0.0).to(tl.float32)
scale = tl.rsqrt(tl.sum(x * x, axis=0) / n + 1e-6)
tl.store({_OUT}, x * scale, mask=c < n)""",
    ),
    _row(
        "row_maximum",
        "x.amax(1)",
        f"""
x = tl.load({_AT}, other=float("-inf"))
tl.store(y_ptr + r, tl.max(x, axis=0))""",
        "-1.0 - torch.rand(ROWS, COLS)",
        whole=False,
    ),
    _loop(
        "row_sum",
        "x.sum(1)",
        "tl.zeros((BLOCK,), tl.float32)",
        "acc + x",
        "tl.sum(acc, axis=0)",
        "0.0",
    ),
    _loop(
        "row_norm",
        "torch.linalg.vector_norm(x, dim=1)",
        "tl.zeros((BLOCK,), tl.float32)",
        "acc + x * x",
        "tl.sqrt(tl.sum(acc, axis=0))",
        "0.0",
    ),
    _loop(
        "row_logsumexp",
        "torch.logsumexp(x, 1)",
        "tl.zeros((BLOCK,), tl.float32)",
        "acc + tl.exp(x)",
        "tl.log(tl.sum(acc, axis=0))",
        'float("-inf")',
    ),
    _seed(
        "sum_of_all",
        "x.sum().reshape(1)",
        "torch.rand(ROWS, COLS)",
        TALL,
        _ATOMIC_SUM.format(value="x"),
        _ATOMIC_FORWARD,
    ),
    _seed(
        "squares_of_all",
        "(x * x).sum().reshape(1)",
        X,
        TALL,
        _ATOMIC_SUM.format(value="x * x"),
        _ATOMIC_FORWARD,
    ),
    _seed(
        "column_sum",
        "x.sum(0)",
        "torch.rand(ROWS, COLS)",
        GRID,
        _COLUMNS.format(value="x"),
        _COLUMNS_FORWARD,
    ),
    _seed("transposition", "(x * 2.0).t().contiguous()", X, GRID, _TURN, _TURN_FORWARD),
    _product("product_half", "x @ w", "acc.to(tl.float16)", ".half()", ""),
    _product("product_float", "x @ w", "acc", "", ', input_precision="ieee"'),
    _product(
        "product_relu", "torch.relu(x @ w)", "tl.maximum(acc, 0.0).to(tl.float16)", ".half()", ""
    ),
]
