"""What one asks of the statements of a kernel while it is rewritten."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

REDUCTIONS = {
    "tl.sum": "total",
    "tl.max": "largest",
    "tl.min": "smallest",
    "tl.cumsum": "running_sum",
    "tl.cumprod": "running_product",
    "tl.associative_scan": "running",
    "tl.reduce": "extreme",
}
"""What to call the result of a reduction or scan."""


def walk(nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in nodes:
        yield node
        if isinstance(node, ast.For):
            yield from walk(node.body)


def without(nodes: Sequence[ast.stmt], is_dead: Callable[[ast.stmt], bool]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for node in nodes:
        if isinstance(node, ast.For):
            node.body = without(node.body, is_dead)
            if node.body:
                kept.append(node)
        elif not is_dead(node):
            kept.append(node)
    return kept


def targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        elements = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
        return [element.id for element in elements if isinstance(element, ast.Name)]
    if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def is_true(node: ast.expr) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Constant) and node.value is True


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return is_constant(node.operand)
    return isinstance(node, ast.Constant) or is_true(node) or ast.unparse(node).startswith("float(")


def calls_one_of(node: ast.expr, functions: Mapping[str, str]) -> bool:
    """Whether an expression is a call of one of the functions, perhaps indexed or cast."""
    while isinstance(node, ast.Subscript | ast.Call):
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) in functions:
                return True
            if not (isinstance(node.func, ast.Attribute) and node.func.attr == "to"):
                return False
            node = node.func.value
        else:
            node = node.value
    return False
