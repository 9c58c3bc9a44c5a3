"""Rewrites of arithmetic that stay within the task's tolerance and precision policy."""

import ast

from gpu_runner.proposals.child.tuning_sites import Change, is_call_of


def use_tf32(reading):
    """Let float32 products run on tensor cores; only for tasks whose policy permits TF32."""
    edits, kernels = [], []
    for kernel in reading.kernels.values():
        for call in ast.walk(kernel.node):
            if not is_call_of(call, "dot"):
                continue
            for keyword in call.keywords:
                exact = isinstance(keyword.value, ast.Constant) and keyword.value.value == "ieee"
                if keyword.arg == "input_precision" and exact:
                    edits.append(reading.replace(keyword.value, '"tf32"'))
                    kernels.append(kernel.name)
    if edits:
        yield Change(edits, f"use TF32 tensor cores in {', '.join(dict.fromkeys(kernels))}", 2.5)


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
