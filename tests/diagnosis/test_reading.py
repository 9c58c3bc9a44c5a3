"""What a kernel's text says: accesses, masked lanes on their way into reductions, strides, precision."""

import math

import pytest

from gpu_runner.core.findings import Cause
from gpu_runner.diagnosis import padding, reading, strides

INF = math.inf


def kernel(*body: str) -> reading.Kernel:
    lines = "".join(f"    {line}\n" for line in body)
    (found,) = reading.kernels_of(f"@triton.jit\ndef own(x, y, n, BLOCK):\n{lines}")
    return found


LOADED = "v = tl.load(x + c, mask=c < n, other={})"
SQUARE = "v = tl.load(x + r[:, None] * n + c[None, :], mask=(c < n)[None, :], other={})"


@pytest.mark.parametrize(
    ("body", "leaks"),
    [
        ([LOADED.format("0.0"), "tl.sum(v)"], []),
        (["v = tl.load(x + c, mask=c < n)", "tl.sum(v * v)"], []),
        (["v = tl.load(x + c)", "tl.max(v)"], []),
        ([LOADED.format("1.0"), "tl.sum(v)"], [(Cause.WRONG_FILL, 3, "sum", 1.0, 0.0)]),
        ([LOADED.format("0.0"), "tl.max(v)"], [(Cause.WRONG_FILL, 3, "max", 0.0, -INF)]),
        ([LOADED.format("-1e30"), "tl.max(v)"], []),
        ([LOADED.format('float("-inf")'), "tl.sum(tl.exp(v - m))"], []),
        (
            [LOADED.format("0.0"), "tl.sum(tl.exp(v))"],
            [(Cause.WRONG_FILL, 3, "sum", 1.0, -INF)],
        ),
        (
            [LOADED.format("0.0"), "d = v - mean", "tl.sum(d * d)"],
            [(Cause.UNMASKED_REDUCTION, 5, "sum", None, None)],
        ),
        ([LOADED.format("0.0"), "d = tl.where(c < n, v - mean, 0.0)", "tl.sum(d * d)"], []),
        (
            ["a = tl.zeros((BLOCK,), tl.float32)", "for k in range(n):", "    " + LOADED.format("1.0"),
             "    a += v.to(tl.float32)", "tl.sum(a)"],
            [(Cause.WRONG_FILL, 5, "sum", 1.0, 0.0)],
        ),
        ([SQUARE.format("0.0"), "tl.max(v, axis=0)"], []),
        ([SQUARE.format("0.0"), "tl.max(v, axis=1)"], [(Cause.WRONG_FILL, 3, "max", 0.0, -INF)]),
        ([SQUARE.format("1.0"), "tl.dot(v, w)"], [(Cause.WRONG_FILL, 3, "dot", 1.0, 0.0)]),
        ([SQUARE.format("1.0"), "tl.dot(w, v)"], []),
    ],
)  # fmt: skip
def test_masked_lanes_are_followed_into_reductions(body: list[str], leaks: list[tuple]) -> None:
    found = padding.leaks(kernel(*body))
    assert [(f.cause, f.line, f.reduction, f.holds, f.fill) for f in found] == leaks


@pytest.mark.parametrize(
    ("pointer", "mask", "is_transposed"),
    [
        ("x + m[:, None] * stride_xm + k[None, :] * stride_xk", "m < M", False),
        ("x + m[:, None] * stride_xk + k[None, :] * stride_xm", "m < M", True),
        ("x + offs_m[:, None] * stride_am + (k0 + k)[None, :]", "m < M", False),
        ("x + r * stride_r + c", "c < n", False),
        ("x + c * stride_r + r", "c < n", True),
        ("x + k[:, None] * N + n[None, :]", "(k < K)[:, None] & (n < N)[None, :]", False),
        ("x + k[:, None] + n[None, :] * N", "(k < K)[:, None] & (n < N)[None, :]", True),
        ("x + i[:, None] * N + j[None, :]", "(i < N)[:, None] & (j < N)[None, :]", False),
    ],
)
def test_transposed_strides_are_seen(pointer: str, mask: str, is_transposed: bool) -> None:
    found = strides.transposed_line(kernel(f"v = tl.load({pointer}, mask={mask})"))
    assert found == (3 if is_transposed else None)


def test_a_mask_of_the_whole_tensor_does_not_end_a_row() -> None:
    body = ["row = tl.program_id(0)", "at = row * n + tl.arange(0, BLOCK)"]
    whole = kernel(*body, "v = tl.load(x + at, mask=at < n * 8)", "tl.sum(v)")
    ended = kernel(*body, "v = tl.load(x + at, mask=c < n)", "tl.sum(v)")
    assert strides.line_without_row_end(whole) == 5
    assert strides.line_without_row_end(ended) is None


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (["acc = tl.zeros((4,), tl.float32)", "tl.store(y, acc.to(tl.float16))"], None),
        (["acc = tl.zeros((4,), dtype=tl.float16)"], 3),
        (["v = 1", "v = tl.load(x).to(tl.bfloat16)"], 4),
        (['v = tl.dot(a, b, input_precision="tf32")'], 3),
    ],
)
def test_half_precision_on_the_way_is_seen(body: list[str], line: int | None) -> None:
    assert reading.half_precision_line(kernel(*body)) == line


def test_accesses_are_found_by_their_line_also_over_several() -> None:
    loop = (
        "    for k in range(4):\n        tl.store(y + k,\n            tl.load(x + k, mask=k < 3))\n"
    )
    source = f"@triton.jit\ndef own(x, y):\n{loop}"
    store, load = (reading.access_at(source, 4, "store"), reading.access_at(source, 5, "load"))
    assert store is not None
    assert load is not None
    assert (store.expression, store.mask) == ("y + k", None)
    assert (load.expression, load.loop is not None) == ("x + k", True)
    assert reading.access_at(source, 3) is None


def test_a_source_that_does_not_parse_has_no_kernels() -> None:
    assert reading.kernels_of("def f(:") == ()
