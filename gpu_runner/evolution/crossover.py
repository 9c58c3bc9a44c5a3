"""Crossover without a model: one parent's code with the other's launch parameters.

Relatives share kernel names, so what one of them found out about blocks, warps and stages can be carried over to the other's
better code. Sources are only parsed and cut at the parser's positions; nothing is executed.
"""

import ast

from gpu_runner.core.source import Problem, parse

Place = tuple[str, str]
"""Where a number stands: the kernel and the keyword of its launch, or "" and a module-level name."""


def launch_parameters(source: str) -> dict[Place, int]:
    """The integer of each launch keyword and each module-level constant in capitals; those that occur once."""
    return {place: value for place, (value, _) in _numbers(source).items()}


def transplant(receiver: str, donor: str) -> str | None:
    """The receiver's source with the donor's numbers wherever both have the place; None if that changes nothing."""
    theirs = launch_parameters(donor)
    edits = [
        (node, theirs[place])
        for place, (value, node) in _numbers(receiver).items()
        if place in theirs and theirs[place] != value
    ]
    return _replaced(receiver, edits) if edits else None


def _numbers(source: str) -> dict[Place, tuple[int, ast.Constant]]:
    tree = parse(source)
    if isinstance(tree, Problem):
        return {}
    found: dict[Place, list[tuple[int, ast.Constant]]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id.isupper():
                _note(found, ("", target.id), node.value)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript):
            kernel = ast.unparse(call.func.value)
            for keyword in call.keywords:
                if keyword.arg:
                    _note(found, (kernel, keyword.arg), keyword.value)
    return {place: numbers[0] for place, numbers in found.items() if len(numbers) == 1}


def _note(found: dict[Place, list[tuple[int, ast.Constant]]], place: Place, node: ast.expr) -> None:
    # bool is an int, but no launch parameter.
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found.setdefault(place, []).append((node.value, node))


def _replaced(source: str, edits: list[tuple[ast.Constant, int]]) -> str:
    lines = source.encode().split(b"\n")
    for node, value in sorted(edits, key=lambda edit: (-edit[0].lineno, -edit[0].col_offset)):
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = (
            line[: node.col_offset] + str(value).encode() + line[node.end_col_offset :]
        )
    return b"\n".join(lines).decode()
