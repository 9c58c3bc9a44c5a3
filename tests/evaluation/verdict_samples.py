"""One small candidate per verdict and kind, for three small tasks."""

from dataclasses import dataclass

HEAD = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)

def doubled(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y
"""

DOUBLE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2.0

def get_inputs():
    return [torch.randn(37, 53)]
"""

LINEAR = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, n))

    def forward(self, x):
        return x @ self.weight

def get_inputs():
    return [torch.randn(32, 32)]

def get_init_inputs():
    return [32]
"""

TOP = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return (x == x.amax(dim=1, keepdim=True)).float()

def get_inputs():
    return [torch.randn(20, 64)]
"""

TURN = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()

def get_inputs():
    return [torch.randn(20, 64)]
"""

MATMUL = """
@triton.jit
def product(x, w, y, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(y + at, tl.dot(tl.load(x + at), tl.load(w + at), input_precision="PRECISION"))

class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        SEEDS
        self.NAME = nn.Parameter(torch.randn(n, n))

    def forward(self, x):
        y = torch.empty_like(x)
        product[(1,)](x, self.NAME, y, N=32)
        return y
"""


@dataclass(frozen=True)
class Sample:
    """A candidate and the one verdict and kind that it must get."""

    verdict: str
    kind: str | None
    task: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.verdict}-{self.kind}" if self.kind else self.verdict


def model(body: str, before: str = "", init: str = "") -> str:
    """A `ModelNew` whose forward has this body, after `before` at module level."""
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    constructor = (
        f"    def __init__(self):\n        super().__init__()\n        {init}\n" if init else ""
    )
    return f"{HEAD}\n{before}\nclass ModelNew(nn.Module):\n{constructor}    def forward(self, x):\n{lines}"


def matmul(name: str = "weight", precision: str = "ieee", seeds: str = "") -> str:
    source = MATMUL.replace("NAME", name).replace("PRECISION", precision)
    return HEAD + source.replace("SEEDS", seeds or "pass")


def kernel(body: str, arguments: str = "x, y, n, BLOCK: tl.constexpr") -> str:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return f"@triton.jit\ndef own({arguments}):\n    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n{lines}"


LAUNCH = """y = torch.empty_like(x)
own[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
return y"""

SAMPLES = [
    Sample("correct", None, DOUBLE, model("return doubled(x)")),
    # incorrect
    Sample("incorrect", "values", DOUBLE, model("return doubled(doubled(x))")),
    Sample("incorrect", "shape", DOUBLE, model("return doubled(x)[:-1]")),
    Sample("incorrect", "dtype", DOUBLE, model("return doubled(x).to(torch.float16)")),
    Sample(
        "incorrect",
        "device",
        DOUBLE,
        model("doubled(x)\nreturn torch.empty(x.shape, device='meta')"),
    ),
    Sample("incorrect", "structure", DOUBLE, model("return doubled(x), 1")),
    Sample(
        "incorrect",
        "nan",
        DOUBLE,
        model(
            LAUNCH,
            kernel(
                "v = tl.load(x + i, mask=i < n) * 2.0\n"
                "tl.store(y + i, tl.where(i == 7, v - v + float('nan'), v), mask=i < n)"
            ),
        ),
    ),
    Sample(
        "incorrect",
        "unwritten",
        DOUBLE,
        model(
            "y = torch.empty_like(x)\n"
            "double[(triton.cdiv(x.numel(), 256) - 1,)](x, y, x.numel(), BLOCK=256)\nreturn y"
        ),
    ),
    Sample(
        "incorrect",
        "race",
        DOUBLE,
        model(
            LAUNCH,
            kernel(
                "tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)\n"
                "j = tl.arange(0, BLOCK)\n"
                "tl.store(y + j, tl.load(x + j) * 2.0 + tl.program_id(0) * 0.5)"
            ),
        ),
    ),
    Sample(
        "incorrect",
        "input_changed",
        DOUBLE,
        model(
            "y = doubled(x)\ndouble[(1,)](x, x, 10, BLOCK=256)\nreturn y",
        ),
    ),
    Sample(
        "incorrect",
        "state",
        DOUBLE,
        model(
            "self.calls += 1\nreturn doubled(x) if self.calls == 1 else doubled(doubled(x))",
            init="self.calls = 0",
        ),
    ),
    Sample("incorrect", "parameters", LINEAR, matmul(name="other", seeds="torch.randn(3)")),
    Sample("incorrect", "precision_below_policy", LINEAR, matmul(precision="tf32")),
    Sample(
        "incorrect",
        "outside_given_distribution",
        TOP,
        HEAD
        + """
@triton.jit
def first_of_row(x, y, n, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + c)
    best = tl.argmax(v, axis=0)
    tl.store(y + tl.program_id(0) * n + c, (c == best).to(tl.float32))

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        first_of_row[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y
""",
    ),
    Sample(
        "incorrect",
        "trivial_answer",
        DOUBLE,
        model(LAUNCH, kernel("tl.store(y + i, i * 0.0, mask=i < n)")),
    ),
    # invalid
    Sample("invalid", "syntax", DOUBLE, "class ModelNew(:\n    pass\n"),
    Sample("invalid", "no_entry", DOUBLE, "class Other:\n    pass\n"),
    Sample("invalid", "too_large", DOUBLE, model("return doubled(x)") + "#" * 70_000),
    # compile_error
    Sample(
        "compile_error",
        "frontend",
        DOUBLE,
        model(LAUNCH, kernel("tl.store(y + i, tl.no_such_function(tl.load(x + i)), mask=i < n)")),
    ),
    Sample(
        "compile_error",
        "backend",
        DOUBLE,
        model(
            LAUNCH,
            kernel(
                "v = tl.load(x + i, mask=i < n)\n"
                "v = tl.inline_asm_elementwise('no.such.instruction $0, $1;', '=r,r', [v],"
                " dtype=tl.float32, is_pure=True, pack=1)\n"
                "tl.store(y + i, v, mask=i < n)"
            ),
        ),
    ),
    Sample(
        "compile_error",
        "resources",
        LINEAR,
        HEAD
        + """
@triton.jit
def product(x, w, y, K, B: tl.constexpr):
    i, k = tl.arange(0, 64), tl.arange(0, B)
    acc = tl.zeros((64, 64), tl.float32)
    for k0 in range(0, K, B):
        keep = (i < 32)[:, None] & (k0 + k < 32)[None, :]
        a = tl.load(x + i[:, None] * 32 + (k0 + k)[None, :], mask=keep, other=0.0).to(tl.float16)
        b = tl.load(w + (k0 + k)[None, :] * 32 + i[:, None], mask=keep, other=0.0).to(tl.float16)
        acc += tl.dot(a, b.trans())
    tl.store(y + i[:, None] * 32 + i[None, :], acc, mask=(i < 32)[:, None] & (i < 32)[None, :])

class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, n))

    def forward(self, x):
        y = torch.empty_like(x)
        product[(1,)](x, self.weight, y, 32, B=128, num_stages=9)
        return y
""",
    ),
    # runtime_error
    Sample("runtime_error", "exception", DOUBLE, model("raise ValueError('not today')")),
    Sample(
        "runtime_error",
        "constructor",
        DOUBLE,
        model("return doubled(x)", init="raise KeyError('weights')"),
    ),
    Sample(
        "runtime_error",
        "launch",
        DOUBLE,
        model("y = doubled(x)\ndouble[(-1,)](x, y, 0, BLOCK=256)\nreturn y"),
    ),
    Sample(
        "runtime_error",
        "out_of_bounds",
        DOUBLE,
        model(LAUNCH, kernel("tl.store(y + i + n, tl.load(x + i, mask=i < n), mask=i < n)")),
    ),
    Sample(
        "runtime_error",
        "crash",
        DOUBLE,
        model("import faulthandler\nfaulthandler._sigsegv()\nreturn doubled(x)"),
    ),
    Sample("runtime_error", "exit", DOUBLE, model("import os\nos._exit(0)")),
    # out_of_memory
    Sample(
        "out_of_memory",
        "host",
        DOUBLE,
        model("y = torch.empty(1 << 40)\ny[0] = 1.0\nreturn doubled(x)"),
    ),
    # timeout
    Sample("timeout", "import", DOUBLE, model("return doubled(x)", "while True:\n    pass")),
    Sample(
        "timeout",
        "construct",
        DOUBLE,
        model("return doubled(x)", init="import time; time.sleep(3600)"),
    ),
    Sample("timeout", "call", DOUBLE, model("while True:\n    x = doubled(x)")),
    Sample(
        "timeout",
        "compile",
        DOUBLE,
        model(
            "y = torch.empty_like(x)\nown[(1,)](x, y, x.numel(), BLOCK=2048)\nreturn y",
            kernel(
                "v = tl.load(x + i, mask=i < n)\n"
                "for k in tl.static_range(30000):\n"
                "    v = v + k * 0.0\n"
                "tl.store(y + i, v * 2.0, mask=i < n)"
            ),
        ),
    ),
    # cheating
    Sample("cheating", "torch_computes", DOUBLE, model("return doubled(x * 0.5 * 2.0)")),
    Sample("cheating", "decoy_kernel", TURN, model("return x.t().contiguous()")),
    Sample(
        "cheating",
        "uses_reference",
        DOUBLE,
        model(
            "return doubled(x)",
            "import sys\n"
            "for name, module in list(sys.modules.items()):\n"
            "    if name.startswith('gpu_runner'):\n"
            "        continue  # the evaluator's own would be tampering\n"
            "    if isinstance(vars(module).get('Model'), type) and hasattr(module, 'get_inputs'):\n"
            "        reference = module.Model()",
        ),
    ),
    Sample(
        "cheating",
        "remembered_result",
        DOUBLE,
        model(
            "if self.kept is None:\n    self.kept = doubled(x)\nreturn self.kept",
            init="self.kept = None",
        ),
    ),
    Sample(
        "cheating",
        "tampering",
        DOUBLE,
        model("return doubled(x)", "torch.equal = lambda *a: True"),
    ),
    Sample(
        "cheating",
        "forged_result",
        DOUBLE,
        model(
            "import os\n"
            "for fd in range(3, 64):\n"
            "    try:\n"
            "        os.write(fd, b'\\x00\\x00\\x00\\x02{}')\n"
            "    except OSError:\n"
            "        pass\n"
            "return doubled(x)"
        ),
    ),
    Sample(
        "cheating",
        "deferred_work",
        DOUBLE,
        model(
            "return doubled(x).as_subclass(Later)",
            "class Later(torch.Tensor):\n    pass",
        ),
    ),
]
