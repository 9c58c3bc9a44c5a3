"""A case of the suite: a broken or slow candidate, and the finding that its diagnosis must lead with."""

from dataclasses import dataclass
from typing import Any

MARK = "  # HERE"
HEAD = """import torch
import torch.nn as nn
import triton
import triton.language as tl

"""


@dataclass(frozen=True)
class Case:
    """The lead's line is the marked one (any line where nothing is marked); the rest must be as stated.

    Args:
        cause: `evidence["cause"]`, None where any will do.
        region: words that `location.region` must contain.
        says: words that title, suggestion or evidence must contain, for the one fact that a repair needs.
    """

    name: str
    reference: str
    candidate: str
    kind: str
    cause: str | None = None
    region: str = ""
    says: str = ""
    track: str = "own_kernels"

    @property
    def lines(self) -> frozenset[int]:
        lines = self.candidate.splitlines()
        return frozenset(i for i, line in enumerate(lines, 1) if line.endswith(MARK.strip()))


def task(forward: str, *inputs: str, init: str = "", sizes: str = "", arguments: str = "") -> str:
    """A reference whose forward returns an expression of its inputs x, w, ...

    Args:
        inputs: an expression each, named x, w, b in this order.
        init: lines of the constructor, which takes `arguments`.
        sizes: module-level integers, from which a probe is derived.
    """
    names = ", ".join("xwb"[: len(inputs)])
    built = "".join(f"        {line}\n" for line in init.splitlines())
    constructor = f"    def __init__(self):\n        super().__init__()\n{built}\n" if init else ""
    return (
        f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n{sizes}\n"
        f"class Model(nn.Module):\n{constructor}    def forward(self, {names}):\n"
        f"        return {forward}\n\n"
        f"def get_inputs():\n    return [{', '.join(inputs)}]\n\ndef get_init_inputs():\n    return []\n"
    )


def candidate(kernels: str, forward: str, *, names: str = "x", init: str = "") -> str:
    """A `ModelNew` with these kernels whose forward has these lines."""
    lines = "".join(f"        {line}\n" for line in forward.strip().splitlines())
    built = "".join(f"        {line}\n" for line in init.splitlines())
    constructor = f"    def __init__(self):\n        super().__init__()\n{built}\n" if init else ""
    return (
        f"{HEAD}{kernels.strip()}\n\n\nclass ModelNew(nn.Module):\n{constructor}"
        f"    def forward(self, {names}):\n{lines}"
    )


def pointwise(body: str, forward: str = "", **more: Any) -> str:
    """A candidate of one kernel over blocks of 256 elements: x, y, n; offsets are `i`."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    kernel = (
        "@triton.jit\ndef own(x, y, n, BLOCK: tl.constexpr):\n"
        f"    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n{lines}"
    )
    launch = (
        "y = torch.empty_like(x)\n"
        "own[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\nreturn y"
    )
    return candidate(more.pop("before", "") + kernel, forward or launch, **more)


def rows(body: str, out: str = "torch.empty_like(x)", block: str = "", **more: Any) -> str:
    """A candidate of one program a row: x, y, n (the row's length); columns are `c`, the row is `row`."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    size = block or "triton.next_power_of_2(x.shape[1])"
    kernel = (
        "@triton.jit\ndef own(x, y, n, BLOCK: tl.constexpr):\n"
        f"    row = tl.program_id(0)\n    c = tl.arange(0, BLOCK)\n{lines}"
    )
    launch = f"y = {out}\nown[(x.shape[0],)](x, y, x.shape[1], BLOCK={size})\nreturn y"
    return candidate(kernel, launch, **more)


PRODUCT = """@triton.jit
def own(a, b, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (k0 + k)[None, :], mask=(m < M)[:, None] & (k0 + k < K)[None, :], other=0.0)
        right = tl.load(b + (k0 + k)[:, None] * N + n[None, :], mask=(k0 + k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc += tl.dot(left, right, input_precision="ieee")
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])
"""


def product(*changes: tuple[str, str], tiles: str = "BM=32, BN=32, BK=32", dtype: str = "") -> str:
    """A tiled matrix product of x and w with each text in it replaced; every one must be there."""
    kernel = PRODUCT
    for old, new in changes:
        assert old in kernel, old
        kernel = kernel.replace(old, new)
    return candidate(
        kernel,
        f"y = torch.empty(x.shape[0], w.shape[1]{dtype})\n"
        "grid = triton.cdiv(x.shape[0], 32), triton.cdiv(w.shape[1], 32)\n"
        f"own[grid](x, w, y, x.shape[0], w.shape[1], x.shape[1], {tiles})\nreturn y",
        names="x, w",
    )
