"""What lanes that a mask leaves out hold on their way into a reduction, and whether it is neutral there.

A small abstract interpretation: each value is followed by what its masked lanes hold, a known number or anything. A sum
needs 0 there, a maximum minus infinity, a product 0 along its inner axis.
"""

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from gpu_runner.core.findings import Cause
from gpu_runner.diagnosis.reading import Kernel, argument, language_name

_NEUTRAL: Final = {
    "sum": 0.0,
    "xor_sum": 0.0,
    "max": -math.inf,
    "argmax": -math.inf,
    "min": math.inf,
    "argmin": math.inf,
}
_LARGE: Final = 1e4
"""Stands for infinity as a fill."""

_FUNCTIONS: Final[dict[str, Callable[[float], float]]] = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "sqrt": math.sqrt,
    "abs": abs,
    "sin": math.sin,
    "cos": math.cos,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}
_OPERATIONS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


FILLS: Final = (0.0, -math.inf, math.inf)
"""What a load could be filled with instead."""


@dataclass(frozen=True)
class Padded:
    """A value whose lanes along `axes` are partly masked off.

    Args:
        holds: what these lanes hold: as it is, then with each of `FILLS` in the load instead; None: anything.
        line: of the load.
    """

    holds: tuple[float | None, ...]
    line: int
    axes: frozenset[int]

    def mapped(self, function: Callable[[float | None], float | None]) -> "Padded":
        return replace(self, holds=tuple(function(held) for held in self.holds))


Value = Padded | float | None
"""A number, padded lanes, or None: a value without masked lanes of which nothing else is known."""


@dataclass(frozen=True)
class Leak:
    """Masked lanes that change a reduction's result, the line to mend, and the fill that would be neutral, if one would."""

    cause: Cause
    line: int
    reduction: str
    holds: float | None
    fill: float | None


def leaks(kernel: Kernel) -> list[Leak]:
    """In the order of the text."""
    reader = _Reader()
    reader.run(kernel.node.body)
    return reader.found


class _Reader:
    def __init__(self) -> None:
        self._names: dict[str, Value] = {}
        self.found: list[Leak] = []

    def run(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._names[statement.targets[0].id] = self.value(statement.value)
            elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                sides = self._names.get(name), self.value(statement.value)
                self._names[name] = _combined(statement.op, *sides)
            elif isinstance(statement, ast.For | ast.While | ast.If):
                self.run(statement.body)
                self.run(statement.orelse)
            elif isinstance(statement, ast.Expr | ast.Return) and statement.value is not None:
                self.value(statement.value)

    def value(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if (number := _constant(node)) is not None:
            return number
        if isinstance(node, ast.BinOp):
            return _combined(node.op, self.value(node.left), self.value(node.right))
        if isinstance(node, ast.UnaryOp):
            value = self.value(node.operand)
            return value.mapped(_negated) if isinstance(value, Padded) else None
        if isinstance(node, ast.Subscript):
            return self._broadcast(node)
        return self._call(node) if isinstance(node, ast.Call) else None

    def _broadcast(self, node: ast.Subscript) -> Value:
        value = self.value(node.value)
        if not isinstance(value, Padded) or not isinstance(node.slice, ast.Tuple):
            return value
        kept = [i for i, part in enumerate(node.slice.elts) if isinstance(part, ast.Slice)]
        axes = frozenset(kept[axis] for axis in value.axes if axis < len(kept))
        return replace(value, axes=axes)

    def _call(self, call: ast.Call) -> Value:
        name = language_name(call)
        if name == "load":
            return _loaded(call)
        if name == "zeros":
            return 0.0
        if name == "where" and len(call.args) == 3:
            return self._chosen(call)
        if name == "dot":
            self._product(call)
            return None
        if name in _NEUTRAL:
            return self._reduced(call, name)
        if not name and isinstance(call.func, ast.Attribute):
            return self.value(call.func.value) if call.func.attr in ("to", "cast") else None
        if name in _PICKED and len(call.args) == 2:
            return _joined(_PICKED[name], *(self.value(a) for a in call.args))
        values = [value for a in call.args if isinstance(value := self.value(a), Padded)]
        return values[0].mapped(lambda held: _applied(name, held)) if values else None

    def _chosen(self, call: ast.Call) -> Value:
        """`tl.where(mask, value, fill)`: the masked lanes hold the fill."""
        value, fill = self.value(call.args[1]), _constant(call.args[2])
        if not isinstance(value, Padded) or fill is None:
            return None
        return value.mapped(lambda held: fill)

    def _product(self, call: ast.Call) -> None:
        sides = [self.value(a) for a in call.args[:2]]
        inner = [
            side
            for side, axis in zip(sides, (1, 0), strict=False)
            if isinstance(side, Padded) and axis in side.axes
        ]
        if inner and not any(side.holds[0] == 0 for side in inner):
            self._leak(inner[0], "dot", call.lineno)

    def _reduced(self, call: ast.Call, name: str) -> Value:
        value = self.value(call.args[0]) if call.args else None
        if not isinstance(value, Padded):
            return None
        axis = _axis(call)
        gone = value.axes if axis is None else frozenset({axis})
        if gone & value.axes and not _is_neutral(name, value.holds[0]):
            self._leak(value, name, call.lineno)
        left = frozenset(0 for _ in value.axes - gone)
        return replace(value, axes=left) if left else None

    def _leak(self, value: Padded, reduction: str, line: int) -> None:
        fits = (
            f
            for f, held in zip(FILLS, value.holds[1:], strict=True)
            if _is_neutral(reduction, held)
        )
        fill = next(fits, None)
        if fill is None:
            leak = Leak(Cause.UNMASKED_REDUCTION, line, reduction, value.holds[0], None)
        else:
            leak = Leak(Cause.WRONG_FILL, value.line, reduction, value.holds[0], fill)
        self.found.append(leak)


def _axis(call: ast.Call) -> int | None:
    axis = _constant(argument(call, 1, "axis"))
    return int(axis) if axis in (0, 1) else None


def _loaded(call: ast.Call) -> Value:
    mask = argument(call, 1, "mask")
    if mask is None:
        return None
    other = argument(call, 2, "other")
    holds = 0.0 if other is None else _constant(other)
    axes = frozenset(_axes(mask)) or frozenset({0})
    return Padded((holds, *FILLS), call.lineno, axes) if holds is not None else None


def _axes(mask: ast.expr) -> Iterator[int]:
    """Along which axes a mask cuts: `[:, None]` keeps the first axis, `[None, :]` the second."""
    for node in ast.walk(mask):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            yield from (i for i, e in enumerate(node.slice.elts) if isinstance(e, ast.Slice))


def _combined(op: ast.operator, left: Value, right: Value) -> Value:
    return _joined(lambda a, b: _computed(op, a, b), left, right)


def _joined(
    function: Callable[[float | None, float | None], float | None], left: Value, right: Value
) -> Value:
    padded = [side for side in (left, right) if isinstance(side, Padded)]
    if not padded:
        return None
    axes = frozenset(axis for side in padded for axis in side.axes)
    a, b = (
        side.holds if isinstance(side, Padded) else (side,) * (len(FILLS) + 1)
        for side in (left, right)
    )
    holds = tuple(function(x, y) for x, y in zip(a, b, strict=True))
    return Padded(holds, padded[0].line, axes)


def _computed(op: ast.operator, a: float | None, b: float | None) -> float | None:
    """None where a side may be anything and that matters."""
    if isinstance(op, ast.Mult) and (a == 0 or b == 0):
        return 0.0
    if isinstance(op, ast.Div) and a == 0:
        return 0.0
    if isinstance(op, ast.Add | ast.Sub):
        if a is not None and abs(a) >= _LARGE:
            return a
        if b is not None and abs(b) >= _LARGE:
            return b if isinstance(op, ast.Add) else -b
    function = _OPERATIONS.get(type(op))
    if function is None or a is None or b is None:
        return None
    try:
        return function(a, b)
    except (ArithmeticError, ValueError):
        return None


def _negated(held: float | None) -> float | None:
    return None if held is None else -held


def _larger(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else max(a, b)


def _smaller(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else min(a, b)


_PICKED: Final = {"maximum": _larger, "minimum": _smaller}


def _applied(name: str, holds: float | None) -> float | None:
    function = _FUNCTIONS.get(name)
    if function is None or holds is None:
        return None
    try:
        return 0.0 if name in ("exp", "exp2") and holds <= -_LARGE else function(holds)
    except (ArithmeticError, ValueError):
        return None


def _is_neutral(reduction: str, holds: float | None) -> bool:
    neutral = _NEUTRAL.get(reduction, 0.0)
    if holds is None:
        return False
    return holds == neutral or (math.isinf(neutral) and holds * math.copysign(1, neutral) >= _LARGE)


def _constant(node: ast.expr | None) -> float | None:
    """The number that an expression is, `float("-inf")` and `-1e30` too."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float" and node.args:
        text = node.args[0]
        try:
            return float(text.value) if isinstance(text, ast.Constant) else None  # type: ignore[arg-type]
        except (ValueError, TypeError):
            return None
    return None
