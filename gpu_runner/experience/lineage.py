"""Learning from an expert's kernel: walk it backwards, technique by technique, and turn each step that costs time around.

A step takes one technique out of the kernel. Where the simpler kernel still compiles, passes and is slower, the way back is a
lesson: its code before and after, its effect, and when it applies, which is read off what the diagnosis says about the simpler
kernel and does not say about the expert's. A step that fails says what the technique rests on. After each technique was
measured alone, those that cost least are taken out one after the other, so that the lineage from the plainest kernel that still
passes to the expert's is known as well.

Source: the backward simplification of KLineage; conditions as sets of findings, and the two orders of steps, are our choice.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gpu_runner.core.entries import Effect, EntryContent, EntryKind, Provenance, When
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.starting_entries import GAINS
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Fidelity, State
from gpu_runner.experience.conditions import hardware_of
from gpu_runner.experience.queries import operators_of
from gpu_runner.experience.techniques import TECHNIQUES

SIMPLIFICATIONS: Final = "gpu_runner.proposals.child.simplifications:simplifications"

OF_THE_CALL: Final = frozenset(
    {"launches", "extra_kernels", "needless_copies", "outside_own_kernels", "at_memory_ceiling"}
)
"""Findings about several kernels together."""

Evaluate = Callable[[str], Evaluation]
"""Evaluates and diagnoses one source on the lineage's task."""
Simplify = Callable[[str], "tuple[Step, ...]"]


class Step(BaseModel):
    """A simpler source as the child answers it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    technique: str = Field(max_length=60)
    site: str = Field(max_length=200)
    source: str = Field(max_length=128 * 1024)
    move: str = Field(max_length=300)


class Tried(BaseModel):
    """What a step back did; `cost` is the simpler kernel's time over the richer one's, None where it failed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: Step
    verdict: str
    title: str = Field(default="", description="of the leading finding, where it failed")
    cost: float | None = None
    shown: tuple[str, ...] = Field(
        default=(), description="kinds that the simpler kernel shows, or its call as a whole"
    )
    findings: tuple[str, ...] = Field(
        default=(), description="those of them that the richer kernel does not show"
    )
    device: str = ""
    fidelity: Fidelity | None = None

    @property
    def costs(self) -> bool:
        return self.cost is not None and self.cost >= GAINS


class Lineage(BaseModel):
    """The steps from an expert's kernel, each alone, and the walk back through those that passed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    expert: str
    alone: tuple[Tried, ...] = ()
    walk: tuple[Tried, ...] = ()
    left_out: int = Field(default=0, description="steps for which the budget did not suffice")


class UnfitExpert(ValueError):
    """The expert's kernel is not correct or was not timed on this task: there is nothing to walk back from."""


_STEPS = TypeAdapter(tuple[Step, ...])


def steps_of(answer: dict[str, object]) -> tuple[Step, ...]:
    """The child's answer, checked."""
    return _STEPS.validate_python(answer["steps"])


def trace(expert: str, evaluate: Evaluate, simplify: Simplify, *, evaluations: int = 32) -> Lineage:
    """Take each technique out of an expert's kernel alone, then one after the other.

    Args:
        evaluations: the budget, the expert's own included.

    Raises:
        UnfitExpert: the expert's kernel does not pass.
    """
    first = evaluate(expert)
    if not first.is_correct or first.candidate is None:
        lead = f": {first.lead.title}" if first.lead else ""
        raise UnfitExpert(f"the expert's kernel is {_verdict(first)}{lead}")
    steps = spread(simplify(expert))
    affordable = steps[: max(0, evaluations - 1)]
    alone = tuple(_tried(step, first, evaluate(step.source)) for step in affordable)
    left = evaluations - 1 - len(affordable)
    passed = sorted((t for t in alone if t.cost is not None), key=lambda t: t.cost or 0.0)
    walk = _walk(
        expert, first, [(t.step.technique, t.step.site) for t in passed], evaluate, simplify, left
    )
    return Lineage(expert=expert, alone=alone, walk=walk, left_out=len(steps) - len(affordable))


def spread(steps: Sequence[Step]) -> tuple[Step, ...]:
    """One step of each technique before a second one of any, so that a small budget sees them all."""
    turns: Counter[str] = Counter()
    numbered = []
    for step in steps:
        numbered.append((turns[step.technique], step))
        turns[step.technique] += 1
    return tuple(step for _, step in sorted(numbered, key=lambda pair: pair[0]))


def _walk(
    source: str,
    richer: Evaluation,
    order: Sequence[tuple[str, str]],
    evaluate: Evaluate,
    simplify: Simplify,
    budget: int,
) -> tuple[Tried, ...]:
    """Steps on top of each other; one that no longer passes is not taken."""
    walk: list[Tried] = []
    for technique, site in order[:budget]:
        step = next(
            (s for s in simplify(source) if (s.technique, s.site) == (technique, site)), None
        )
        if step is None:
            continue
        simpler = evaluate(step.source)
        tried = _tried(step, richer, simpler)
        walk.append(tried)
        if tried.cost is not None:
            source, richer = step.source, simpler
    return tuple(walk)


def _tried(step: Step, richer: Evaluation, simpler: Evaluation) -> Tried:
    if not simpler.is_correct or simpler.candidate is None or richer.candidate is None:
        title = simpler.lead.title if simpler.lead else ""
        return Tried(step=step, verdict=_verdict(simpler), title=title)
    known, shown = set(kinds_of(richer)), kinds_of(simpler, step.site.partition(".")[0])
    return Tried(
        step=step,
        verdict="correct",
        cost=simpler.candidate.device_us / richer.candidate.device_us,
        shown=shown,
        findings=tuple(kind for kind in shown if kind not in known),
        device=simpler.device,
        fidelity=simpler.fidelity,
    )


def kinds_of(evaluation: Evaluation, kernel: str = "") -> tuple[str, ...]:
    """The kinds of a diagnosed evaluation's findings, the leading one first, each once.

    Args:
        kernel: leave out what is found in other kernels than this one and its second half; what is found of the whole call
            counts in any case, wherever it points.
    """
    return tuple(
        dict.fromkeys(
            finding.kind
            for finding in evaluation.findings
            if not kernel
            or finding.kind in OF_THE_CALL
            or finding.location.kernel in (None, kernel, f"{kernel}_rest")
        )
    )


def lessons(lineage: Lineage, task: TaskSpec, report: TaskReport) -> tuple[EntryContent, ...]:
    """The steps that cost time, turned around: of each technique, and of what its lack shows, the one that costs most."""
    best: dict[tuple[str, tuple[str, ...]], Tried] = {}
    for tried in lineage.alone:
        key = tried.step.technique, tried.findings
        known = best.get(key)
        if tried.costs and (known is None or (tried.cost or 0) > (known.cost or 0)):
            best[key] = tried
    broken = [tried for tried in lineage.alone if tried.cost is None]
    return tuple(_lesson(tried, lineage.expert, broken, task, report) for tried in best.values())


def _lesson(
    tried: Tried, expert: str, broken: Sequence[Tried], task: TaskSpec, report: TaskReport
) -> EntryContent:
    technique = TECHNIQUES[tried.step.technique]
    kernel = tried.step.site.partition(".")[0]
    failures = [t for t in broken if t.step.site.partition(".")[0] == kernel]
    assert tried.cost is not None
    assert tried.fidelity is not None
    effect = Effect(
        device=task.target if tried.fidelity is Fidelity.MODELLED else tried.device,
        fidelity=tried.fidelity,
        track=task.track,
        precision=task.precision,
        ratio=tried.cost,
    )
    return EntryContent(
        kind=EntryKind.TECHNIQUE,
        title=f"{technique.title} ({tried.step.site} in {task.name})"[:200],
        when=When(
            operators=operators_of(report),
            bottlenecks=tried.findings or technique.shows,
            dtypes=tuple(dict.fromkeys(spec.dtype for spec in report.outputs)),
            hardware=(hardware_of(effect, task),),
            tracks=(task.track,),
        ),
        not_when=technique.not_when,
        action=f"{technique.action} Learned by taking it out of an expert's kernel: {tried.step.move}.",
        before=tried.step.source,
        after=expert,
        task=task.source,
        effects=(effect,),
        preconditions=technique.precondition,
        if_violated="; ".join(
            f"{t.step.move}: {t.verdict}{', ' + t.title if t.title else ''}" for t in failures
        )[:2000],
        provenance=Provenance(
            task_name=task.name,
            task_key=task.key,
            origin=f"learn:{tried.step.technique}:{tried.step.site}"[:80],
        ),
    )


def _verdict(evaluation: Evaluation) -> str:
    if evaluation.state is not State.FINISHED:
        return str(evaluation.state)
    return f"{evaluation.verdict}/{evaluation.kind}" if evaluation.kind else str(evaluation.verdict)
