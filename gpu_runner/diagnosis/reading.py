"""A kernel's text, read and never run: its accesses with masks and fills, its reductions, its loops.

Only what explains an error that was observed is concluded from it; text alone convicts nobody.
"""

import ast
import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_runner.core.source import Problem, parse

REDUCTIONS: Final = frozenset("sum max min argmax argmin dot xor_sum reduce".split())
_ATOMIC = "atomic_"
_HALF: Final = frozenset({"float16", "bfloat16"})
_DEPTH: Final = 4


@dataclass(frozen=True)
class Access:
    """One tl.load, tl.store or atomic. `kind` is "load", "store" or "atomic"."""

    kind: str
    line: int
    end_line: int
    pointer: ast.expr
    mask: ast.expr | None
    other: ast.expr | None
    loop: ast.For | None

    @property
    def expression(self) -> str:
        return ast.unparse(self.pointer)


@dataclass(frozen=True)
class Kernel:
    """One @triton.jit function."""

    name: str
    line: int
    node: ast.FunctionDef
    accesses: tuple[Access, ...]

    @property
    def constexprs(self) -> frozenset[str]:
        """Names of the arguments that are known at compile time."""
        annotated = [a for a in self.node.args.args if a.annotation is not None]
        return frozenset(a.arg for a in annotated if "constexpr" in ast.unparse(a.annotation))  # type: ignore[arg-type]

    @property
    def loads(self) -> list[Access]:
        return [access for access in self.accesses if access.kind == "load"]

    def assigned(self, name: str) -> ast.expr | None:
        """What a name is set to, the first time."""
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign) and any(_is_named(t, name) for t in node.targets):
                return node.value
        return None

    def expanded(self, expression: ast.expr, depth: int = _DEPTH) -> ast.expr:
        """The expression with the names in it replaced by what they were set to."""
        if depth == 0:
            return expression
        return _Expander(self, depth).visit(copy.deepcopy(expression))  # type: ignore[no-any-return]

    def line_of_call(self, *names: str) -> int | None:
        """The first line that calls one of these functions of triton.language."""
        lines = [call.lineno for call in calls(self.node) if language_name(call) in names]
        return min(lines, default=None)


class _Expander(ast.NodeTransformer):
    def __init__(self, kernel: Kernel, depth: int) -> None:
        self._kernel, self._depth = kernel, depth

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._kernel.assigned(node.id)
        if value is None or any(_is_named(n, node.id) for n in ast.walk(value)):
            return node
        return self._kernel.expanded(value, self._depth - 1)


@functools.lru_cache(maxsize=32)
def kernels_of(source: str) -> tuple[Kernel, ...]:
    """The jit functions of a source in its order; none where it is out of bounds or does not parse."""
    tree = parse(source)
    if isinstance(tree, Problem):
        return ()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return tuple(
        Kernel(node.name, node.lineno, node, tuple(_accesses(node)))
        for node in sorted(functions, key=lambda node: node.lineno)
        if any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)
    )


def kernel_named(source: str, name: str | None) -> Kernel | None:
    """The kernel of that name; the only one where no name is known."""
    kernels = kernels_of(source)
    if name is None and len(kernels) == 1:
        return kernels[0]
    return next((kernel for kernel in kernels if kernel.name == name), None)


def access_at(source: str, line: int | None, kind: str = "") -> Access | None:
    """The access at a line, of that kind where one is named."""
    for kernel in kernels_of(source):
        for access in kernel.accesses:
            is_there = line is not None and access.line <= line <= access.end_line
            if is_there and kind in ("", access.kind):
                return access
    return None


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (child for child in ast.walk(node) if isinstance(child, ast.Call))


def language_name(call: ast.Call) -> str:
    """`sum` for `tl.sum(...)`; empty for what is no function of triton.language."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.attr if function.value.id in ("tl", "language") else ""
    return ""


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[position] if position < len(call.args) else None


def half_precision_line(kernel: Kernel) -> int | None:
    """Where float32 is given up before the result is stored: an accumulator or a cast in 16 bits, a product in TF32."""
    in_stores = {
        id(n)
        for call in calls(kernel.node)
        if language_name(call) == "store"
        for n in ast.walk(call)
    }
    lines = []
    for call in calls(kernel.node):
        text = [ast.unparse(a) for a in [*call.args, *(k.value for k in call.keywords)]]
        names_half = any(t.removeprefix("tl.") in _HALF for t in text)
        is_cast = isinstance(call.func, ast.Attribute) and call.func.attr == "to"
        if names_half and (not is_cast or id(call) not in in_stores):
            lines.append(call.lineno)
        if language_name(call) == "dot" and any("tf32" in t for t in text):
            lines.append(call.lineno)
    return min(lines, default=None)


def _accesses(function: ast.FunctionDef) -> Iterator[Access]:
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For)]
    for call in calls(function):
        name = language_name(call)
        if (name not in ("load", "store") and not name.startswith(_ATOMIC)) or not call.args:
            continue
        around = [loop for loop in loops if any(child is call for child in ast.walk(loop))]
        is_load = name == "load"
        yield Access(
            kind=name if name in ("load", "store") else "atomic",
            line=call.lineno,
            end_line=call.end_lineno or call.lineno,
            pointer=call.args[0],
            mask=argument(call, 1 if is_load else 2, "mask"),
            other=argument(call, 2, "other") if is_load else None,
            loop=max(around, key=lambda loop: loop.lineno, default=None),
        )


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
