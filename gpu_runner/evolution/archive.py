"""A MAP-Elites archive on axes of kernels: it keeps the best of each kind, so that what is different survives.

Source: Mouret and Clune (2015); the axes (launches, memory pattern, parallel shape, numeric path) are kernel-specific as in
KernelFoundry (Wiedemann et al.), ours are read from the profile and the text. A cell describes; it never accuses.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from gpu_runner.core.candidate import Candidate
from gpu_runner.evolution.fitness import beats
from gpu_runner.evolution.types import Cell

_BLOCK_POINTERS = re.compile(r"make_block_ptr|make_tensor_descriptor|TensorDescriptor")
_GATHER = re.compile(r"tl\.(gather|atomic_\w+)")
_PROGRAM_AXIS = re.compile(r"program_id\(\s*(?:axis\s*=\s*)?([012])")
_PRECISION = re.compile(r"input_precision\s*=\s*[\"'](\w+)")
_JIT = re.compile(r"@(?:triton\.)?jit\b")
_LOOP = re.compile(r"^[ \t]+for [^\n]*range\(", re.MULTILINE)


def cell_of(candidate: Candidate) -> Cell:
    profile = candidate.evaluation.profile if candidate.evaluation else {}
    return Cell(
        launches=_launches(candidate.source, profile),
        memory=_memory(candidate.source),
        parallel=_parallel(candidate.source),
        numeric=_numeric(candidate.source, profile),
    )


def admit(archive: Mapping[Cell, Candidate], candidate: Candidate) -> Mapping[Cell, Candidate]:
    """The archive with a correct candidate in its cell, if that was empty or its elite is beaten."""
    cell = cell_of(candidate)
    if not beats(candidate, archive.get(cell)):
        return archive
    return MappingProxyType({**archive, cell: candidate})


def launch_count(source: str, profile: Mapping[str, Any]) -> int:
    """Launches in one call by the profile; where it does not say, the number of kernels in the text."""
    modelled = profile.get("candidate")
    parts = modelled.get("parts") if isinstance(modelled, dict) else None
    return len(parts) if isinstance(parts, list) and parts else len(_JIT.findall(source))


def _launches(source: str, profile: Mapping[str, Any]) -> str:
    count = launch_count(source, profile)
    if count <= 2:
        return str(count)
    return "3-4" if count <= 4 else "5+"


def _memory(source: str) -> str:
    if _BLOCK_POINTERS.search(source):
        return "block pointers"
    if _GATHER.search(source):
        return "atomics or gathers"
    return "several passes" if len(_LOOP.findall(source)) > 1 else "one pass"


def _parallel(source: str) -> str:
    if "num_programs" in source:
        return "persistent"
    axes = {int(axis) for axis in _PROGRAM_AXIS.findall(source)}
    dimensions = f"{max(axes, default=0) + 1}D"
    return f"{dimensions} looped" if _LOOP.search(source) else dimensions


def _numeric(source: str, profile: Mapping[str, Any]) -> str:
    if "tl.dot" not in source:
        return "vector"
    precisions = set(_compiled_dots(profile)) or set(_PRECISION.findall(source))
    return " ".join(["dot", *sorted(precisions)])


def _compiled_dots(profile: Mapping[str, Any]) -> Iterator[str]:
    """Of each matrix product in the compiled kernels, its operands' type and precision: "f32/ieee"."""
    kernels = profile.get("kernels")
    for kernel in kernels if isinstance(kernels, list) else []:
        for dot in kernel.get("dots") or []:
            yield f"{dot.get('dtype', '')}/{dot.get('precision', '')}"
