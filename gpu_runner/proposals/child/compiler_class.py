"""What of the task's source a candidate keeps: the constructor of its model, and what that needs.

Parameters and buffers have to keep their names, so `ModelNew` is built exactly as `Model` was; only `forward` is new.
Modules of the task's own that the constructor uses stay as holders of their parameters, without their `forward`.
"""

import ast
import re
from dataclasses import dataclass

from gpu_runner.proposals.child.compiler_text import Names

_FORWARD = {"forward", "extra_repr", "__call__"}


@dataclass
class Shell:
    """The task's part of a candidate: imports, then what the class needs, then the class without `forward`."""

    imports: list[str]
    support: list[str]
    model: list[str]
    arguments: list[str]
    defaults: dict[str, str]


def model_shell(source: str) -> Shell:
    tree = ast.parse(source)
    lines = source.splitlines()
    bindings = {name: node for node in tree.body for name in _bound(node)}
    model = bindings["Model"]
    assert isinstance(model, ast.ClassDef)
    forward = next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    arguments, defaults = _parameters(forward)
    kept = _without_forward(model, lines)
    needed = _needed(model, bindings)
    imports, support = [], []
    for node in tree.body:
        if not any(name in needed for name in _bound(node)) or node is model:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(ast.unparse(node))
        elif isinstance(node, ast.ClassDef):
            support.append("\n".join(_without_forward(node, lines)))
        else:
            support.append(ast.get_source_segment(source, node) or ast.unparse(node))
    kept[0] = re.sub(r"\bclass Model\b", "class ModelNew", kept[0])
    kept = [re.sub(r"super\(Model, ", "super(ModelNew, ", line) for line in kept]
    return Shell(imports, support, kept, arguments, defaults)


def _bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return [alias.asname or alias.name.split(".")[0] for alias in aliases]
        case ast.Assign(targets=targets):
            return [t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _parameters(forward: ast.FunctionDef) -> tuple[list[str], dict[str, str]]:
    positional = forward.args.args[1:]
    names = [argument.arg for argument in positional]
    values = [ast.unparse(default) for default in forward.args.defaults]
    defaults = dict(zip(names[len(names) - len(values) :], values, strict=True))
    return names, defaults


def _methods_kept(node: ast.ClassDef) -> list[ast.stmt]:
    """Everything that the constructor may run: all but `forward` and what only `forward` calls."""
    methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
    reached: set[str] = set()
    pending = ["__init__"]
    while pending:
        name = pending.pop()
        if name in methods and name not in reached:
            reached.add(name)
            called = ast.walk(methods[name])
            pending += [n.attr for n in called if isinstance(n, ast.Attribute)]
    reached -= _FORWARD
    return [n for n in node.body if not isinstance(n, ast.FunctionDef) or n.name in reached]


def _without_forward(node: ast.ClassDef, lines: list[str]) -> list[str]:
    """The lines of a class with its docstring and what its constructor needs."""
    body = _methods_kept(node)
    is_documented = body and isinstance(body[0], ast.Expr)
    kept = [line.rstrip() for line in lines[node.lineno - 1 : node.body[0].lineno - 1]]
    first = node.body[0]
    if isinstance(first, ast.FunctionDef) and first.decorator_list:
        kept = kept[: first.decorator_list[0].lineno - node.lineno]
    while kept and not kept[-1].strip():
        kept.pop()
    for statement in body[1:] if is_documented else body:
        start = statement.lineno
        if isinstance(statement, ast.FunctionDef) and statement.decorator_list:
            start = statement.decorator_list[0].lineno
        kept += [line.rstrip() for line in lines[start - 1 : statement.end_lineno]] + [""]
    if len(kept) == 1:
        kept.append("    pass")
    while not kept[-1].strip():
        kept.pop()
    return kept


def _needed(model: ast.ClassDef, bindings: dict[str, ast.stmt]) -> set[str]:
    """Module-level names that the kept part of the model uses, directly or through others."""
    needed: set[str] = set()
    pending: list[ast.AST] = [*model.bases, *model.decorator_list, *_methods_kept(model)]
    while pending:
        node = pending.pop()
        own = _local_names(node)
        for child in ast.walk(node):
            known = isinstance(child, ast.Name) and child.id in bindings and child.id not in own
            if isinstance(child, ast.Name) and known and child.id not in needed:
                needed.add(child.id)
                target = bindings[child.id]
                if isinstance(target, ast.ClassDef):
                    pending += [*target.bases, *_methods_kept(target)]
                else:
                    pending.append(target)
    return needed - {"Model"}


def _local_names(node: ast.AST) -> set[str]:
    """Names that a function binds itself; those of nested functions count as its own."""
    if not isinstance(node, ast.FunctionDef):
        return set()
    parts = list(ast.walk(node))
    stored = {n.id for n in parts if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {n.arg for n in parts if isinstance(n, ast.arg)}


def reserved_names(shell: Shell) -> Names:
    """Names that the emitted module must not use for other things."""
    text = "\n".join([*shell.imports, *shell.support])
    words = set(re.findall(r"\b[A-Za-z_]\w*\b", text))
    return Names({"torch", "triton", "tl", "nn", "F", "math", "libdevice", "self", *words})
