"""What one task of a suite came to, read from the ledger of its run."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpu_runner.bench.kinds import UNTRACED, kind_of
from gpu_runner.bench.roofline import least_us
from gpu_runner.core.candidate import Candidate
from gpu_runner.core.evaluation import Evaluation, Ratio, Timing
from gpu_runner.core.graph import Graph
from gpu_runner.core.ledger import Ledger
from gpu_runner.core.targets import TARGETS
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Fidelity, Precision, Track
from gpu_runner.evolution.results import counts

FINGERPRINT: Final = (
    "gpu",
    "gpu_memory",
    "driver",
    "cpu",
    "cores",
    "sandbox",
    "evaluator",
    "torch",
    "triton",
    "python",
    "target",
)
"""What an evaluation's environment says of where it was run; the rest is of its task, or of this one evaluation."""


class Outcome(StrEnum):
    """`done`: its run is over, with or without a correct kernel; `invalid`: the task is unusable; `failed`: we failed on it,
    so that it is tried again the next time; `waiting`: not begun, or stopped before its end."""

    DONE = "done"
    INVALID = "invalid"
    FAILED = "failed"
    WAITING = "waiting"


class Figures(BaseModel):
    """One evaluation of a correct kernel; times of one call in microseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel_us: float | None
    eager_us: float | None
    torch_compile_us: float | None
    peak_bytes: int | None = Field(default=None, description="of the kernel; None: not known")
    eager_peak_bytes: int | None = None
    over_eager: Ratio | None
    over_torch_compile: Ratio | None


class Best(BaseModel):
    """The kernel that is published.

    `figures` are those of its last evaluation, and what every summary counts; `selected` are those that it won the search
    with, None where nothing was timed again: modelled times, or a last timing that failed for a reason of ours.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    candidate_id: int
    generation: int
    origin: str
    figures: Figures
    selected: Figures | None = None


class Row(BaseModel):
    """One task on one track under one precision policy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    level: str
    kind: str = UNTRACED
    track: Track
    precision: Precision
    key: str = Field(description="of the task as `TaskSpec.key` has it; empty for an invalid one")
    outcome: Outcome
    reason: str = Field(default="", description="why it ended, or why there is no result")
    device: str = ""
    fidelity: Fidelity | None = None
    environment: dict[str, Any] = {}
    best: Best | None = None
    searched_in: tuple[str, ...] = Field(
        default=(), description="the sittings in which its candidates were evaluated"
    )
    counts: dict[str, int] = Field(default={}, description="candidates by verdict")
    evaluations: int = 0
    seconds: float = Field(default=0.0, description="wall time, other tasks beside it included")
    lock_s: float | None = Field(default=None, description="the device was held to time; None: n/a")
    roofline_us: float | None = Field(default=None, description="computed, see `bench.roofline`")
    curve: tuple[tuple[int, float], ...] = Field(
        default=(), description="best speedup over eager after so many evaluations, where it rose"
    )

    @property
    def id(self) -> tuple[str, Track, Precision]:
        return self.task, self.track, self.precision

    @property
    def is_final(self) -> bool:
        """Whether it is not run again."""
        return self.outcome in (Outcome.DONE, Outcome.INVALID)

    @property
    def sitting(self) -> str:
        """Equal for rows of one device and one set of versions; empty where nothing was run."""
        return sitting_of(self.environment)

    @property
    def roofline_share(self) -> float | None:
        kernel_us = self.best.figures.kernel_us if self.best else None
        return self.roofline_us / kernel_us if self.roofline_us and kernel_us else None


def sitting_of(environment: Mapping[str, Any]) -> str:
    if not environment:
        return ""
    text = json.dumps(environment, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def place(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an environment that is equal for all tasks of a sitting; the target counts where times are modelled."""
    kept = {name: environment[name] for name in FINGERPRINT if name in environment}
    if kept.get("gpu"):
        kept.pop("target", None)
    return kept


def finished_row(
    name: str, level: str, ledger: Ledger, result: Mapping[str, Any], here: Mapping[str, Any]
) -> Row:
    """The row of a run that is over.

    Args:
        result: the note `result` of its ledger.
        here: the environment of this sitting, for a run in which nothing was evaluated.
    """
    task, candidates = ledger.spec.task, ledger.candidates()
    evaluations = [c.evaluation for c in candidates if c.evaluation is not None]
    best = _best(candidates, ledger, result)
    last = _published(ledger, best.candidate_id) if best else None
    shown = last or _evaluation_of(candidates, best) or (evaluations[-1] if evaluations else None)
    graph = _graph(ledger)
    return Row(
        task=name,
        level=level,
        kind=kind_of(graph),
        track=task.track,
        precision=task.precision,
        key=task.key,
        outcome=Outcome.DONE,
        reason=_reason(candidates, ledger, result),
        device=shown.device if shown else "",
        fidelity=shown.fidelity if shown else None,
        environment=place(shown.environment if shown else here),
        best=best,
        searched_in=tuple(dict.fromkeys(sitting_of(place(e.environment)) for e in evaluations)),
        counts=counts(candidates),
        evaluations=len(evaluations),
        seconds=round(ledger.spent().get("wall_s", 0.0), 1),
        lock_s=_sum(e.profile.get("held_s") for e in [*evaluations, *([last] if last else [])]),
        roofline_us=_roofline(graph, task, shown),
        curve=tuple(_curve(candidates, ledger)),
    )


def _reason(candidates: list[Candidate], ledger: Ledger, result: Mapping[str, Any]) -> str:
    """Why the run ended; where nothing was tried, what its log says of that."""
    log = "; ".join(str(note["text"]) for note in ledger.notes("log"))
    return str(result["stop_reason"]) if candidates or not log else log[:1000]


def figures_of(evaluation: Evaluation) -> Figures:
    kernel, eager = evaluation.candidate, evaluation.baselines.eager
    return Figures(
        kernel_us=_us(kernel),
        eager_us=_us(eager),
        torch_compile_us=_us(evaluation.baselines.torch_compile),
        peak_bytes=kernel.peak_bytes if kernel else None,
        eager_peak_bytes=eager.peak_bytes if eager else None,
        over_eager=evaluation.speedup.eager,
        over_torch_compile=evaluation.speedup.torch_compile,
    )


def _us(timing: Timing | None) -> float | None:
    return timing.device_us if timing else None


def _best(candidates: list[Candidate], ledger: Ledger, result: Mapping[str, Any]) -> Best | None:
    if result["best"] is None:
        return None
    best = next(c for c in candidates if c.id == result["best"]["candidate_id"])
    assert best.evaluation is not None, "the best was evaluated"
    last = _published(ledger, best.id)
    selected = figures_of(best.evaluation)
    return Best(
        candidate_id=best.id,
        generation=best.generation,
        origin=best.origin,
        figures=figures_of(last) if last else selected,
        selected=selected if last else None,
    )


def _published(ledger: Ledger, candidate_id: int) -> Evaluation | None:
    """The evaluation that was made of the best after the search had ended."""
    made = [n for n in ledger.notes("published") if n["candidate_id"] == candidate_id]
    return Evaluation.model_validate(made[-1]["evaluation"]) if made else None


def _evaluation_of(candidates: list[Candidate], best: Best | None) -> Evaluation | None:
    return next((c.evaluation for c in candidates if best and c.id == best.candidate_id), None)


def _graph(ledger: Ledger) -> Graph:
    reports = ledger.notes("report")
    try:
        return Graph.model_validate(reports[-1]["graph"]) if reports else Graph()
    except ValidationError:
        return Graph()


def _roofline(graph: Graph, task: TaskSpec, evaluation: Evaluation | None) -> float | None:
    target = TARGETS.get(str(evaluation.environment.get("target"))) if evaluation else None
    return least_us(graph, target, task.precision) if target else None


def _curve(candidates: list[Candidate], ledger: Ledger) -> Iterator[tuple[int, float]]:
    by_id = {candidate.id: candidate for candidate in candidates}
    told = [a["candidate"] for a in ledger.notes("answer") if a["event"] == "told"]
    best = 0.0
    for number, candidate_id in enumerate(dict.fromkeys(told), start=1):
        fitness = by_id[candidate_id].fitness
        if fitness > best:
            best = fitness
            yield number, best


def _sum(values: Iterator[Any]) -> float | None:
    known = [float(value) for value in values if isinstance(value, int | float)]
    return round(sum(known), 3) if known else None
