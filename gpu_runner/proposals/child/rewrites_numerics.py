"""Rewrites of arithmetic that stay within the task's tolerance and precision policy."""

import ast

from gpu_runner.proposals.catalogue.render import ORDERS
from gpu_runner.proposals.child.tuning_sites import Change, Edit, is_call_of

_ORDERS = {
    line: ORDERS.get((template, "tf32"), ()) if line == exact[0] else ()
    for (template, precision), exact in ORDERS.items()
    if precision == "ieee"
    for line in exact
}
"""For each statement that lays operands out for exact arithmetic, those that take its place for tensor cores."""


def use_tf32(reading):
    """Let float32 products run on tensor cores; only for tasks whose policy permits TF32."""
    return _with_precision(reading, "tf32", "use TF32 tensor cores in {}", 2.5)


def emulate_float32(reading):
    """Compute each float32 product as three TF32 products of its leading and trailing digits, on tensor cores.

    Keeps about 21 of float32's 24 binary digits and sums in float32, so it stays within the tolerance of full float32,
    which TF32 alone, with 11, does not. Applies to float32 operands only; for others the precision means nothing.
    """
    return _with_precision(
        reading, "tf32x3", "compute float32 products of {} as three TF32 ones", 2.0
    )


def _with_precision(reading, precision, move, gain):
    edits, kernels = [], []
    for kernel in reading.kernels.values():
        for call in ast.walk(kernel.node):
            if not is_call_of(call, "dot"):
                continue
            for keyword in call.keywords:
                exact = isinstance(keyword.value, ast.Constant) and keyword.value.value == "ieee"
                if keyword.arg == "input_precision" and exact:
                    edits.append(reading.replace(keyword.value, f'"{precision}"'))
                    kernels.append(kernel.name)
    if edits:
        edits += _laid_out_for_tensor_cores(reading)
        yield Change(edits, move.format(", ".join(dict.fromkeys(kernels)))[:300], gain)


def _laid_out_for_tensor_cores(reading):
    """The catalogue's statements that lay operands out for exact arithmetic, in the order that tensor cores read."""
    for node in ast.walk(reading.tree):
        if isinstance(node, ast.Assign) and (other := _ORDERS.get(ast.unparse(node))) is not None:
            lines = "".join(f"{' ' * node.col_offset}{line}\n" for line in other)
            yield Edit(*reading.lines_of(node), lines)


def multiply_by_reciprocal(reading):
    """Divide once a row and multiply once an element: x / total becomes x * (1.0 / total).

    Applies to divisions by a name that a reduction kept as one number a row: `total = tl.sum(...)[:, None]`.
    """
    edits, kernels = [], []
    for kernel in reading.kernels.values():
        rows = {
            target.id
            for node in ast.walk(kernel.node)
            if isinstance(node, ast.Assign) and _is_row_reduction(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        found = [
            reading.replace(node, f"{reading.text(node.left)} * (1.0 / {node.right.id})")
            for node in ast.walk(kernel.node)
            if isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and isinstance(node.right, ast.Name)
            and node.right.id in rows
            and isinstance(node.left, ast.Name | ast.Call)
        ]
        edits += found
        kernels += [kernel.name] if found else []
    if edits:
        yield Change(edits, f"divide once a row in {', '.join(kernels)}"[:300], 1.02)


def _is_row_reduction(value):
    reduced = value.value if isinstance(value, ast.Subscript) else value
    return is_call_of(reduced, "sum", "max")
