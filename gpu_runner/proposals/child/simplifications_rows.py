"""The step back from a row held in registers: the same kernel in pieces of the row, which it reads again for each reduction.

The body is brought into single assignments with each reduction in a statement of its own. What a reduction or a store needs is
then computed in a loop over pieces; what follows from reductions stays between the loops.
"""

import ast
from collections import Counter

from gpu_runner.proposals.child.tuning_sites import Change, Edit, is_call_of, last_name, names_in

PIECE = 1024
_NEUTRAL = {"sum": "0.0", "max": '-float("inf")', "min": 'float("inf")'}
_JOINED = {
    "sum": "{acc} += {value}",
    "max": "{acc} = tl.maximum({acc}, {value})",
    "min": "{acc} = tl.minimum({acc}, {value})",
}


class Unfit(Exception):
    """The kernel is not of the form that can be taken apart."""


def read_again_for_each_reduction(reading):
    """Applies to kernels without loops over one block of a row, with at least one reduction of it and a store."""
    for kernel in reading.kernels.values():
        try:
            body = _in_pieces(kernel)
        except Unfit:
            continue
        first, last = kernel.node.body[0], kernel.node.body[-1]
        begin, end = reading.lines_of(first)[0], reading.lines_of(last)[1]
        indent = " " * first.col_offset
        text = "".join(f"{indent}{line}\n" for line in body)
        change = Change(
            [Edit(begin, end, text)], f"{kernel.name} reads its row again for each reduction", 1
        )
        yield kernel.name, change


def _in_pieces(kernel):
    statements = single_assignments(kernel)
    index, block = row_index(statements)
    vectors = vectors_of(statements, index)
    reductions = [name for name, value in statements if name and is_reduction(value)]
    if not reductions or not any(name is None for name, _ in statements):
        raise Unfit
    lines = []
    for name, value in statements:
        if name in vectors or name == index:
            continue
        if name in reductions:
            lines += _accumulated(name, value, statements, vectors, index, block)
        elif name is not None:
            lines.append(f"{name} = {ast.unparse(value)}")
        elif names_in(value) & (vectors | {index}):
            lines += _loop(index, block, statements_for(names_in(value), statements, vectors))
            lines.append(f"    {ast.unparse(value)}")
        else:
            lines.append(ast.unparse(value))
    return lines


def _accumulated(name, value, statements, vectors, index, block):
    kind, inner = last_name(value.func), value.args[0]
    acc = f"{name}_lanes"
    needed = statements_for(names_in(inner), statements, vectors)
    return [
        f"{acc} = tl.full(({PIECE},), {_NEUTRAL[kind]}, tl.float32)",
        *_loop(index, block, needed),
        "    " + _JOINED[kind].format(acc=acc, value=ast.unparse(inner)),
        f"{name} = tl.{kind}({acc}, axis=0)",
    ]


def _loop(index, block, needed):
    return [
        f"for start in range(0, {block}, {PIECE}):",
        f"    {index} = start + tl.arange(0, {PIECE})",
        *(f"    {name} = {ast.unparse(value)}" for name, value in needed),
    ]


def statements_for(names, statements, among, stop=()):
    """The statements for names of `among` that some names rest on, in order; what those in `stop` rest on is not followed."""
    wanted, found = set(names), []
    for name, value in reversed(statements):
        if name in wanted and name in among:
            found.append((name, value))
            wanted |= set() if name in stop else names_in(value)
    return found[::-1]


def row_index(statements):
    """The name that runs along the row, and the length of its block."""
    found = [(name, value) for name, value in statements if name and is_call_of(value, "arange")]
    if len(found) != 1 or not isinstance(found[0][1].args[1], ast.Name):
        raise Unfit
    return found[0][0], found[0][1].args[1].id


def vectors_of(statements, index):
    vectors = set()
    for name, value in statements:
        if name and not is_reduction(value) and names_in(value) & (vectors | {index}):
            vectors.add(name)
    return vectors - {index}


def is_reduction(value):
    return is_call_of(value, *_NEUTRAL) and isinstance(value.func, ast.Attribute)


def single_assignments(kernel):
    """(name, expression) for assignments, (None, call) for stores; each name assigned once, reductions apart."""
    result, versions, written = [], {}, Counter()

    def renamed(expression):
        return _Renamed(versions).visit(ast.parse(ast.unparse(expression), mode="eval").body)

    def fresh(name):
        written[name] += 1
        versions[name] = name if written[name] == 1 else f"{name}_{written[name]}"
        return versions[name]

    def add(target, expression):
        hoisted = _Hoisted(len(result))
        value = hoisted.visit(renamed(expression))
        result.extend(hoisted.found)
        result.append((fresh(target) if target else None, value))

    for node in kernel.node.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            for target, value in _parts(node):
                add(target, value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            left = ast.Name(node.target.id, ast.Load())
            add(node.target.id, ast.BinOp(left, node.op, node.value))
        elif isinstance(node, ast.Expr) and is_call_of(node.value, "store"):
            add(None, node.value)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            raise Unfit
    return result


def _parts(node):
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    pair = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
    if pair and all(isinstance(name, ast.Name) for name in target.elts):
        return list(zip((name.id for name in target.elts), value.elts, strict=True))
    raise Unfit


class _Renamed(ast.NodeTransformer):
    """Names as they are called after their latest assignment."""

    def __init__(self, versions):
        self._versions = versions

    def visit_Name(self, node):
        return ast.Name(self._versions.get(node.id, node.id), node.ctx)


class _Hoisted(ast.NodeTransformer):
    """Takes reductions out of an expression, the innermost first."""

    def __init__(self, number):
        self._number = number
        self.found = []

    def visit_Call(self, node):
        self.generic_visit(node)
        if not is_reduction(node):
            return node
        axes = [k.value for k in node.keywords if k.arg == "axis"] or node.args[1:2]
        if not axes or getattr(axes[0], "value", None) != 0:
            raise Unfit
        name = f"reduced_{self._number}_{len(self.found)}"
        self.found.append((name, node))
        return ast.Name(name, ast.Load())
