"""What makes a task unable to tell right from wrong, found by running its reference a few times.

Each warning carries the number that shows it. What a candidate may leave out is found by exchanging it: an input for that
of another set, a parameter for another value; where nothing changes beyond the tolerance, nobody can tell.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from gpu_runner.core.findings import Evidence, Finding, Location, Severity, Source
from gpu_runner.core.task_report import UNTESTABLE
from gpu_runner.core.verdicts import Stage
from gpu_runner.evaluation.child import compare, structure
from gpu_runner.evaluation.child.arena import Arena, Truth
from gpu_runner.evaluation.protocol import Composition, Operation, Slabs

TINY_RMS: Final = 1e-4
MOST_INPUTS: Final = 8
MOST_PARAMETERS: Final = 24
PARAMETERS_S: Final = 6.0
"""Time for exchanging parameters, the largest first."""
SLOW: Final = 20.0
"""A reference this many times slower than its roofline says little about a candidate that is faster."""
_COMPUTING: Final = ("compute", "library", "random")


@dataclass(frozen=True)
class Modelled:
    """The reference's time on the target GPU, and its roofline: inputs and outputs moved once, its arithmetic, one launch."""

    reference_us: float
    least_us: float


def untestable(arena: Arena) -> Finding | None:
    """The same inputs and the same state give other outputs: no candidate can agree with that."""
    composition = arena.mixer.next()
    arena.reset()
    first = arena.truth(composition)
    arena.reset()
    again = arena.truth(composition)
    arena.reset()
    if _agree(arena, again, _as_it_came(first)):
        return None
    random = sorted({op.name for op in first.operations if op.group == "random"})
    why = f"it uses {', '.join(random[:3])}" if random else "it keeps something between calls"
    title = f"untestable: the reference answers the same inputs differently each time; {why}"
    evidence: Evidence = {
        "max_difference": max(
            (compare.max_difference(a, b) for a, b in _pairs(first, again)), default=0.0
        ),
        "max_difference_rms": max((_change(b, a) for a, b in _pairs(first, again)), default=0.0),
        "operations": random[:12],
    }
    suggestion = (
        "Take random numbers as inputs, call eval() in the constructor, or keep state in buffers."
    )
    return _warning(UNTESTABLE, title, evidence, suggestion, Severity.GATE)


def warnings(arena: Arena, modelled: Modelled | None) -> list[Finding]:
    """All but randomness, each with the number that shows it."""
    first = arena.truth(arena.mixer.next())
    second = arena.truth(arena.mixer.next())
    found = [
        *_outputs(first, second),
        *_changed_inputs(arena, first),
        *_dead_inputs(arena),
        *_dead_parameters(arena),
        *_dead_code(arena, first),
        *_slow(modelled),
    ]
    arena.reset()
    return found


# Outputs


def _outputs(first: Truth, second: Truth) -> Iterator[Finding]:
    for i, (expected, other) in enumerate(zip(first.outputs, second.native, strict=True)):
        if not expected.truth.numel():
            continue
        yield from _constant(i, expected, other)
        if expected.is_floating:
            yield from _weak(i, expected)


def _constant(index: int, expected: compare.Expected, other: torch.Tensor) -> Iterator[Finding]:
    if compare.mismatch(other, expected) is not None:
        return
    change = _change(other, expected.native)
    how = f"by {change:.1e} of its rms" if change else "not at all"
    title = f"output {index} changes {how} when the inputs do: one remembered answer passes"
    evidence: Evidence = {
        "change_rms": change,
        "tolerance_rms": expected.tolerance.atol_rms + expected.tolerance.rtol,
    }
    yield _warning("constant_output", title, evidence, "Return something that hangs on the inputs.")


def _weak(index: int, expected: compare.Expected) -> Iterator[Finding]:
    rms = compare.rms_of(expected.truth)
    finite = float(torch.isfinite(expected.truth).float().mean())
    own = expected.own_error_rms
    if finite < 1:
        title = f"{1 - finite:.1%} of output {index} are NaN or infinite; only where they are is compared there"
        yield _warning("nonfinite_output", title, {"finite_share": finite})
    if rms < TINY_RMS:
        title = f"output {index} is tiny (rms {rms:.1e}): zeros pass a fixed tolerance, not ours"
        yield _warning("tiny_output", title, {"rms": rms})
    if expected.was_replaced:
        allowed = expected.tolerance.atol_rms
        title = (
            f"a trivial answer (zeros, the mean, an input) would pass for output {index};"
            f" its tolerance is {allowed:.1e} of its rms instead"
        )
        yield _warning("weak_output", title, {"tolerance_rms": allowed, "rms": rms})
    if own is not None and own > compare.OWN_ERROR_LIMIT:
        title = f"output {index} is ill-conditioned: its own error is {own:.0%} of its rms"
        suggestion = "Compute it in an order that cancels less, or in float64."
        yield _warning("ill_conditioned", title, {"own_error_rms": own}, suggestion)


# Inputs


def _changed_inputs(arena: Arena, first: Truth) -> Iterator[Finding]:
    given = arena.composed(first.composition)
    for i, (before, after) in enumerate(zip(given, first.after, strict=True)):
        if compare.identical(before, after):
            continue
        evidence: Evidence = {
            "input": i,
            "max_change": compare.max_difference(before, after),
            "declared": arena.is_inplace,
        }
        if arena.is_inplace:
            title = f"the reference changes input {i} in place, as declared; candidates must too"
            yield _warning("input_changed", title, evidence, severity=Severity.NOTE)
        else:
            title = f"the reference changes input {i} in place; candidates may, and need not"
            yield _warning(
                "input_changed", title, evidence, "Declare INPLACE = True if it is meant."
            )


def _dead_inputs(arena: Arena) -> Iterator[Finding]:
    """Inputs that can be exchanged for another set's without any effect."""
    count = len(arena.sets[0])
    base: Truth | None = None
    for i in range(min(count, MOST_INPUTS)):
        own = arena.sets[0][i]
        unlike = [n for n, given in enumerate(arena.sets) if not compare.identical(given[i], own)]
        if not unlike:
            if own.numel():
                title = (
                    f"get_inputs() gives the same input {i} each time: a candidate may leave it out"
                )
                yield _warning("constant_input", title, {"input": i, "sets": len(arena.sets)})
            continue
        arena.reset()
        base = base or arena.truth(_whole(arena, [0] * count))
        arena.reset()
        exchanged = _whole(arena, [unlike[0] if j == i else 0 for j in range(count)])
        other = arena.truth(exchanged, watched=False, exact=False)
        if _agree(arena, other, base):
            change = _largest_change(other.native, base)
            yield _unimportant("dead_input", f"input {i}", change, {"input": i})


def _whole(arena: Arena, sets: Sequence[int]) -> Composition:
    slabs = tuple(
        Slabs(axis=0, cuts=(0, max(1, tensor.shape[0] if tensor.dim() else 1)), sets=(chosen,))
        for tensor, chosen in zip(arena.sets[0], sets, strict=True)
    )
    return Composition(base=0, slabs=slabs)


# Parameters


def _dead_parameters(arena: Arena) -> Iterator[Finding]:
    """Parameters that can have another value without any effect."""
    groups = _groups(arena)
    if not groups:
        return
    deadline = time.monotonic() + PARAMETERS_S
    composition = arena.mixer.next()
    arena.reset()
    base = arena.truth(composition)
    try:
        for names in groups[:MOST_PARAMETERS]:
            if time.monotonic() > deadline:
                break
            other = _with_other(arena, names, composition)
            if _agree(arena, other, base):
                change = _largest_change(other.native, base)
                named = f"parameter {' and '.join(names[:3])}"
                yield _unimportant("dead_parameter", named, change, {"parameter": names[0][:300]})
    finally:
        arena.reseat()


def _groups(arena: Arena) -> list[tuple[str, ...]]:
    """Names of floating-point state that no forward changes, largest first; tied ones, equal and not constant, together."""
    state = {
        name: tensor
        for name, tensor in arena.state().items()
        if tensor.dtype.is_floating_point and tensor.numel() and name not in arena.buffer_names
    }
    groups: list[list[str]] = []
    for name, tensor in sorted(state.items(), key=lambda item: -item[1].numel()):
        tied = [g for g in groups if _is_tied(tensor, state[g[0]])]
        if tied:
            tied[0].append(name)
        else:
            groups.append([name])
    return [tuple(group) for group in groups]


def _is_tied(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.numel() > 1 and not compare.is_constant(a) and compare.identical(a, b)


def _with_other(arena: Arena, names: Sequence[str], composition: Composition) -> Truth:
    """The answer with every one of these parameters moved by as much as it is large."""
    old = arena.state()[names[0]]
    generator = torch.Generator(old.device).manual_seed(arena.seed)
    step = max(compare.rms_of(old.double()), 0.1)
    noise = torch.randn(old.shape, generator=generator, dtype=torch.float64, device=old.device)
    new = (old.double() + step * noise).to(old.dtype)
    lent = arena.with_state(dict.fromkeys(names, new))
    try:
        arena.reseat(lent)
        return arena.truth(composition, watched=False, exact=False)
    finally:
        lent.close()


# Code


def _dead_code(arena: Arena, first: Truth) -> Iterator[Finding]:
    """Computation that reaches no output; not told apart where results go elsewhere: into state, inputs or the host."""
    goes_elsewhere = arena.buffer_names or any(op.group == "host" for op in first.operations)
    if goes_elsewhere or any(f.kind == "input_changed" for f in _changed_inputs(arena, first)):
        return
    computing = [op for op in first.operations if op.group in _COMPUTING]
    dead = [op for op in computing if not op.reaches_output]
    if not dead:
        return
    lines = sorted({op.line for op in dead if op.line})
    names = ", ".join(sorted({op.name for op in dead})[:4])
    title = f"{_calls(dead)} of {_calls(computing)} operations reach no output ({names}): dead code"
    evidence: Evidence = {
        "operations": _calls(dead),
        "of": _calls(computing),
        "elements": sum(op.elements for op in dead),
        "lines": lines[:20],
    }
    found = _warning("dead_code", title, evidence, "Delete it, or return what it computes.")
    yield found.model_copy(update={"location": Location(line=lines[0] if lines else None)})


def _calls(operations: Sequence[Operation]) -> int:
    return sum(op.calls for op in operations)


def _slow(modelled: Modelled | None) -> Iterator[Finding]:
    if modelled is None or modelled.reference_us < SLOW * modelled.least_us:
        return
    factor = modelled.reference_us / modelled.least_us
    title = (
        f"the reference takes {factor:.0f} times its roofline on the target"
        f" ({modelled.reference_us:.0f} us modelled): most kernels will be faster than it"
    )
    evidence: Evidence = {
        "factor": factor,
        "reference_us": modelled.reference_us,
        "least_us": modelled.least_us,
    }
    suggestion = (
        "Submit a stronger baseline beside it: the speedup over this reference says little."
    )
    yield _warning("slow_reference", title, evidence, suggestion)


# Words


def no_model(failure: str) -> Finding:
    title = f"no modelled speed: at full size the reference fails without data ({failure})"
    return _warning("no_model", title, {})


def gpu_only(seconds: float, limit_s: float) -> Finding:
    """For a task whose sizes nothing makes smaller."""
    title = (
        f"for a GPU only: interpreting a candidate at full size would take about {seconds:.0f} s, at most"
        f" {limit_s:.0f} s are spent on it; no module-level integers say how to make it smaller"
    )
    suggestion = (
        "Give sizes as module-level integers (ROWS = 4096), so that smaller ones can be tried."
    )
    return _warning("gpu_only", title, {"seconds": seconds, "limit_s": limit_s}, suggestion)


def _unimportant(kind: str, what: str, change: float, about: Evidence) -> Finding:
    if change:
        title = f"{what} changes the output by {change:.1e} of its rms, within the tolerance: leaving it out passes"
    else:
        title = f"the output does not depend on {what}"
    return _warning(kind, title, {**about, "change_rms": change})


def _warning(
    kind: str,
    title: str,
    evidence: Mapping[str, object],
    suggestion: str = "",
    severity: Severity = Severity.WARNING,
) -> Finding:
    return Finding.model_validate(
        {
            "stage": Stage.STATIC,
            "kind": kind,
            "severity": severity,
            "source": Source.JUDGE,
            "title": title[:300],
            "evidence": evidence,
            "suggestion": suggestion,
        }
    )


# Comparing


def _agree(arena: Arena, answer: Truth, truth: Truth) -> bool:
    """Whether this answer would be taken for right."""
    if structure.unlike_numbers(answer.tree, truth.tree, arena.tolerance_for(torch.float32)):
        return False
    if arena.is_inplace and not _leaves_the_same(arena, answer, truth):
        return False
    return all(
        compare.mismatch(got, expected) is None
        for got, expected in zip(answer.native, truth.outputs, strict=True)
    )


def _leaves_the_same(arena: Arena, answer: Truth, truth: Truth) -> bool:
    """Whether the inputs that the reference changes hold the same after both calls."""
    given = arena.composed(truth.composition)
    return all(
        compare.identical(before, wanted) or compare.identical(wanted, after)
        for before, wanted, after in zip(given, truth.after, answer.after, strict=True)
    )


def _as_it_came(truth: Truth) -> Truth:
    """With the native outputs for the truth: a copy in float64 has a state of its own."""
    outputs = tuple(replace(e, truth=compare.wide(e.native)) for e in truth.outputs)
    return replace(truth, outputs=outputs)


def _largest_change(native: Sequence[torch.Tensor], truth: Truth) -> float:
    changes = (_change(got, want) for got, want in zip(native, truth.native, strict=True))
    return max(changes, default=0.0)


def _change(got: torch.Tensor, before: torch.Tensor) -> float:
    """The largest difference in units of the rms; of what is no floating-point number the share that differs."""
    if not before.numel():
        return 0.0
    if not (before.dtype.is_floating_point or before.dtype.is_complex):
        return float((got != before).float().mean())
    rms = compare.rms_of(compare.wide(before))
    return compare.max_difference(got, before) / rms if rms else 0.0


def _pairs(first: Truth, again: Truth) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return zip(first.native, again.native, strict=True)
