"""A MAP-Elites archive on axes of kernels: it keeps the best of each kind, so that what is different survives.

Source: Mouret and Clune (2015); the axes (launches, memory pattern, parallel shape, numeric path) are kernel-specific as in
KernelFoundry (Wiedemann et al.), ours are read from the profile and the syntax tree. A cell describes; it never accuses.
"""

import ast
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.source import Problem, parse
from gpu_runner.evolution.fitness import beats
from gpu_runner.evolution.types import Cell

BLOCK_POINTERS: Final = frozenset(
    {"make_block_ptr", "make_tensor_descriptor", "TensorDescriptor", "load_tensor_descriptor"}
)
RANGES: Final = frozenset({"range", "static_range"})

Kernels = list[ast.FunctionDef] | list[ast.Module]


def cell_of(candidate: Candidate) -> Cell:
    profile = candidate.evaluation.profile if candidate.evaluation else {}
    kernels = _kernels(candidate.source)
    nodes = [node for kernel in kernels for node in ast.walk(kernel)]
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    loops = sum(_is_counted_loop(node) for node in nodes)
    return Cell(
        launches=_launches(kernels, profile),
        memory=_memory(names, loops),
        parallel=_parallel(nodes, names, loops),
        numeric=_numeric(nodes, names, profile),
    )


def admit(archive: Mapping[Cell, Candidate], candidate: Candidate) -> Mapping[Cell, Candidate]:
    """The archive with a correct candidate in its cell, if that was empty or its elite is beaten."""
    cell = cell_of(candidate)
    if not beats(candidate, archive.get(cell)):
        return archive
    return MappingProxyType({**archive, cell: candidate})


def launch_count(source: str, profile: Mapping[str, Any]) -> int:
    """Launches in one call by the profile; where it does not say, the number of kernels in the text."""
    return _launched(profile) or _functions(_kernels(source))


def _launched(profile: Mapping[str, Any]) -> int:
    modelled = profile.get("candidate")
    parts = modelled.get("parts") if isinstance(modelled, dict) else None
    return len(parts) if isinstance(parts, list) else 0


def _functions(kernels: Kernels) -> int:
    return sum(isinstance(kernel, ast.FunctionDef) for kernel in kernels)


def _kernels(source: str) -> Kernels:
    """The functions that Triton compiles; the whole text where none is marked."""
    tree = parse(source)
    if isinstance(tree, Problem):
        return []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [f for f in functions if any(map(_is_jit, f.decorator_list))] or [tree]


def _is_jit(decorator: ast.expr) -> bool:
    place = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(place).rpartition(".")[2] == "jit"


def _is_counted_loop(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.For)
        and isinstance(node.iter, ast.Call)
        and ast.unparse(node.iter.func).rpartition(".")[2] in RANGES
    )


def _launches(kernels: Kernels, profile: Mapping[str, Any]) -> str:
    count = _launched(profile) or _functions(kernels)
    if count <= 2:
        return str(count)
    return "3-4" if count <= 4 else "5+"


def _memory(names: set[str], loops: int) -> str:
    if names & BLOCK_POINTERS:
        return "block pointers"
    if any(name == "gather" or name.startswith("atomic_") for name in names):
        return "atomics or gathers"
    return "several passes" if loops > 1 else "one pass"


def _parallel(nodes: list[ast.AST], names: set[str], loops: int) -> str:
    if "num_programs" in names:
        return "persistent"
    dimensions = f"{max(_program_axes(nodes), default=0) + 1}D"
    return f"{dimensions} looped" if loops else dimensions


def _program_axes(nodes: list[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("program_id"):
            for axis in [*node.args, *(word.value for word in node.keywords)]:
                if isinstance(axis, ast.Constant) and isinstance(axis.value, int):
                    yield min(2, axis.value)


def _numeric(nodes: list[ast.AST], names: set[str], profile: Mapping[str, Any]) -> str:
    if "dot" not in names:
        return "vector"
    precisions = set(_compiled_dots(profile)) or {
        str(node.value.value)
        for node in nodes
        if isinstance(node, ast.keyword)
        and node.arg == "input_precision"
        and isinstance(node.value, ast.Constant)
    }
    return " ".join(["dot", *sorted(precisions)])


def _compiled_dots(profile: Mapping[str, Any]) -> Iterator[str]:
    """Of each matrix product in the compiled kernels, its operands' type and precision: "f32/ieee"."""
    kernels = profile.get("kernels")
    for kernel in kernels if isinstance(kernels, list) else []:
        for dot in kernel.get("dots") or []:
            yield f"{dot.get('dtype', '')}/{dot.get('precision', '')}"
