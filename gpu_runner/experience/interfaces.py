"""Whether a candidate for one task can be tried on another: the modules are constructed and called alike.

Read from the text, after its bounds: names and defaults do not matter, only how many arguments there are.
"""

import ast

from gpu_runner.core.source import Problem, parse


def same_interface(one: str, other: str) -> bool:
    """Whether two references take as many arguments in their constructors and calls and hold as many parameters by name."""
    first, second = _interface(one), _interface(other)
    return first is not None and first == second


def _interface(source: str) -> tuple[int, int, frozenset[str]] | None:
    tree = parse(source)
    if isinstance(tree, Problem):
        return None
    models = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    if not models:
        return None
    methods = {n.name: n for n in models[0].body if isinstance(n, ast.FunctionDef)}
    forward, init = methods.get("forward"), methods.get("__init__")
    if forward is None:
        return None
    held = _attributes(init) if init is not None else frozenset()
    return len(forward.args.args), len(init.args.args) if init is not None else 1, held


def _attributes(init: ast.FunctionDef) -> frozenset[str]:
    """What the constructor keeps on the module; a candidate has to hold the same state."""
    return frozenset(
        node.attr
        for node in ast.walk(init)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
