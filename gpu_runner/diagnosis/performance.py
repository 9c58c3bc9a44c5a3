"""Why a correct candidate is no faster: where its time goes, and which one change would gain most.

How the time is shared among kernels and bounds is modelled; on a GPU the whole of it is measured, and the parts fill it.
The largest loss leads, with the ratio of times that its end would bring; `core.predictions` looks later whether it came.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.findings import Finding, Location, Severity, Source
from gpu_runner.core.verdicts import Fidelity, Stage
from gpu_runner.diagnosis import losses
from gpu_runner.diagnosis.losses import Loss
from gpu_runner.diagnosis.profile import (
    Part,
    ceiling_of,
    filling,
    kernels_of,
    least_bytes_of,
    parts_of,
)

WORTH_NAMING: Final = 1.03
"""Smallest predicted gain that is a bottleneck."""

AT_CEILING: Final = 0.95
"""From this share of a large copy's bandwidth on a kernel is at the memory's ceiling."""

HOST_BOUND: Final = 1.5
"""From this ratio of call time to device time on the host is the bottleneck."""

MIN_HOST_US: Final = 10.0
MOST_HINTS: Final = 3


def findings(evaluation: Evaluation) -> list[Finding]:
    """The bottleneck first, then what else would gain, then where the time goes; empty without a profile."""
    parts = _parts(evaluation)
    found = [host] if (host := _host_bound(evaluation)) else []
    total = sum(part.us for part in parts)
    if total <= 0:
        return found
    if at_ceiling := _at_ceiling(evaluation, parts, total):
        return [*found, at_ceiling]
    ranked = sorted(_losses(evaluation, parts), key=lambda loss: -loss.lost_us)
    named = [loss for loss in ranked if _is_worth_naming(loss, total)]
    found += [_finding(loss, total) for loss in named[:MOST_HINTS]]
    return [*found, _summary(parts, evaluation.fidelity, is_all=not named)]


def _parts(evaluation: Evaluation) -> list[Part]:
    parts = parts_of(evaluation.profile, "candidate")
    timing = evaluation.candidate
    if timing is None or evaluation.fidelity is not Fidelity.MEASURED:
        return parts
    return filling(parts, timing.device_us)


def _losses(evaluation: Evaluation, parts: Sequence[Part]) -> Iterator[Loss]:
    kernels = kernels_of(evaluation.profile)
    ceiling = ceiling_of(evaluation)
    eager = parts_of(evaluation.profile, "eager")
    multiplies = any(part.kind in losses.MATRIX_KINDS for part in eager)
    yield from losses.of_call(parts)
    for part in parts:
        if part.is_own and _reached(part.minimum_bytes, part.us, ceiling) < AT_CEILING:
            yield from losses.of_kernel(part, kernels.get(part.name), multiplies)


def _reached(least_bytes: float, us: float, ceiling: float | None) -> float:
    """Share of a copy's bandwidth at which the least possible bytes were moved; 0 where it is not known."""
    return least_bytes / us / ceiling if ceiling else 0.0


def _at_ceiling(evaluation: Evaluation, parts: Sequence[Part], total: float) -> Finding | None:
    """The call moves the least possible bytes as fast as a copy: nothing is left to gain."""
    least, ceiling = least_bytes_of(evaluation.profile), ceiling_of(evaluation)
    reached = _reached(least or 0.0, total, ceiling)
    if reached < AT_CEILING:
        return None
    return Finding(
        stage=Stage.PROFILE,
        kind="at_memory_ceiling",
        severity=Severity.NOTE,
        source=Source.INTERPRETER,
        title=f"at the memory's ceiling: {reached:.0%} of what a copy of the same bytes reaches; nothing is left to gain",
        evidence={"least_bytes": least, f"{evaluation.fidelity}_us": total, "reached": reached},
        location=_place(max(parts, key=lambda part: part.us)),
    )


def _is_worth_naming(loss: Loss, total: float) -> bool:
    return loss.is_main or _gain(loss, total) >= WORTH_NAMING


def _gain(loss: Loss, total: float) -> float:
    return total / max(total - loss.lost_us, 0.05 * total)


def _place(part: Part | None, line: int | None = None, tensor: str | None = None) -> Location:
    if part is None:
        return Location()
    return Location(
        kernel=part.name[:200] if part.is_own else None,
        line=line or part.line or None,
        tensor=tensor,
    )


def _finding(loss: Loss, total: float) -> Finding:
    gain = _gain(loss, total)
    return Finding(
        stage=Stage.PROFILE,
        kind=loss.kind,
        severity=Severity.HINT,
        source=Source.INTERPRETER,
        title=f"{loss.title}: up to {gain:.2f} times as fast without"[:300],
        evidence={**loss.evidence, "predicted_gain": gain, "lost_us": loss.lost_us},
        location=_place(loss.part, loss.line, loss.tensor),
        suggestion=loss.suggestion,
    )


def _summary(parts: Sequence[Part], fidelity: Fidelity | None, *, is_all: bool) -> Finding:
    """Where the time goes: the largest part, and what bounds it."""
    total = sum(part.us for part in parts)
    largest = max(parts, key=lambda part: part.us)
    bounds = {
        "dram": "the memory's bandwidth",
        "l2": "the L2 cache",
        "dot": "matrix products",
        "alu": "arithmetic",
        "launch": "the launch itself",
    }
    what = bounds.get(largest.bound, largest.bound)
    title = f"{largest.name} takes {largest.us / total:.0%} of the {fidelity} time, bound by {what}"
    if is_all:
        title += "; the diagnosis knows nothing that would gain much"
    return Finding(
        stage=Stage.PROFILE,
        kind=f"bound_by_{largest.bound or 'unknown'}",
        severity=Severity.NOTE,
        source=Source.INTERPRETER,
        title=title[:300],
        evidence={
            f"{fidelity}_us": total,
            "launches": len(parts),
            "dram_us": sum(part.dram_us for part in parts),
            "l2_us": sum(part.l2_us for part in parts),
            "dot_us": sum(part.dot_us for part in parts),
            "alu_us": sum(part.alu_us for part in parts),
            "launch_us": sum(part.launch_us for part in parts),
        },
        location=_place(largest),
    )


def _host_bound(evaluation: Evaluation) -> Finding | None:
    """Measured only: the host takes longer to launch than the device to work."""
    timing = evaluation.candidate
    if timing is None or timing.call_us is None:
        return None
    idle = timing.call_us - timing.device_us
    if timing.call_us < HOST_BOUND * timing.device_us or idle < MIN_HOST_US:
        return None
    if any(finding.kind == "host_bound" for finding in evaluation.findings):
        return None
    return Finding(
        stage=Stage.PROFILE,
        kind="host_bound",
        severity=Severity.WARNING,
        source=Source.JUDGE,
        title=f"the host needs {timing.call_us:.0f} us for a call of {timing.device_us:.0f} us on the device",
        evidence={"call_us": timing.call_us, "device_us": timing.device_us},
        suggestion="Launch less often, and keep allocations, checks and re-packing out of forward.",
    )
