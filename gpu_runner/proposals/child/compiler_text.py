"""Small operations on Python syntax that the rewriting of kernels and of the host code share."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping

LINE = 100
"""Longest line of the emitted text."""


class Replace(ast.NodeTransformer):
    """Replaces names by expressions; assignment targets stay."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return self.values[node.id]
        return node


class Rename(ast.NodeTransformer):
    """Renames identifiers wherever they stand."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self.names.get(node.arg, node.arg), node.annotation)


class Rewrite(ast.NodeTransformer):
    """Applies a function to every expression, innermost first; the function returns its replacement or None."""

    def __init__(self, rule: Callable[[ast.expr], ast.expr | None]) -> None:
        self.rule = rule

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.expr):
            return self.rule(node) or node
        return node


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def loads(node: ast.AST) -> list[str]:
    """The names read in a tree, with repetitions."""
    return [
        child.id
        for child in ast.walk(node)
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)
    ]


def same(a: ast.AST, b: ast.AST) -> bool:
    return ast.dump(a) == ast.dump(b)


def is_number(node: ast.AST, value: float | None = None) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return value is not None and is_number(node.operand, -value)
    number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return number and (value is None or node.value == value)  # type: ignore[attr-defined]


def simplify_sizes(node: ast.expr) -> ast.expr:
    """Arithmetic of sizes as a person would write it. Sizes are at least 1."""
    return Rewrite(_simpler).visit(node)


def _simpler(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Name(id="max"), args=[a, b]) if is_number(a, 1):
            return b
        case ast.BinOp(left=a, op=ast.Mult(), right=b) if is_number(a, 1):
            return b
        case ast.BinOp(left=a, op=ast.Mult(), right=b) if is_number(b, 1):
            return a
        case ast.BinOp(left=a, op=ast.Add(), right=b) if is_number(a, 0):
            return b
        case ast.BinOp(left=a, op=ast.Add(), right=b):
            return _sum(a, b)
    return None


def _sum(a: ast.expr, b: ast.expr) -> ast.expr | None:
    """`a + (-1) * b` is `a - b`, `(-1) * a + b` is `b - a`; the larger of two numbers written as a sum by its name."""
    if (positive := _negated(b)) is not None:
        return ast.BinOp(a, ast.Sub(), positive)
    if (positive := _negated(a)) is not None:
        return ast.BinOp(b, ast.Sub(), positive)
    return _extremum(a, b)


def _negated(node: ast.expr) -> ast.expr | None:
    if is_number(node) and isinstance(node, ast.UnaryOp):
        return node.operand
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as number):
            return number
        case ast.BinOp(left=factor, op=ast.Mult(), right=rest) if is_number(factor, -1):
            return rest
        case ast.BinOp(left=left, op=ast.Mult(), right=rest):
            inner = _negated(left) if isinstance(left, ast.BinOp) else None
            return ast.BinOp(inner, ast.Mult(), rest) if inner is not None else None
    return None


def _extremum(first: ast.expr, second: ast.expr) -> ast.expr | None:
    """`a * (a >= b) + b * (b > a)` is the larger of both, with `<=` and `<` the smaller."""
    match first, second:
        case (
            ast.BinOp(left=a, op=ast.Mult(), right=ast.Compare(left=x, ops=[one], comparators=[y])),
            ast.BinOp(left=b, op=ast.Mult(), right=ast.Compare(left=u, ops=[two], comparators=[v])),
        ) if same(a, x) and same(b, y) and same(b, u) and same(a, v):
            pass
        # Where `a` is 1, the product has been simplified already.
        case (
            ast.Compare(left=x, ops=[one], comparators=[y]) as compared,
            ast.BinOp(left=b, op=ast.Mult(), right=ast.Compare(left=u, ops=[two], comparators=[v])),
        ) if is_number(x, 1) and same(b, y) and same(b, u) and same(v, x):
            a = compared.left
        case _:
            return None
    if isinstance(one, ast.GtE) and isinstance(two, ast.Gt):
        if is_number(a, 1):
            return b
        return ast.Call(expression("tl.maximum"), [a, b], [])
    if isinstance(one, ast.LtE) and isinstance(two, ast.Lt):
        return ast.Call(expression("tl.minimum"), [a, b], [])
    return None


class Names:
    """Hands out identifiers, each once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)

    def new(self, wish: str) -> str:
        base = re.sub(r"\W+", "_", wish).strip("_") or "value"
        if base[0].isdigit():
            base = f"n{base}"
        name, count = base, 1
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name


def size_name(text: str) -> str:
    """A name for a size expression: `n_features // n_heads` is `n_features_per_n_heads`."""
    if match := re.fullmatch(r"([\w.]+)\.stride\((\d)\)", text):
        return f"{match[1].removeprefix('self.').replace('.', '_')}_stride_{match[2]}"
    if match := re.fullmatch(r"([\w.]+)\.numel\(\)", text):
        return f"{match[1].removeprefix('self.').replace('.', '_')}_numel"
    name = re.sub(r"\s*//\s*", "_per_", text)
    name = re.sub(r"\s*\*\s*", "_x_", name)
    name = re.sub(r"\s*\+\s*", "_plus_", re.sub(r"\s*-\s*", "_minus_", name))
    name = re.sub(r"\W+", "", name)
    if not name or len(name) > 40:
        return "size"
    return f"n{name}" if name[0].isdigit() else name


def layout(node: ast.stmt, indent: int) -> list[str]:
    """The lines of a simple statement, broken at commas or operators where one line is too long."""
    pad = " " * indent
    text = unparse(node)
    if len(pad + text) <= LINE:
        return [pad + text]
    match node:
        case ast.Expr(value=ast.Call() as call):
            return _broken_call(pad, "", call)
        case ast.Assign(targets=[target], value=ast.Call() as call):
            return _broken_call(pad, f"{unparse(target)} = ", call)
        case ast.Assign(targets=[target], value=ast.Lambda(body=ast.Tuple() as grid)):
            head = f"{pad}{unparse(target)} = lambda META: ("
            return [head, *(f"{pad}    {unparse(part)}," for part in grid.elts), f"{pad})"]
        case ast.Assign(targets=[target], value=ast.BinOp() as value):
            return _broken_sum(pad, f"{unparse(target)} = ", value)
    return [pad + text]


def unparse(node: ast.AST) -> str:
    """Source text with double quotes."""
    return re.sub(r"'([^'\"]*)'", r'"\1"', ast.unparse(node))


def _broken_call(pad: str, start: str, call: ast.Call) -> list[str]:
    items = [unparse(argument) for argument in call.args]
    items += [f"{keyword.arg}={unparse(keyword.value)}" for keyword in call.keywords]
    match call.func:
        case ast.Attribute(value=ast.Call() as inner_call, attr=attr):
            *lines, last = _broken_call(pad, start, inner_call)
            return [*lines, f"{last}.{attr}({', '.join(items)})"]
        case ast.Attribute(value=ast.BinOp() as sum_, attr=attr):
            *lines, last = _broken_sum(pad, start, sum_)
            return [*lines, f"{last}.{attr}({', '.join(items)})"]
    head = f"{pad}{start}{unparse(call.func)}("
    inner = f"{pad}    {', '.join(items)}"
    if len(inner) <= LINE:
        return [head, inner, f"{pad})"]
    return [head, *(line for item in items for line in _item(pad + "    ", item)), f"{pad})"]


def _item(pad: str, text: str) -> list[str]:
    if len(pad + text) < LINE:
        return [f"{pad}{text},"]
    node = expression(text) if "=" not in text.split("(")[0] else None
    if isinstance(node, ast.BinOp):
        lines = _terms(node)
        return [pad + lines[0], *(pad + line for line in lines[1:-1]), f"{pad}{lines[-1]},"]
    if isinstance(node, ast.Call):
        *lines, last = _broken_call(pad, "", node)
        return [*lines, f"{last},"]
    return [f"{pad}{text},"]


def _broken_sum(pad: str, start: str, value: ast.BinOp) -> list[str]:
    return [f"{pad}{start}(", *(f"{pad}    {line}" for line in _terms(value)), f"{pad})"]


def _terms(node: ast.BinOp) -> list[str]:
    """`a`, `+ b`, `- c` of a chain of the outermost operator's precedence."""
    chain = (ast.Add, ast.Sub) if isinstance(node.op, ast.Add | ast.Sub) else (type(node.op),)
    if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, chain):
        first = _terms(node.left)
    else:
        whole = ast.unparse(ast.BinOp(node.left, node.op, ast.Name("_")))
        first = [re.sub(r" \S+ _$", "", whole)]
    whole = ast.unparse(ast.BinOp(ast.Name("_"), node.op, node.right))
    return [*first, whole.removeprefix("_ ")]
