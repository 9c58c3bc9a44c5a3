"""Whether a source honours the KernelBench contract, as far as its text can say; nothing is executed."""

import ast
from collections.abc import Iterator

from gpu_runner.core.source import Problem, parse, without_mark


def check_contract(source: str) -> list[Problem]:
    """What keeps a source from being a task, in the order of its lines; empty if it may be submitted.

    A task defines `Model` (a module with `forward`) with `get_inputs` and, unless the constructor needs nothing,
    `get_init_inputs`; or a function `reference` with `get_inputs`.
    """
    tree = parse(without_mark(source))
    if isinstance(tree, Problem):
        return [tree]
    if not source.strip():
        return [
            Problem(
                "no_entry", "the source is empty; paste a module that defines Model and get_inputs"
            )
        ]
    names = dict(_bindings(tree))
    problems = []
    if "Model" not in names and "reference" not in names:
        problems.append(
            Problem("no_entry", "defines neither a class Model(nn.Module) nor a function reference")
        )
    elif isinstance(model := names.get("Model"), ast.ClassDef):
        problems += _check_model(model)
    if "get_inputs" not in names:
        problems.append(
            Problem(
                "no_entry", "defines no get_inputs(); it returns the list of arguments of forward"
            )
        )
    elif isinstance(names["get_inputs"], ast.FunctionDef):
        problems += _check_no_arguments(names["get_inputs"])
    needs_arguments = isinstance(names.get("Model"), ast.ClassDef) and _constructor_needs_arguments(
        names["Model"]
    )
    if "get_init_inputs" not in names and needs_arguments:
        problems.append(
            Problem(
                "no_entry", "Model's constructor takes arguments but there is no get_init_inputs()"
            )
        )
    return sorted(problems, key=lambda problem: problem.line or 0)


def check_candidate(source: str) -> Problem | None:
    """What keeps a source from being evaluated as a candidate: bounds, syntax, or no `ModelNew`."""
    tree = parse(without_mark(source))
    if isinstance(tree, Problem):
        return tree
    if "ModelNew" not in dict(_bindings(tree)):
        return Problem(
            "no_entry", "defines no class ModelNew; a candidate needs it, with Model's constructor"
        )
    return None


def _bindings(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Names that the module's own statements bind, also below if, try and with."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name, node) for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((target.id, node) for target in targets if isinstance(target, ast.Name))
        else:
            pending += [
                child
                for child in ast.walk(node)
                if isinstance(child, ast.stmt) and child is not node
            ]


def _check_model(model: ast.ClassDef) -> list[Problem]:
    if not model.bases:
        return [Problem("no_entry", "Model does not derive from torch.nn.Module", model.lineno)]
    own = {node.name for node in model.body if isinstance(node, ast.FunctionDef)}
    derives_from_module = any(ast.unparse(base).split(".")[-1] == "Module" for base in model.bases)
    if derives_from_module and "forward" not in own:
        return [Problem("no_entry", "Model has no method forward", model.lineno)]
    return []


def _check_no_arguments(function: ast.FunctionDef) -> list[Problem]:
    required = len(function.args.args) - len(function.args.defaults)
    if required > 0:
        return [Problem("no_entry", f"{function.name} must take no arguments", function.lineno)]
    return []


def _constructor_needs_arguments(model: ast.AST) -> bool:
    for node in getattr(model, "body", []):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return len(node.args.args) - 1 > len(node.args.defaults)
    return False
