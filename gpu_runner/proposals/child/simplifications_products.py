"""Steps back from how products are computed: without matrix units, and with a softmax that looks at its row beforehand."""

import ast
import copy
import textwrap

from gpu_runner.proposals.child.simplifications_grid import constant_set, constants
from gpu_runner.proposals.child.tuning_sites import Change, Edit, is_call_of, names_in


def outer_products(reading):
    """A product of tiles becomes a sum of outer products, one column and one row in each step of the loop over them.

    A column times a row is written as a product by broadcasting: a sum over an axis would be turned into a dot again.
    """
    for launch, name, _ in constants(reading):
        kernel = launch.kernel
        dots = [node for node in ast.walk(kernel.node) if is_call_of(node, "dot")]
        loops = [node for node in ast.walk(kernel.node) if _steps_by(node, name)]
        if len(dots) != 1 or len(loops) != 1 or kernel.autotuned:
            continue
        if not any(dots[0] is node for node in ast.walk(loops[0])):
            continue
        edits = [
            *constant_set(reading, launch, name, 1),
            reading.replace(dots[0], _as_outer(reading, dots[0])),
        ]
        yield kernel.name, Change(edits, f"sums of outer products in {kernel.name}", 1)


def _steps_by(node, name):
    return (
        isinstance(node, ast.For)
        and is_call_of(node.iter, "range")
        and len(node.iter.args) == 3
        and isinstance(node.iter.args[2], ast.Name)
        and node.iter.args[2].id == name
    )


def _as_outer(reading, dot):
    left, right = (_as_float32(reading, argument) for argument in dot.args[:2])
    before = [*dot.args[2:3], *(k.value for k in dot.keywords if k.arg == "acc")]
    product = f"{left} * {right}"
    return f"{reading.text(before[0])} + {product}" if before else f"({product})"


def _as_float32(reading, operand):
    text = reading.text(operand)
    return f"{text if isinstance(operand, ast.Name) else f'({text})'}.to(tl.float32)"


def maximum_beforehand(reading):
    """A softmax that corrects its sums for each new maximum becomes two passes: the maximum first, then the sums."""
    for kernel in reading.kernels.values():
        for loop in [node for node in kernel.node.body if isinstance(node, ast.For)]:
            running = _running(loop)
            if running is None:
                continue
            first, second = _first_pass(loop, *running), _second_pass(loop, *running)
            if second is None:
                continue
            begin, end = reading.lines_of(loop)
            text = textwrap.indent(f"{first}\n{second}\n", " " * loop.col_offset)
            move = f"look for the maximum of a row beforehand in {kernel.name}"
            yield kernel.name, Change([Edit(begin, end, text)], move, 1)


def _running(loop):
    """The statement `higher = maximum(most, ...)` of a loop that ends with `most = higher`; None without it."""
    simple = [node for node in loop.body if isinstance(node, ast.Assign)]
    if len(loop.body) != sum(isinstance(n, ast.Assign | ast.AugAssign) for n in loop.body):
        return None
    for node in simple:
        if not (is_call_of(node.value, "maximum") and isinstance(node.targets[0], ast.Name)):
            continue
        higher = node.targets[0].id
        for argument in node.value.args:
            kept = [
                other
                for other in simple
                if isinstance(argument, ast.Name)
                and isinstance(other.value, ast.Name)
                and other.value.id == higher
                and ast.unparse(other.targets[0]) == argument.id
            ]
            if kept:
                return node, kept[0], argument.id
    return None


def _first_pass(loop, running, kept, most):
    wanted, found = names_in(running.value), []
    for node in reversed(loop.body[: loop.body.index(running)]):
        if _written(node) & wanted:
            found.append(node)
            wanted |= names_in(node)
    return _as_loop(loop, [*reversed(found), ast.Assign(kept.targets, running.value)])


def _second_pass(loop, running, kept, most):
    """None where a correction is used otherwise than as a factor."""
    higher = running.targets[0].id
    body = [node for node in loop.body if node not in (running, kept)]
    corrections = {
        name
        for node in body
        if isinstance(node, ast.Assign) and {most, higher} <= names_in(node.value)
        for name in _written(node) - names_in(node.value)
    }
    corrected = _Corrected(corrections, higher, most)
    kept_of_body = [
        corrected.visit(copy.deepcopy(node)) for node in body if not _written(node) & corrections
    ]
    body = [node for node in kept_of_body if node is not None]
    if not corrected.found or any(names_in(node) & corrections for node in body):
        return None
    return _as_loop(loop, body)


def _as_loop(loop, body):
    return ast.unparse(ast.fix_missing_locations(ast.For(loop.target, loop.iter, body, [])))


def _written(node):
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


class _Corrected(ast.NodeTransformer):
    """Statements without factors that correct for a higher maximum, which is known by now."""

    def __init__(self, corrections, higher, most):
        self._corrections, self._higher, self._most = corrections, higher, most
        self.found = False

    def visit_AugAssign(self, node):
        if isinstance(node.op, ast.Mult) and self._is_correction(node.value):
            return None
        return self.generic_visit(node)

    def visit_BinOp(self, node):
        if isinstance(node.op, ast.Mult) and self._is_correction(node.right):
            return self.visit(node.left)
        if isinstance(node.op, ast.Mult) and self._is_correction(node.left):
            return self.visit(node.right)
        return self.generic_visit(node)

    def visit_Name(self, node):
        return ast.Name(self._most, node.ctx) if node.id == self._higher else node

    def _is_correction(self, node):
        bare = node.value if isinstance(node, ast.Subscript) else node
        named = isinstance(bare, ast.Name) and bare.id in self._corrections
        is_it = named or names_in(bare) - {"tl"} == {self._most, self._higher}
        self.found |= is_it
        return is_it
