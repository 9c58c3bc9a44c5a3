"""What makes a task unable to tell right from wrong, found by running its reference a few times."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gpu_runner.core.findings import Evidence, Finding, Severity, Source
from gpu_runner.core.task_report import TensorSpec
from gpu_runner.core.verdicts import Stage
from gpu_runner.evaluation.child import compare
from gpu_runner.evaluation.child.arena import Arena, Truth
from gpu_runner.evaluation.protocol import Composition, Encoded, Placed, Slabs

TINY_RMS = 1e-4
MOST_INPUTS = 8


def warnings(arena: Arena, model_failure: str) -> list[Finding]:
    """Each with the number that shows it."""
    first = arena.truth(arena.mixer.next())
    second = arena.truth(arena.mixer.next())
    found = [
        *_outputs(first, second),
        *_random(arena, first),
        *_changed_inputs(arena, first),
        *_dead_inputs(arena),
    ]
    if model_failure:
        title = (
            f"no modelled speed: at full size the reference fails without data ({model_failure})"
        )
        found.append(_warning("no_model", title, {}))
    arena.reset()
    return found


def _outputs(first: Truth, second: Truth) -> Iterator[Finding]:
    if first.native and _identical(first.native, second.native):
        yield _warning("constant_output", "the output is the same for different inputs", {})
    for i, expected in enumerate(first.outputs):
        if not expected.is_floating or not expected.truth.numel():
            continue
        rms = compare.rms_of(expected.truth)
        finite = float(torch.isfinite(expected.truth).float().mean())
        own = expected.own_error_rms
        if finite < 1:
            share: Evidence = {"finite_share": finite}
            yield _warning("nonfinite_output", f"output {i} holds NaN or infinities", share)
        if rms < TINY_RMS:
            title = f"output {i} is tiny (rms {rms:.1e}): zeros pass a fixed tolerance, not ours"
            yield _warning("tiny_output", title, {"rms": rms})
        if expected.was_replaced:
            title = f"a trivial answer would pass for output {i}; the tolerance is the reference's own error"
            yield _warning("weak_output", title, {"tolerance_rms": expected.tolerance.atol_rms})
        if own is not None and own > compare.OWN_ERROR_LIMIT:
            title = f"output {i} is ill-conditioned: its own error is {own:.0%} of its rms"
            yield _warning("ill_conditioned", title, {"own_error_rms": own})


def _random(arena: Arena, first: Truth) -> Iterator[Finding]:
    again = arena.truth(first.composition)
    differences = [
        compare.max_difference(a, b) for a, b in zip(first.native, again.native, strict=True)
    ]
    if any(compare.mismatch(b, e) for b, e in zip(again.native, first.outputs, strict=True)):
        title = "the reference answers the same inputs differently (random operations?)"
        yield _warning("random", title, {"max_difference": max(differences, default=0.0)})


def _changed_inputs(arena: Arena, first: Truth) -> Iterator[Finding]:
    given = arena.composed(first.composition)
    for i, (before, after) in enumerate(zip(given, first.after, strict=True)):
        if not compare.identical(before, after):
            title = (
                f"the reference changes input {i} in place; declare INPLACE = True if that is meant"
            )
            yield _warning("input_changed", title, {"input": i, "declared": arena.is_inplace})


def _dead_inputs(arena: Arena) -> Iterator[Finding]:
    """Inputs that can be exchanged for another set's without any effect."""
    count = len(arena.sets[0])
    if not 1 <= count <= MOST_INPUTS:
        return
    base = arena.truth(_whole(arena, [0] * count))
    for i in range(count):
        if torch.equal(arena.sets[0][i], arena.sets[1][i]):
            continue
        other = arena.truth(_whole(arena, [1 if j == i else 0 for j in range(count)]))
        if _identical(base.native, other.native):
            yield _warning("dead_input", f"the output does not depend on input {i}", {"input": i})


def _identical(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    return all(compare.identical(x, y) for x, y in zip(a, b, strict=True))


def _whole(arena: Arena, sets: Sequence[int]) -> Composition:
    slabs = tuple(
        Slabs(axis=0, cuts=(0, max(1, tensor.shape[0] if tensor.dim() else 1)), sets=(chosen,))
        for tensor, chosen in zip(arena.sets[0], sets, strict=True)
    )
    return Composition(base=0, slabs=slabs)


def _warning(kind: str, title: str, evidence: Evidence) -> Finding:
    return Finding(
        stage=Stage.STATIC,
        kind=kind,
        severity=Severity.WARNING,
        source=Source.JUDGE,
        title=title[:300],
        evidence=evidence,
    )


def input_specs(tree: Encoded, places: Sequence[Placed]) -> tuple[TensorSpec | None, ...]:
    """One entry per argument of forward; None for what is no tensor by itself."""
    items: list[Any] = []
    if isinstance(tree, dict) and len(tree) == 1:
        ((tag, body),) = tree.items()
        if tag in ("list", "tuple"):
            items = list(body)
        elif tag == "dict":
            items = [item for _, item in body]
    return tuple(_spec_of(item, places) for item in items)


def _spec_of(item: Any, places: Sequence[Placed]) -> TensorSpec | None:
    if isinstance(item, dict) and isinstance(item.get("tensor"), int):
        place = places[item["tensor"]]
        return TensorSpec(shape=place.shape, dtype=place.dtype, stride=place.stride)
    return None
