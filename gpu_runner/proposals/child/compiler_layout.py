"""A rewritten kernel as text: lines that fit, addresses that can be broken, a docstring."""

import ast
import re
import textwrap
from collections.abc import Sequence

from gpu_runner.proposals.child.compiler_statements import walk
from gpu_runner.proposals.child.compiler_text import layout
from gpu_runner.proposals.child.compiler_tidy import INLINE


def function_text(
    name: str,
    operations: Sequence[str],
    parameters: Sequence[str],
    blocks: Sequence[str],
    body: Sequence[ast.stmt],
) -> str:
    """The whole function, with the operations that it fuses as its docstring."""
    arguments = [*parameters, *(f"{block}: tl.constexpr" for block in blocks)]
    head = f"def {name}({', '.join(arguments)}):"
    lines = ["@triton.jit"]
    if len(head) <= 100:
        lines.append(head)
    else:
        lines += [f"def {name}(", *_wrapped(arguments), "):"]
    lines += _docstring(operations)
    lines += _lines(body, 4)
    return "\n".join(lines)


def break_addresses(nodes: Sequence[ast.stmt]) -> None:
    for node in walk(nodes):
        if isinstance(node, ast.For):
            continue
        for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
            if ast.unparse(call.func) in ("tl.load", "tl.store"):
                call.args[0] = _flat(call.args[0])


def _flat(address: ast.expr) -> ast.expr:
    """`pointer + (a + b)` as `pointer + a + b` where it is long, so that its lines can be broken."""
    match address:
        case ast.BinOp(left=left, op=ast.Add(), right=ast.BinOp(left=a, op=ast.Add(), right=b)) if (
            len(ast.unparse(address)) > INLINE
        ):
            return ast.BinOp(_flat_sum(left, a), ast.Add(), b)
    return address


def _flat_sum(start: ast.expr, rest: ast.expr) -> ast.expr:
    if isinstance(rest, ast.BinOp) and isinstance(rest.op, ast.Add):
        return ast.BinOp(_flat_sum(start, rest.left), ast.Add(), rest.right)
    return ast.BinOp(start, ast.Add(), rest)


def _wrapped(items: Sequence[str]) -> list[str]:
    line = f"    {', '.join(items)}"
    return [line] if len(line) <= 100 else [f"    {item}," for item in items]


def _docstring(operations: Sequence[str]) -> list[str]:
    names = ", ".join(dict.fromkeys(re.sub(r"_\d+$", "", name) for name in operations))
    text = f"Fused: {names}." if names else "Elementwise operations."
    lines = textwrap.wrap(f'"""{text}"""', 95, break_long_words=False)
    if len(lines) > 1:
        lines[-1:] = [lines[-1].removesuffix('"""'), '"""']
    return [f"    {line}" for line in lines]


def _lines(nodes: Sequence[ast.stmt], indent: int) -> list[str]:
    lines = []
    for node in nodes:
        if isinstance(node, ast.For):
            head = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}:"
            lines += [" " * indent + head, *_lines(node.body, indent + 4)]
        else:
            lines += layout(ast.fix_missing_locations(node), indent)
    return lines
