"""Only execution admits: an entry's code before and after is run again, on its own task and on others that it claims to fit.

Every evaluation draws fresh seeds. The code before is the baseline of the code after, so that on a GPU both are timed
interleaved, in fresh placements, and their ratio has an interval. What was found is kept, also where it fails.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from pydantic import BaseModel, ConfigDict, Field

from gpu_runner.core.entries import EntryContent
from gpu_runner.core.evaluation import Evaluation, Ratio
from gpu_runner.core.starting_entries import GAINS
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Fidelity, State
from gpu_runner.experience.interfaces import same_interface
from gpu_runner.experience.queries import operators_of

MOST_OTHERS: Final = 4
"""Other tasks that are tried; the first that the entry fits ends the search."""


class Evaluator(Protocol):
    """The part of an evaluation pool that verification uses."""

    def inspect(self, task: TaskSpec) -> TaskReport: ...

    def evaluate(self, task: TaskSpec, source: str) -> Evaluation: ...


class Trial(BaseModel):
    """The code before and after on one task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_name: str
    task_key: str
    is_own: bool
    before: str = Field(description="verdict, or verdict/kind")
    after: str
    device: str = ""
    fidelity: Fidelity | None = None
    ratio: float | None = Field(default=None, description="time before / time after")
    low: float | None = None
    high: float | None = None
    holds: bool
    reason: str = Field(default="", description="why it does not hold; empty where it does")


class Verification(BaseModel):
    """What running an entry found; `reason` says why it was not accepted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accepted: bool
    reason: str = ""
    trials: tuple[Trial, ...] = ()


def verify(
    entry: EntryContent,
    pool: Evaluator,
    own: TaskSpec,
    others: Iterable[TaskSpec] = (),
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> Verification:
    """Run an entry's code again and say whether its claim holds.

    Args:
        own: the task that it comes from, or the one that it brings along.
        others: tasks that it may fit, the likeliest first: of the built-in suite, or of another owner.
        is_over: whether the budget is spent; asked before each trial, and what was found until then decides.

    Raises:
        InvalidTask, RunnerError: as the pool does; the entry is not to blame.
    """
    if not (entry.before and entry.after):
        return Verification(
            accepted=False,
            reason="there is no code before and after to run: add both, or ask for a waiver",
        )
    trials = [_tried(entry, pool, own, is_own=True)]
    if not trials[0].holds:
        return Verification(
            accepted=False, reason=f"on its own task {trials[0].reason}", trials=(trials[0],)
        )
    for other in _fitting(entry, pool, own, others):
        if is_over():
            break
        trial = _tried(entry, pool, other, is_own=False)
        if not _ran(trial):
            continue
        trials.append(trial)
        if trial.holds:
            break
    failed = [trial for trial in trials[1:] if not trial.holds]
    if failed and len(failed) == len(trials) - 1:
        reason = f"it holds on its own task only: on {failed[0].task_name} {failed[0].reason}"
        return Verification(accepted=False, reason=reason, trials=tuple(trials))
    return Verification(accepted=True, trials=tuple(trials))


def _fitting(
    entry: EntryContent, pool: Evaluator, own: TaskSpec, others: Iterable[TaskSpec]
) -> Iterator[TaskSpec]:
    """Other tasks with the same interface and an operator and a dtype that the entry names."""
    found = 0
    for other in others:
        if other.source == own.source or not same_interface(own.source, other.source):
            continue
        report = pool.inspect(other)
        operators, dtypes = operators_of(report), {spec.dtype for spec in report.outputs}
        when = entry.when
        if when.operators and operators and not set(when.operators) & set(operators):
            continue
        if when.dtypes and not set(when.dtypes) & dtypes:
            continue
        yield other
        found += 1
        if found == MOST_OTHERS:
            return


def _ran(trial: Trial) -> bool:
    """Whether the code fits another task at all: code that is wrong there before and after says nothing about the lesson."""
    return "correct" in (trial.before, trial.after)


def _tried(entry: EntryContent, pool: Evaluator, task: TaskSpec, *, is_own: bool) -> Trial:
    plain = task.model_copy(update={"baseline_source": None})
    before = pool.evaluate(plain, entry.before)
    beside = task.model_copy(update={"baseline_source": entry.before})
    after = pool.evaluate(beside if before.is_correct else plain, entry.after)
    ratio = _ratio(before, after)
    reason = _reason(entry, before, after, ratio)
    return Trial(
        task_name=task.name,
        task_key=plain.key,
        is_own=is_own,
        before=_verdict(before),
        after=_verdict(after),
        device=after.device,
        fidelity=after.fidelity,
        ratio=ratio.ratio if ratio else None,
        low=ratio.low if ratio else None,
        high=ratio.high if ratio else None,
        holds=not reason,
        reason=reason,
    )


def _ratio(before: Evaluation, after: Evaluation) -> Ratio | None:
    """Interleaved where the evaluator timed both beside each other, else of two evaluations of one fidelity."""
    if not (before.is_correct and after.is_correct):
        return None
    if after.speedup.user is not None:
        return after.speedup.user
    if before.candidate is None or after.candidate is None or before.fidelity is not after.fidelity:
        return None
    return Ratio(ratio=before.candidate.device_us / after.candidate.device_us)


def _reason(entry: EntryContent, before: Evaluation, after: Evaluation, ratio: Ratio | None) -> str:
    """Why the claim does not hold here, in words; empty where it does."""
    if not after.is_correct:
        lead = f": {after.lead.title}" if after.lead else ""
        return f"the code after is {_verdict(after)}{lead}"[:500]
    if entry.cures:
        found = _verdict(before)
        return "" if found == entry.cures else f"the code before is {found}, not {entry.cures}"
    if not before.is_correct:
        lead = f": {before.lead.title}" if before.lead else ""
        return f"the code before is {_verdict(before)}{lead}"[:500]
    if ratio is None:
        return "no time of the code before and after can be compared"
    if ratio.low is not None and ratio.low <= 1:
        return f"the gain of {ratio.ratio:.3f} is within its interval ({ratio.low:.3f} to {ratio.high:.3f})"
    if ratio.low is None and ratio.ratio < GAINS:
        unseen = f", and {entry.unmodelled}" if entry.unmodelled else ""
        return f"the modelled gain is {ratio.ratio:.3f}, below {GAINS}{unseen}"
    return ""


def _verdict(evaluation: Evaluation) -> str:
    if evaluation.state is not State.FINISHED:
        return str(evaluation.state)
    return f"{evaluation.verdict}/{evaluation.kind}" if evaluation.kind else str(evaluation.verdict)
