"""Scans along a row: with one of Triton's own, or with a combining function that the emitted module defines."""

import ast
from collections.abc import Callable, Sequence

from gpu_runner.proposals.child.compiler_statements import targets
from gpu_runner.proposals.child.compiler_text import Names, Rename, Rewrite, layout
from gpu_runner.proposals.child.compiler_tidy import inlined, propagate, without_dead

Rule = Callable[[ast.expr], ast.expr | None]
INDENT = 4
PLACES = {"index", "int64", "int32"}


def plain_scan(combine: ast.FunctionDef) -> str | None:
    """The built-in scan for a function that returns the sum or the product of its two arguments."""
    match combine.body:
        case [ast.Assign(value=ast.BinOp(op=ast.Add())), ast.Return()]:
            return "tl.cumsum"
        case [ast.Assign(value=ast.BinOp(op=ast.Mult())), ast.Return()]:
            return "tl.cumprod"
    return None


def combining_function(
    combine: ast.FunctionDef, name: str, dtypes: Sequence[str], rule: Rule
) -> str:
    """The text of a function that makes one partial result of two neighbouring ones.

    Args:
        combine: inductor's, from the values of the left part and those of the right to the values of both.
        dtypes: of the values scanned together, in their order.
        rule: what rewrites an expression of inductor's as plain Triton.
    """
    parameters = _parameters(dtypes)
    new = {argument.arg: name for argument, name in zip(combine.args.args, parameters, strict=True)}
    *statements, last = combine.body
    assert isinstance(last, ast.Return)
    assert last.value is not None
    body: list[ast.stmt] = [*statements, ast.Expr(last.value)]
    for node in body:
        assert isinstance(node, ast.Assign | ast.Expr)
        node.value = Rewrite(rule).visit(node.value)
    propagate(body, rule)
    for _ in range(3):
        body = inlined(without_dead(body))
    names = Names([*parameters, "tl", "libdevice", name])
    new |= {target: names.new("t") for node in body for target in targets(node)}
    *statements, result = (Rename(new).visit(node) for node in body)
    lines = [line for node in statements for line in layout(node, INDENT)]
    assert isinstance(result, ast.Expr)
    return "\n".join(
        [
            "@triton.jit",
            f"def {name}({', '.join(parameters)}):",
            '    """The result of two neighbouring parts of a row from those of each."""',
            *lines,
            f"    return {_returned(result.value)}",
        ]
    )


def _parameters(dtypes: Sequence[str]) -> list[str]:
    """`left, right` of one value; of several the integers are places."""
    if len(dtypes) == 1:
        return ["left", "right"]
    names = Names()
    words = [names.new("place" if dtype in PLACES else "value") for dtype in dtypes]
    return [f"{side}_{word}" for side in ("left", "right") for word in words]


def _returned(value: ast.expr) -> str:
    return (
        ast.unparse(value).removeprefix("(").removesuffix(")")
        if isinstance(value, ast.Tuple)
        else ast.unparse(value)
    )
