"""The clean-up of a rewritten kernel: copies propagated, dead code removed, values used once written where they are used."""

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from gpu_runner.proposals.child.compiler_statements import (
    REDUCTIONS,
    is_constant,
    targets,
    walk,
    without,
)
from gpu_runner.proposals.child.compiler_text import Replace, Rewrite, loads, simplify_sizes

INLINE = 72
"""Longest expression that is written where its value is used instead of getting a name."""


def propagate(body: Sequence[ast.stmt], rule: Callable[[ast.expr], ast.expr | None]) -> None:
    """Copies and constants replace the names they were given, in place; `rule` rewrites what that makes possible."""
    counts = Counter(name for node in walk(body) for name in targets(node))
    values: dict[str, ast.expr] = {}
    before: dict[str, str] = {}
    for node in walk(body):
        if isinstance(node, ast.For):
            before = dict(before)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            node.value = simplify_sizes(Rewrite(rule).visit(Replace(values).visit(node.value)))
            name, value = node.targets[0].id, node.value
            if counts[name] == 1 and (known := _known(value, before, counts)):
                value = node.value = ast.Name(known, ast.Load())
            elif counts[name] == 1:
                before[ast.dump(value)] = name
            settled = isinstance(value, ast.Name) and counts[value.id] <= 1
            if counts[name] == 1 and (settled or is_constant(value)):
                values[name] = value
        elif isinstance(node, ast.Assign | ast.Expr):
            node.value = Rewrite(rule).visit(Replace(values).visit(node.value))
        elif isinstance(node, ast.For):
            node.iter = Replace(values).visit(node.iter)


def _known(value: ast.expr, before: Mapping[str, str], counts: Mapping[str, int]) -> str | None:
    """The name that already holds this value; for arithmetic on values that are set once."""
    if not isinstance(value, ast.BinOp | ast.Compare):
        return None
    name = before.get(ast.dump(value))
    in_loop = any(counts[n] > 1 for n in loads(value))
    return None if in_loop else name


def without_dead(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements whose values are read."""
    while True:
        used = Counter(name for node in body for name in loads(node))
        self_used = Counter(
            name
            for node in walk(body)
            if isinstance(node, ast.Assign)
            for name in loads(node.value)
            if name in targets(node)
        )

        def is_dead(
            node: ast.stmt, used: Counter[str] = used, own: Counter[str] = self_used
        ) -> bool:
            names = targets(node)
            alive = any(used[name] > own[name] for name in names)
            return isinstance(node, ast.Assign) and bool(names) and not alive

        if not any(is_dead(node) for node in walk(body)):
            return body
        body = without(body, is_dead)


def inlined(body: list[ast.stmt]) -> list[ast.stmt]:
    """Values used once are written where they are used, unless that makes a line hard to read."""
    used = Counter(name for node in body for name in loads(node))
    counts = Counter(name for node in walk(body) for name in targets(node))
    return _inlined(body, used, counts)


def _inlined(nodes: list[ast.stmt], used: Counter[str], counts: Counter[str]) -> list[ast.stmt]:
    """Values used once move to their use in the same block, unless that makes a line hard to read."""
    result: list[ast.stmt] = []
    waiting: dict[str, ast.Assign] = {}
    for node in nodes:
        if isinstance(node, ast.For):
            node.body = _inlined(node.body, used, counts)
            result.append(node)
            continue
        for name in list(waiting):
            if name in loads(node) and _may_inline(node, name, waiting[name].value):
                assert isinstance(node, ast.Assign | ast.Expr)
                node.value = Replace({name: waiting[name].value}).visit(node.value)
                result.remove(waiting.pop(name))
        for name in list(waiting):
            if set(targets(node)) & set(loads(waiting[name].value)):
                del waiting[name]
        result.append(node)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if used[name] == 1 and counts[name] == 1 and _is_inlineable(node.value):
                waiting[name] = node
    return result


def _may_inline(node: ast.stmt, name: str, value: ast.expr) -> bool:
    if not isinstance(node, ast.Assign | ast.Expr):
        return False
    is_store = isinstance(node, ast.Expr)
    if is_store and isinstance(node.value, ast.Call):
        stored = node.value.args[1]
        if isinstance(stored, ast.Name) and stored.id == name:
            return False
    together = len(ast.unparse(node.value)) + len(ast.unparse(value))
    limit = INLINE + 40 if is_store or _is_index(value) else INLINE
    return together <= limit


def _is_inlineable(value: ast.expr) -> bool:
    """Loads, reductions, scans and accumulators keep a line of their own."""
    kept = {"tl.load", *REDUCTIONS, "tl.zeros", "tl.full"}
    return not any(
        isinstance(n, ast.Call)
        and (ast.unparse(n.func) in kept or (isinstance(n.func, ast.Name) and n.func.id != "float"))
        for n in ast.walk(value)
    )


def _is_index(value: ast.expr) -> bool:
    return not any(isinstance(n, ast.Call | ast.Compare) for n in ast.walk(value)) and all(
        name[0] in "xyrk" for name in loads(value)
    )
