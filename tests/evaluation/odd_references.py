"""References whose answers, inputs or state are unusual, each with candidates that are right and candidates that are wrong."""

from collections.abc import Iterator
from dataclasses import dataclass

KERNELS = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def _scale(x, y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, (v * factor).to(y.dtype.element_ty), mask=i < n)

def scaled(x, factor, out=None):
    x = x.contiguous()
    y = torch.empty_like(x) if out is None else out
    _scale[(max(1, triton.cdiv(x.numel(), 256)),)](x, y, x.numel(), factor, BLOCK=256)
    return y

@triton.jit
def _row_sum(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(v, 0))

def row_sum(x):
    y = x.new_empty(x.shape[0])
    _row_sum[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y

@triton.jit
def _map(x, y, n, HOW: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    if HOW == "root":
        r = tl.sqrt(v)
    elif HOW == "root of positive":
        r = tl.where(v < 0, 0.0, tl.sqrt(tl.maximum(v, 0.0)))
    elif HOW == "positive":
        r = v > 0
    elif HOW == "above half":
        r = v > 0.5
    elif HOW == "else -inf":
        r = tl.where(v > 0, v, -float("inf"))
    elif HOW == "else inf":
        r = tl.where(v > 0, v, float("inf"))
    elif HOW == "else low":
        r = tl.where(v > 0, v, -1e30)
    elif HOW == "nan to zero":
        r = tl.where(v == v, v, 0.0)
    else:
        r = v + 1
    tl.store(y + i, r.to(y.dtype.element_ty), mask=i < n)

def mapped(x, how, dtype=None):
    y = torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)
    _map[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), HOW=how, BLOCK=256)
    return y

@triton.jit
def _take(table, at, y, width, OFF: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(at + tl.program_id(0)) + OFF
    tl.store(y + tl.program_id(0) * width + i, tl.load(table + row * width + i, mask=i < width), mask=i < width)

def taken(table, at, off=0):
    y = torch.empty(at.shape[0], table.shape[1], device=table.device)
    _take[(at.shape[0],)](table, at, y, table.shape[1], OFF=off, BLOCK=16)
    return y

@triton.jit
def _argmax(x, at, value, n, BLOCK: tl.constexpr, OFF: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=-float("inf"))
    tl.store(at + tl.program_id(0), tl.argmax(v, 0) + OFF)
    tl.store(value + tl.program_id(0), tl.max(v, 0))

def maxima(x, dtype=torch.int64, off=0):
    at, value = torch.empty(x.shape[0], dtype=dtype, device=x.device), x.new_empty(x.shape[0])
    _argmax[(x.shape[0],)](x, at, value, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), OFF=off)
    return value, at

@triton.jit
def _norm(x, y, mean, var, n, UPDATE: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i * 8 + c, mask=i < n, other=0.0)
    m = tl.sum(v, 0) / n
    d = tl.where(i < n, v - m, 0.0)
    s = tl.sum(d * d, 0) / n
    if UPDATE:
        tl.store(mean + c, tl.load(mean + c) * 0.9 + m * 0.1)
        tl.store(var + c, tl.load(var + c) * 0.9 + s * n / (n - 1) * 0.1)
    tl.store(y + i * 8 + c, d / tl.sqrt(s + 1e-5), mask=i < n)

def normed(x, bn, update=True):
    y = torch.empty_like(x)
    _norm[(8,)](x, y, bn.running_mean, bn.running_var, x.shape[0], UPDATE=update, BLOCK=64)
    return y
"""

X = "torch.randn(37, 53)"
COUNT = "self.register_buffer('count', torch.zeros(()){})"
NORM = "self.bn = nn.BatchNorm1d(8, affine=False)"


@dataclass(frozen=True)
class Odd:
    """A reference's forward, and those of candidates; a wrong one with the kind that it deserves."""

    name: str
    forward: str
    right: tuple[str, ...]
    wrong: tuple[tuple[str, str], ...] = ()
    inputs: str = X
    parameters: str = "x"
    init: str = "pass"
    options: str = ""

    @property
    def task(self) -> str:
        head = "import torch\nimport torch.nn as nn\n"
        made = f"\ndef get_inputs():\n    return [{self.inputs}]\n{self.options}\n"
        return head + self._module("Model", self.forward) + made

    def candidates(self) -> Iterator[tuple[str, str, str | None]]:
        """Name, source, and the kind of its fault; None for a right one."""
        for i, forward in enumerate(self.right):
            yield f"{self.name}, right {i}", KERNELS + self._module("ModelNew", forward), None
        for i, (forward, kind) in enumerate(self.wrong):
            yield f"{self.name}, wrong {i}", KERNELS + self._module("ModelNew", forward), kind

    def _module(self, name: str, forward: str) -> str:
        body = forward if "return " in forward else f"return {forward}"
        lines = body.replace("\n", "\n        ")
        return (
            f"\nclass {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            f"        {self.init}\n\n    def forward(self, {self.parameters}):\n        {lines}\n"
        )


def _of_dtype(name: str, made: str, dtype: str) -> Odd:
    return Odd(
        name,
        "x * 3",
        ("scaled(x, 3)",),
        (("scaled(x, 2)", "values"),),
        inputs=f"{made}.to({dtype})",
    )


ODD = (
    Odd(
        "nested",
        'return {"a": (x * 2, [x * 3]), "b": {"c": x * 4}}',
        (
            '{"a": (scaled(x, 2.0), [scaled(x, 3.0)]), "b": {"c": scaled(x, 4.0)}}',
            '{"b": {"c": scaled(x, 4.0)}, "a": [scaled(x, 2.0), (scaled(x, 3.0),)]}',
        ),
        (
            ('{"a": (scaled(x, 2.0), [scaled(x, 3.0)]), "b": {"c": scaled(x, 5.0)}}', "values"),
            ('{"a": (scaled(x, 2.0), [scaled(x, 3.0)]), "b": {"d": scaled(x, 4.0)}}', "structure"),
            ('{"a": (scaled(x, 2.0), scaled(x, 3.0)), "b": {"c": scaled(x, 4.0)}}', "structure"),
        ),
    ),
    Odd(
        "plain values",
        'return x * 2, 3, True, None, "ok", 0.5',
        ('return scaled(x, 2.0), 3, True, None, "ok", 0.5',),
        (
            ('return scaled(x, 2.0), 4, True, None, "ok", 0.5', "values"),
            ('return scaled(x, 2.0), 3, False, None, "ok", 0.5', "values"),
            ('return scaled(x, 2.0), 3, True, None, "no", 0.5', "values"),
            ('return scaled(x, 2.0), 3, True, 0, "ok", 0.5', "structure"),
            ('return scaled(x, 2.0), 3, True, None, "ok", 0.6', "values"),
        ),
    ),
    Odd(
        "one number",
        "x.sum().item()",
        ("row_sum(row_sum(x).view(1, -1)).item()",),
        (("row_sum(x)[0].item()", "values"),),
    ),
    Odd(
        "shape and dtype",
        "return x * 2, x.shape, x.dtype",
        ("return scaled(x, 2.0), x.shape, x.dtype",),
        (
            ("return scaled(x, 2.0), torch.Size([1, 2]), x.dtype", "values"),
            ("return scaled(x, 2.0), x.shape, torch.float16", "values"),
        ),
    ),
    Odd(
        "tuple of one",
        "return (x * 2,)",
        ("return (scaled(x, 2.0),)",),
        (("scaled(x, 2.0)", "structure"),),
    ),
    Odd(
        "one tensor twice",
        "y = x * 2\nreturn y, y",
        ("y = scaled(x, 2.0)\nreturn y, y", "return scaled(x, 2.0), scaled(x, 2.0)"),
        (("return scaled(x, 2.0), scaled(x, 3.0)", "values"),),
    ),
    Odd(
        "bools",
        "x > 0",
        ('mapped(x, "positive", torch.bool)',),
        (
            ('mapped(x, "above half", torch.bool)', "values"),
            ('mapped(x, "positive", torch.uint8)', "dtype"),
        ),
    ),
    Odd(
        "indices",
        "x.argmax(1)",
        ("maxima(x)[1]",),
        (("maxima(x, off=1)[1]", "values"), ("maxima(x, torch.int32)[1]", "dtype")),
    ),
    Odd(
        "named tuple",
        "torch.max(x, 1)",
        ("maxima(x)",),
        (("maxima(x, off=1)", "values"), ("maxima(x)[0]", "structure")),
    ),
    Odd(
        "ties of an index",
        "torch.topk(x, 1, dim=1)",
        ("v, i = maxima(x)\nreturn v[:, None], i[:, None]",),
        (("v, i = maxima(x, off=1)\nreturn v[:, None], i[:, None]", "values"),),
    ),
    Odd(
        "complex output",
        "torch.complex(x * 2, x * 3)",
        ("torch.view_as_complex(torch.stack([scaled(x, 2.0), scaled(x, 3.0)], -1))",),
        (("torch.view_as_complex(torch.stack([scaled(x, 2.0), scaled(x, -3.0)], -1))", "values"),),
    ),
    Odd(
        "complex input",
        "x * 2",
        ("torch.view_as_complex(scaled(torch.view_as_real(x), 2.0))",),
        (("torch.view_as_complex(scaled(torch.view_as_real(x), 3.0))", "values"),),
        inputs="torch.randn(37, 53, dtype=torch.complex64)",
    ),
    Odd(
        "view",
        "return (x * 2).t()",
        ("scaled(x, 2.0).t()",),
        (
            ("scaled(x, 2.0)", "shape"),
            ("scaled(x, 2.0).view(53, 37)", "values"),
            ("scaled(x, 2.0).t().to_sparse()", "structure"),
        ),
    ),
    Odd(
        "expanded output",
        "x.sum(1, keepdim=True).expand(-1, 5)",
        ("row_sum(x)[:, None].expand(-1, 5)",),
        (("row_sum(x)[None, :5].expand(37, 5)", "values"),),
    ),
    Odd(
        "nothing beside something",
        "return x * 2, x[:0]",
        ("return scaled(x, 2.0), x.new_empty(0, 53)",),
        (
            ("return scaled(x, 2.0), x.new_empty(0, 52)", "shape"),
            ("return scaled(x, 2.5), x.new_empty(0, 53)", "values"),
        ),
    ),
    Odd(
        "empty input",
        "x * 2 + y.sum()",
        ("scaled(x, 2.0)",),
        (("scaled(x, 2.5)", "values"),),
        inputs=f"{X}, torch.empty(0, 8)",
        parameters="x, y",
    ),
    *(_of_dtype(name, X, f"torch.{name}") for name in ("float16", "bfloat16", "float64")),
    *(
        _of_dtype(name, "torch.randint(0, 100, (37, 53))", f"torch.{name}")
        for name in ("int8", "uint8", "int16", "int32", "int64")
    ),
    Odd(
        "float8",
        "(x * 2).to(torch.float8_e4m3fn)",
        ("scaled(x, 2.0, torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device))",),
        (
            (
                "scaled(x, 3.0, torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device))",
                "values",
            ),
        ),
    ),
    Odd("float16 inside", "(x.half() * 2).float()", ("scaled(x, 2.0)",)),
    Odd(
        "buffer that counts",
        "self.count += 1\nreturn x * 2",
        ("self.count += 1\nreturn scaled(x, 2.0)",),
        (("return scaled(x, 2.0)", "state"),),
        init=COUNT.format(""),
    ),
    Odd(
        "buffer that is not saved",
        "self.count += 1\nreturn x * 2",
        ("self.count += 1\nreturn scaled(x, 2.0)",),
        (("return scaled(x, 2.0)", "state"),),
        init=COUNT.format(", persistent=False"),
    ),
    Odd(
        "output that hangs on a buffer",
        "self.count += 1\nreturn x * self.count",
        ("self.count += 1\nreturn scaled(x, float(self.count))",),
        (("self.count += 1\nreturn scaled(x, 1.0)", "state"),),
        init=COUNT.format(""),
    ),
    Odd(
        "training mode",
        "self.bn(x)",
        ("self.bn.num_batches_tracked += 1\nreturn normed(x, self.bn)",),
        (
            ("self.bn.num_batches_tracked += 1\nreturn normed(x, self.bn, False)", "state"),
            ("normed(x, self.bn)", "state"),
        ),
        inputs="torch.randn(37, 8)",
        init=NORM,
    ),
    Odd(
        "input changed in place",
        "x.div_(3.0)\nreturn x + 1",
        (
            'scaled(x, 1 / 3, x)\nreturn mapped(x, "plus one")',
            'return mapped(scaled(x, 1 / 3), "plus one")',
        ),
        (
            (
                'y = scaled(x, 1 / 3)\nscaled(x, 2.0, x)\nreturn mapped(y, "plus one")',
                "input_changed",
            ),
        ),
    ),
    Odd(
        "input changed in place as declared",
        "x.div_(3.0)\nreturn x + 1",
        ('scaled(x, 1 / 3, x)\nreturn mapped(x, "plus one")',),
        (('return mapped(scaled(x, 1 / 3), "plus one")', "input_changed"),),
        options="INPLACE = True",
    ),
    Odd(
        "changed input returned",
        "return x.mul_(2.0)",
        ("scaled(x, 2.0, x)\nreturn x", "scaled(x, 2.0)"),
        (("scaled(x, 2.5)", "values"),),
    ),
    Odd(
        "shape of an input changed in place",
        "x.unsqueeze_(0)\nreturn x * 2",
        ("scaled(x, 2.0).unsqueeze(0)", "x.unsqueeze_(0)\nreturn scaled(x, 2.0)"),
        (("scaled(x, 2.0)", "shape"),),
    ),
    Odd(
        "shape of an input left as it came",
        "x * 2",
        ("y = scaled(x.t_(), 2.0)\nx.t_()\nreturn y.t()",),
        (
            ("y = scaled(x, 2.0)\nx.t_()\nreturn y", "input_changed"),
            ("y = scaled(x, 2.0)\nx.data = x.data * 0\nreturn y", "input_changed"),
        ),
    ),
    Odd(
        "gradient",
        "with torch.enable_grad():\n    x.requires_grad_()\n"
        "    (g,) = torch.autograd.grad((x * x).sum(), x)\nreturn g",
        ("scaled(x, 2.0)",),
        (("scaled(x, 3.0)", "values"),),
    ),
    Odd(
        "integers in range",
        "table[at]",
        ("taken(table, at)",),
        (("taken(table, (at + 1) % 50)", "values"), ("taken(table, at, 50)", "out_of_bounds")),
        inputs="torch.randn(50, 16), torch.randint(0, 50, (37,))",
        parameters="table, at",
    ),
    Odd(
        "NaN",
        "torch.sqrt(x)",
        ('mapped(x, "root")',),
        (('mapped(x, "root of positive")', "nan"),),
    ),
    Odd(
        "minus infinity",
        "torch.where(x > 0, x, -torch.inf)",
        ('mapped(x, "else -inf")',),
        (('mapped(x, "else inf")', "nan"), ('mapped(x, "else low")', "nan")),
    ),
    Odd(
        "NaN among the inputs",
        "x * 2",
        ("scaled(x, 2.0)",),
        (('scaled(mapped(x, "nan to zero"), 2.0)', "nan"),),
        inputs="torch.where(torch.rand(37, 53) < 0.1, torch.nan, torch.randn(37, 53))",
    ),
    Odd(
        "list of inputs",
        "[a * 2 for a in xs]",
        ("[scaled(a, 2.0) for a in xs]",),
        (("[scaled(xs[0], 2.0)] * len(xs)", "values"),),
        inputs=f"[{X}, {X}]",
        parameters="xs",
    ),
    Odd(
        "plain inputs",
        "x[:n] * factor if flag else x",
        ("scaled(x[:n], factor)",),
        (("scaled(x[:n], 2.0)", "values"),),
        inputs=f"{X}, 5, float(torch.rand(()) + 1.0), True",
        parameters="x, n, factor, flag",
    ),
    Odd(
        "transposed input",
        "x * 2",
        ("scaled(x, 2.0)",),
        (("scaled(x.t(), 2.0).reshape(37, 53)", "values"),),
        inputs="torch.randn(53, 37).t()",
    ),
    Odd(
        "expanded input and one without dimensions",
        "x * s",
        ("scaled(x, float(s))",),
        (("scaled(x, 0.7)", "values"),),
        inputs="torch.randn(37, 1).expand(37, 53), torch.randn(())",
        parameters="x, s",
    ),
    Odd(
        "parameter beside the result",
        "return x * 2, self.w",
        ("return scaled(x, 2.0), self.w",),
        (("return scaled(x, 2.0), scaled(self.w, 2.0)", "values"),),
        init="self.w = nn.Parameter(torch.randn(5))",
    ),
)
