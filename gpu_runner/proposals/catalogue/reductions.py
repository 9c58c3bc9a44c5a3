"""Statements that reduce or normalise the rows of a tile, for the `rows` template.

Values of whole rows have the shape (BLOCK_M, BLOCK_N), values of one number a row (BLOCK_M, 1). Columns beyond N hold
whatever the statements before made of them, so every reduction masks its input.
"""

from collections.abc import Callable

from gpu_runner.core.graph import Argument, Node
from gpu_runner.proposals.catalogue.pointwise import base_name

Value = Callable[[Argument], str]
Result = Callable[[Node], str]


def reduction(node: Node, value: Value, result: Result) -> list[str] | None:
    """The statements of a reduction or normalisation over rows; None for any other operation."""
    name = base_name(node)
    if name in ("layer_norm", "rms_norm"):
        return _normalisation(node, value, result, centred=name == "layer_norm")
    x = value(node.args[0]) if name in (*_SIMPLE, *_SOFT, "var", "logsumexp") else ""
    if name in _SIMPLE:
        return [f"{result(node)} = {_SIMPLE[name].format(x)}"]
    if name in _SOFT:
        return _soft(x, result(node), log=name == "log_softmax")
    if name == "logsumexp":
        y = result(node)
        return [
            f"{y}_max = {_max(x)}",
            f"{y} = {y}_max + tl.log({_sum(f'tl.exp({x} - {y}_max)')})",
        ]
    if name == "var":
        correction = node.kwargs.get("correction", 1)
        y = result(node)
        return [
            f"{y}_mean = {_sum(x)} / N",
            f"{y}_centred = tl.where(in_cols, {x} - {y}_mean, 0.0)",
            f"{y} = tl.sum({y}_centred * {y}_centred, axis=1)[:, None] / (N - {correction})",
        ]
    return None


def _sum(x: str) -> str:
    return f"tl.sum(tl.where(in_cols, {x}, 0.0), axis=1)[:, None]"


def _max(x: str) -> str:
    return f'tl.max(tl.where(in_cols, {x}, float("-inf")), axis=1)[:, None]'


_SIMPLE = {
    "sum": _sum("{0}"),
    "mean": _sum("{0}") + " / N",
    "linalg_vector_norm": f"tl.sqrt({_sum('{0} * {0}')})",
    "amax": _max("{0}"),
    "amin": 'tl.min(tl.where(in_cols, {0}, float("inf")), axis=1)[:, None]',
}
_SOFT = ("softmax", "_softmax", "log_softmax")


def _soft(x: str, y: str, *, log: bool) -> list[str]:
    if log:
        return [
            f"{y} = {x} - {_max(x)}",
            f"{y} = {y} - tl.log({_sum(f'tl.exp({y})')})",
        ]
    return [
        f"{y} = tl.where(in_cols, tl.exp({x} - {_max(x)}), 0.0)",
        f"{y} = {y} / tl.sum({y}, axis=1)[:, None]",
    ]


def _normalisation(node: Node, value: Value, result: Result, *, centred: bool) -> list[str]:
    x = value(node.args[0])
    weight, bias = (
        node.args[i] if len(node.args) > i else None for i in ((2, 3) if centred else (2, 99))
    )
    default = 1e-5 if centred else 1.1920928955078125e-07
    eps = node.args[4 if centred else 3] if len(node.args) > (4 if centred else 3) else default
    eps = default if eps is None else eps
    factors = "" if weight is None else f" * {value(weight)}"
    offset = "" if bias is None else f" + {value(bias)}"
    epsilon = value(eps)
    y = result(node)
    lines = []
    if centred:
        lines.append(f"{y}_mean = {_sum(x)} / N")
        x = f"{x} - {y}_mean"
    return [
        *lines,
        f"{y} = tl.where(in_cols, {x}, 0.0)",
        f"{y}_scale = tl.rsqrt(tl.sum({y} * {y}, axis=1)[:, None] / N + {epsilon})",
        f"{y} = {y} * {y}_scale{factors}{offset}",
    ]
