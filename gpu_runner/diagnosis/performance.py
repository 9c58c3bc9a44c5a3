"""Why a correct candidate is no faster: where its modelled time goes, and which one change would gain most.

Reads `evaluation.profile`: the parts of the modelled call (see `evaluation.child.roofline.Part`) and the facts of the compiled
kernels. A predicted gain is the ratio of times if the named loss vanished altogether; it ranks moves and promises nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.findings import Evidence, Finding, Location, Severity, Source
from gpu_runner.core.verdicts import Stage

WORTH_NAMING: Final = 1.03
"""Smallest predicted gain that is a bottleneck."""

HOST_BOUND: Final = 1.5
"""From this ratio of call time to device time on the host is the bottleneck."""

MIN_HOST_US: Final = 10.0
MATRIX_KINDS: Final = frozenset({"matmul", "convolution", "attention"})
TORCH_FUSABLE: Final = frozenset({"pointwise", "copy", "reduction", "random"})


class Part(BaseModel):
    """The fields of a part that are read here; times in microseconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    kind: str
    us: float
    launch_us: float = 0.0
    dram_us: float = 0.0
    l2_us: float = 0.0
    dot_us: float = 0.0
    alu_us: float = 0.0
    bound: str = ""
    dram_bytes: float = 0.0
    minimum_bytes: float = 0.0
    occupancy: float = 0.0
    limiter: str = ""
    waves: float = 0.0
    tail: float = 1.0
    parallelism: float = 1.0
    bytes_per_wanted_byte: float = 1.0
    line: int | None = None

    @property
    def is_own(self) -> bool:
        return self.kind == "kernel"


class Kernel(BaseModel):
    """The facts of a compiled kernel that are read here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kernel: str
    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    num_warps: int = 4
    is_chosen: bool = True
    uses_tensor_cores: bool = False


@dataclass(frozen=True)
class Loss:
    """Time that a call spends without need."""

    kind: str
    lost_us: float
    title: str
    suggestion: str
    evidence: Evidence
    part: Part | None = None


def findings(evaluation: Evaluation) -> list[Finding]:
    """The bottleneck first, then what else would gain, then where the time goes; empty without a profile."""
    parts = parts_of(evaluation.profile, "candidate")
    found = [host] if (host := _host_bound(evaluation)) else []
    total = sum(part.us for part in parts)
    if total <= 0:
        return found
    losses = sorted(_losses(evaluation, parts), key=lambda loss: -loss.lost_us)
    named = [loss for loss in losses if _gain(loss, total) >= WORTH_NAMING]
    found += [_finding(loss, total, Severity.HINT) for loss in named[:3]]
    return [*found, _summary(parts, total, is_at_ceiling=not named)]


def parts_of(profile: dict[str, Any], player: str) -> list[Part]:
    """The parts of one player's modelled call; empty where there are none or they are not readable."""
    modelled = profile.get(player)
    raw = modelled.get("parts") if isinstance(modelled, dict) else modelled
    try:
        return [Part.model_validate(one) for one in raw] if isinstance(raw, list) else []
    except ValidationError:
        return []


def _kernels(profile: dict[str, Any]) -> dict[str, Kernel]:
    raw = profile.get("kernels")
    try:
        read = [Kernel.model_validate(one) for one in raw] if isinstance(raw, list) else []
    except ValidationError:
        return {}
    return {kernel.kernel: kernel for kernel in read if kernel.is_chosen}


def _losses(evaluation: Evaluation, parts: Sequence[Part]) -> Iterator[Loss]:
    kernels = _kernels(evaluation.profile)
    yield from _launches(parts)
    for part in parts:
        yield from _traffic(part)
        yield from _parallel(part)
        if part.name in kernels and part.is_own:
            yield from _registers(part, kernels[part.name])
    yield from _tensor_cores(evaluation, parts, kernels)


def _launches(parts: Sequence[Part]) -> Iterator[Loss]:
    """What fusing everything into the largest part would save: launches, and passes of what only passes over memory."""
    if len(parts) < 2:
        return
    largest = max(parts, key=lambda part: part.us)
    others = [part for part in parts if part is not largest]
    lost = sum(part.launch_us for part in others)
    lost += sum(part.dram_us for part in others if _only_passes(part))
    own = sum(part.is_own for part in parts)
    yield Loss(
        "launches",
        lost,
        f"{len(parts)} launches in one call, {own} of them own kernels",
        f"Fuse {_names(others)} into {largest.name} or with each other, so that what lies between stays in registers.",
        {"launches": len(parts), "own_launches": own, "names": [part.name for part in parts][:20]},
        largest if largest.is_own else None,
    )


def _only_passes(part: Part) -> bool:
    return part.dram_us >= max(part.dot_us, part.alu_us) and (
        part.is_own or part.kind in TORCH_FUSABLE
    )


def _names(parts: Sequence[Part]) -> str:
    names = list(dict.fromkeys(part.name for part in parts))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _traffic(part: Part) -> Iterator[Loss]:
    if part.bound not in ("dram", "l2") or part.dram_bytes <= 0:
        return
    spread = part.bytes_per_wanted_byte
    if spread > 1.25:
        yield Loss(
            "uncoalesced",
            max(part.dram_us, part.l2_us) * (1 - 1 / spread),
            f"{part.name} moves {spread:.1f} bytes for each byte that it asks for",
            "Let neighbouring lanes touch neighbouring elements: the innermost tl.arange belongs to the axis of stride 1.",
            {"bytes_per_wanted_byte": spread},
            part,
        )
    elif part.minimum_bytes and part.dram_bytes > 1.1 * part.minimum_bytes:
        redundant = part.dram_bytes / part.minimum_bytes
        yield Loss(
            "redundant_traffic",
            part.dram_us * (1 - 1 / redundant),
            f"{part.name} moves {redundant:.1f} times the bytes that it must",
            "Read each input once: keep the row in registers, use an online formulation, or order tiles for the L2 cache.",
            {"dram_bytes": part.dram_bytes, "minimum_bytes": part.minimum_bytes},
            part,
        )


def _parallel(part: Part) -> Iterator[Loss]:
    if part.bound == "dram" and part.parallelism < 0.9:
        yield Loss(
            "little_in_flight",
            part.dram_us * (1 - part.parallelism),
            f"{part.name} keeps only {part.parallelism:.0%} of the bytes in flight that the memory needs",
            _more_in_flight(part),
            {"parallelism": part.parallelism, "limiter": part.limiter, "waves": part.waves},
            part,
        )
    if part.bound in ("dot", "alu") and part.tail > 1.1:
        yield Loss(
            "tail",
            max(part.dot_us, part.alu_us) * (1 - 1 / part.tail),
            f"{part.name} leaves SMs idle at its end: the busiest has {part.tail:.1f} times the mean",
            "Choose tiles so that their number is a multiple of the SMs or much larger, or split the reduction.",
            {"tail": part.tail, "waves": part.waves},
            part,
        )


def _more_in_flight(part: Part) -> str:
    if part.limiter == "grid":
        return "Start more programs: smaller blocks of rows, or split long rows and reductions over programs."
    if part.limiter in ("registers", "shared memory"):
        return f"Fewer {part.limiter} per program: smaller tiles or fewer stages, so that more programs are resident."
    return "Load more per program at once: larger blocks, more num_warps, or num_stages for loops over loads."


def _registers(part: Part, kernel: Kernel) -> Iterator[Loss]:
    if kernel.spill_bytes:
        yield Loss(
            "spills",
            max(part.l2_us - part.dram_us, 0.1 * part.us),
            f"{part.name} spills {kernel.spill_bytes} bytes of registers a thread",
            "Take smaller tiles or more num_warps, so that each thread holds less.",
            {"spill_bytes": kernel.spill_bytes, "registers": kernel.registers},
            part,
        )
    if part.bound in ("dot", "alu") and part.occupancy < 0.25:
        yield Loss(
            "occupancy",
            0.15 * part.us,
            f"{part.name} keeps {part.occupancy:.0%} of an SM's warps resident, limited by {part.limiter}",
            "Smaller tiles or fewer stages leave room for more programs; more num_warps share a tile's registers.",
            {
                "occupancy": part.occupancy,
                "limiter": part.limiter,
                "registers": kernel.registers,
                "shared_bytes": kernel.shared_bytes,
                "num_warps": kernel.num_warps,
            },
            part,
        )


def _tensor_cores(
    evaluation: Evaluation, parts: Sequence[Part], kernels: dict[str, Kernel]
) -> Iterator[Loss]:
    """A matrix product of the reference that own kernels compute without tl.dot."""
    eager = parts_of(evaluation.profile, "eager")
    if not any(part.kind in MATRIX_KINDS for part in eager):
        return
    for part in parts:
        kernel = kernels.get(part.name)
        is_plain = part.is_own and part.bound == "alu" and part.dot_us == 0
        if is_plain and kernel is not None and not kernel.uses_tensor_cores:
            yield Loss(
                "no_tensor_cores",
                0.7 * part.us,
                f"{part.name} multiplies matrices on the ordinary units",
                "Write the product with tl.dot over tiles of at least 16 by 16.",
                {"alu_us": part.alu_us},
                part,
            )


def _gain(loss: Loss, total: float) -> float:
    return total / max(total - loss.lost_us, 0.05 * total)


def _finding(loss: Loss, total: float, severity: Severity) -> Finding:
    gain = _gain(loss, total)
    place = Location()
    if loss.part is not None and loss.part.is_own:
        place = Location(kernel=loss.part.name[:200], line=loss.part.line)
    return Finding(
        stage=Stage.PROFILE,
        kind=loss.kind,
        severity=severity,
        source=Source.INTERPRETER,
        title=f"{loss.title}: up to {gain:.2f} times as fast without"[:300],
        evidence={**loss.evidence, "predicted_gain": gain, "lost_us": loss.lost_us},
        location=place,
        suggestion=loss.suggestion,
    )


def _summary(parts: Sequence[Part], total: float, *, is_at_ceiling: bool) -> Finding:
    """Where the modelled time goes: the largest part, and what bounds it."""
    largest = max(parts, key=lambda part: part.us)
    bounds = {
        "dram": "the memory's bandwidth",
        "l2": "the L2 cache",
        "dot": "matrix products",
        "alu": "arithmetic",
        "launch": "the launch itself",
    }
    what = bounds.get(largest.bound, largest.bound)
    title = f"{largest.name} takes {largest.us / total:.0%} of the modelled time, bound by {what}"
    if is_at_ceiling:
        title += "; the diagnosis knows nothing that would gain much"
    return Finding(
        stage=Stage.PROFILE,
        kind=f"bound_by_{largest.bound or 'unknown'}",
        severity=Severity.NOTE,
        source=Source.INTERPRETER,
        title=title[:300],
        evidence={
            "modelled_us": total,
            "launches": len(parts),
            "dram_us": sum(part.dram_us for part in parts),
            "l2_us": sum(part.l2_us for part in parts),
            "dot_us": sum(part.dot_us for part in parts),
            "alu_us": sum(part.alu_us for part in parts),
            "launch_us": sum(part.launch_us for part in parts),
        },
        location=Location(
            kernel=largest.name[:200] if largest.is_own else None,
            line=largest.line if largest.is_own else None,
        ),
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
