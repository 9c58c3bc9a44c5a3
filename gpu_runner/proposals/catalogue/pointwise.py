"""Triton expressions of ATen's elementwise operations on float32 values, as text."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from gpu_runner.core.graph import Argument, Node, Ref, Symbol

Texts = Sequence[str]

_UNARY: Final[dict[str, str]] = {
    "abs": "tl.abs({0})",
    "erf": "tl.erf({0})",
    "exp": "tl.exp({0})",
    "hardsigmoid": "tl.minimum(tl.maximum({0} / 6.0 + 0.5, 0.0), 1.0)",
    "hardswish": "{0} * tl.minimum(tl.maximum({0} / 6.0 + 0.5, 0.0), 1.0)",
    "log": "tl.log({0})",
    "log1p": "tl.log(1.0 + {0})",
    "log_sigmoid": "tl.minimum({0}, 0.0) - tl.log(1.0 + tl.exp(-tl.abs({0})))",
    "mish": "{0} * (2.0 * tl.sigmoid(2.0 * tl.where({0} > 20.0, {0}, tl.log(1.0 + tl.exp({0})))) - 1.0)",
    "neg": "-{0}",
    "reciprocal": "1.0 / {0}",
    "relu": "tl.maximum({0}, 0.0)",
    "relu6": "tl.minimum(tl.maximum({0}, 0.0), 6.0)",
    "rsqrt": "tl.rsqrt({0})",
    "sigmoid": "tl.sigmoid({0})",
    "silu": "{0} * tl.sigmoid({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "sqrt": "tl.sqrt({0})",
    "square": "{0} * {0}",
    "tanh": "2.0 * tl.sigmoid(2.0 * {0}) - 1.0",
}

_BINARY: Final[dict[str, str]] = {
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "tl.maximum({0}, {1})",
    "minimum": "tl.minimum({0}, {1})",
}

_COMPARISONS: Final[dict[str, str]] = {
    "gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip

_IDENTITIES: Final = frozenset("alias clone contiguous detach dropout lift_fresh_copy".split())

FLOATS: Final = frozenset(("float32", "float16", "bfloat16"))


def base_name(node: Node) -> str:
    """aten.add_.Tensor is add."""
    return node.op.removeprefix("aten.").split(".")[0].rstrip("_")


def operands(node: Node) -> list[Argument]:
    """The arguments that are values of the expression: references, and numbers in their place."""
    count = 2 if base_name(node) in (*_BINARY, *_COMPARISONS, "add", "sub", "rsub", "pow") else 1
    if base_name(node) in ("where", "masked_fill", "lerp"):
        count = 3
    return list(node.args[:count])


def expression(node: Node, value: Callable[[Argument], str]) -> str | None:
    """The text of one operation, or None for an operation that is not elementwise or not known here.

    Args:
        value: gives the text of an operand, which is a name or a literal, so that it may stand more than once.
    """
    name = base_name(node)
    if not _is_float(node) and name not in _COMPARISONS:
        return None
    if name in _UNARY:
        return _UNARY[name].format(value(node.args[0]))
    if name in _IDENTITIES or (name in ("to", "_to_copy", "float", "half", "type_as")):
        return None if name == "dropout" and node.args[2] is True else value(node.args[0])
    if name in _BINARY and len(node.args) == 2 and not node.kwargs:
        return _BINARY[name].format(*map(value, node.args))
    if name in _COMPARISONS:
        return f"{value(node.args[0])} {_COMPARISONS[name]} {value(node.args[1])}"
    special = _SPECIAL.get(name)
    return special(node, value) if special else None


def literal(argument: Argument) -> str:
    """A number as Triton text; symbols of infinity as they are."""
    if isinstance(argument, Symbol):
        return argument.symbol
    if isinstance(argument, float):
        return repr(argument)
    return repr(argument)


def _is_float(node: Node) -> bool:
    return node.dtype in FLOATS


def _keyword(node: Node, position: int, name: str, default: Argument) -> Argument:
    if len(node.args) > position:
        return node.args[position]
    return node.kwargs.get(name, default)


def _add(node: Node, value: Callable[[Argument], str]) -> str:
    return _sum(value(node.args[0]), "+", value(node.args[1]), _keyword(node, 2, "alpha", 1), value)


def _sub(node: Node, value: Callable[[Argument], str]) -> str:
    return _sum(value(node.args[0]), "-", value(node.args[1]), _keyword(node, 2, "alpha", 1), value)


def _rsub(node: Node, value: Callable[[Argument], str]) -> str:
    return _sum(value(node.args[1]), "-", value(node.args[0]), _keyword(node, 2, "alpha", 1), value)


def _sum(
    left: str, sign: str, right: str, alpha: Argument, value: Callable[[Argument], str]
) -> str:
    scaled = right if alpha == 1 else f"{value(alpha)} * {right}"
    return f"{left} {sign} {scaled}"


def _gelu(node: Node, value: Callable[[Argument], str]) -> str:
    x = value(node.args[0])
    if _keyword(node, 1, "approximate", "none") == "tanh":
        inner = f"{math.sqrt(2 / math.pi)!r} * ({x} + 0.044715 * {x} * {x} * {x})"
        return f"{x} * tl.sigmoid(2.0 * {inner})"
    return f"0.5 * {x} * (1.0 + tl.erf({math.sqrt(0.5)!r} * {x}))"


def _pow(node: Node, value: Callable[[Argument], str]) -> str | None:
    x, exponent = value(node.args[0]), node.args[1]
    if isinstance(exponent, Ref | Symbol):
        return None
    if exponent in (1, 2, 3, 4):
        return " * ".join([x] * int(exponent))
    if exponent == 0.5:
        return f"tl.sqrt({x})"
    if exponent == -0.5:
        return f"tl.rsqrt({x})"
    if exponent == -1:
        return f"1.0 / {x}"
    return None


def _clamp(node: Node, value: Callable[[Argument], str]) -> str | None:
    low = _keyword(node, 1, "min", None)
    high = _keyword(node, 2, "max", None)
    if any(isinstance(bound, Ref) for bound in (low, high)):
        return None
    text = value(node.args[0])
    if low is not None:
        text = f"tl.maximum({text}, {value(low)})"
    if high is not None:
        text = f"tl.minimum({text}, {value(high)})"
    return text


def _hardtanh(node: Node, value: Callable[[Argument], str]) -> str:
    low, high = _keyword(node, 1, "min_val", -1.0), _keyword(node, 2, "max_val", 1.0)
    return f"tl.minimum(tl.maximum({value(node.args[0])}, {value(low)}), {value(high)})"


def _clamp_min(node: Node, value: Callable[[Argument], str]) -> str:
    return f"tl.maximum({value(node.args[0])}, {value(node.args[1])})"


def _clamp_max(node: Node, value: Callable[[Argument], str]) -> str:
    return f"tl.minimum({value(node.args[0])}, {value(node.args[1])})"


def _leaky_relu(node: Node, value: Callable[[Argument], str]) -> str:
    x, slope = value(node.args[0]), value(_keyword(node, 1, "negative_slope", 0.01))
    return f"tl.where({x} > 0.0, {x}, {slope} * {x})"


def _elu(node: Node, value: Callable[[Argument], str]) -> str | None:
    x, alpha = value(node.args[0]), value(_keyword(node, 1, "alpha", 1.0))
    if len(node.args) > 2:
        return None
    return f"tl.where({x} > 0.0, {x}, {alpha} * (tl.exp({x}) - 1.0))"


def _softplus(node: Node, value: Callable[[Argument], str]) -> str | None:
    if len(node.args) > 1 or node.kwargs:
        return None
    x = value(node.args[0])
    return f"tl.where({x} > 20.0, {x}, tl.log(1.0 + tl.exp({x})))"


def _where(node: Node, value: Callable[[Argument], str]) -> str:
    return "tl.where({}, {}, {})".format(*map(value, node.args))


def _masked_fill(node: Node, value: Callable[[Argument], str]) -> str:
    x, mask, fill = map(value, node.args)
    return f"tl.where({mask}, {fill}, {x})"


_SPECIAL: Final[dict[str, Callable[[Node, Callable[[Argument], str]], str | None]]] = {
    "add": _add,
    "clamp": _clamp,
    "clamp_max": _clamp_max,
    "clamp_min": _clamp_min,
    "elu": _elu,
    "gelu": _gelu,
    "hardtanh": _hardtanh,
    "leaky_relu": _leaky_relu,
    "masked_fill": _masked_fill,
    "pow": _pow,
    "rsub": _rsub,
    "softplus": _softplus,
    "sub": _sub,
    "where": _where,
}
