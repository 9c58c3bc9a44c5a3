"""Take away the sizes that nothing reads any more once a rewrite has taken away a launch."""

import ast

from gpu_runner.proposals.child.tuning_sites import Edit, Reading, applied, last_name

_SIZES = ("numel", "size", "stride", "cdiv", "next_power_of_2", "min", "max", "len")


def without_left_over(before, text):
    """A rewritten text without assignments of sizes to names whose last use the rewrite took away.

    Args:
        before: the `Reading` of the source before the rewrite: what nobody read there is the author's own and stays.
    """
    used = {function.name: _read_in(function) for function in _functions(before.tree)}
    while True:
        reading = Reading(text)
        edits = [
            Edit(*reading.lines_of(node), "")
            for function in _functions(reading.tree)
            for node in ast.walk(function)
            if _names_a_size(node)
            and node.targets[0].id in used.get(function.name, set()) - _read_in(function)
        ]
        if not edits:
            return text
        text = applied(text, edits)


def _functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _read_in(function):
    return {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _names_a_size(node):
    return (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and all(_may_be_of_size(part) for part in ast.walk(node.value))
    )


def _may_be_of_size(node):
    if isinstance(node, ast.Call):
        return last_name(node.func) in _SIZES
    harmless = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.operator)
    return isinstance(node, (*harmless, ast.expr_context, ast.UnaryOp, ast.unaryop))
