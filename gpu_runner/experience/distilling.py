"""A step that paid becomes a draft of an entry: when, action, before and after, measured effect.

A draft claims nothing: it is verified by execution and approved by a person before anybody is shown it.
"""

from typing import Final

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.entries import Effect, EntryContent, EntryKind, Provenance, When
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.experience.changes import changes
from gpu_runner.experience.conditions import hardware_of
from gpu_runner.experience.queries import operators_of

WORTH_KEEPING: Final = 1.1
"""Smallest gain over the parent, its interval's lower end where it was measured."""


def distil(
    parent: Candidate, child: Candidate, task: TaskSpec, report: TaskReport
) -> EntryContent | None:
    """A draft of an entry from one step, or None where the step did not gain enough or cannot be compared."""
    effect = _effect(parent.evaluation, child.evaluation)
    if effect is None or (effect.ratio if effect.low is None else effect.low) < WORTH_KEEPING:
        return None
    changed = changes(parent.source, child.source)
    return EntryContent(
        kind=EntryKind.TECHNIQUE,
        title=(child.move or "; ".join(changed) or "a change without a description")[:200],
        when=When(
            operators=operators_of(report),
            bottlenecks=_mended(parent.evaluation, child.evaluation),
            dtypes=tuple(dict.fromkeys(spec.dtype for spec in report.outputs)),
            hardware=(hardware_of(effect, task),),
            tracks=(task.track,),
        ),
        action=_action(parent, child, changed),
        before=parent.source,
        after=child.source,
        effects=(effect,),
        provenance=Provenance(
            task_name=task.name,
            task_key=task.key,
            parent_id=parent.id,
            candidate_id=child.id,
            origin=child.origin,
        ),
    )


def _effect(before: Evaluation | None, after: Evaluation | None) -> Effect | None:
    """Only times of one fidelity and one device are compared."""
    if before is None or after is None or before.fidelity is not after.fidelity:
        return None
    old, new = before.speedup.eager, after.speedup.eager
    comparable = before.device == after.device and before.is_correct and after.is_correct
    if old is None or new is None or after.fidelity is None or not comparable:
        return None
    return Effect(
        device=after.device,
        fidelity=after.fidelity,
        track=after.track,
        precision=after.precision,
        ratio=new.ratio / old.ratio,
        low=_quotient(new.low, old.high),
        high=_quotient(new.high, old.low),
    )


def _quotient(new: float | None, old: float | None) -> float | None:
    """The end of the interval of a ratio of ratios, from the ends that lie furthest apart; wider than it need be."""
    return new / old if new is not None and old else None


def _mended(before: Evaluation | None, after: Evaluation | None) -> tuple[str, ...]:
    """Kinds of findings that the step took away, at most three; the leading finding where none went."""
    if before is None or after is None:
        return ()
    left = {finding.kind for finding in after.findings}
    kinds = dict.fromkeys(finding.kind for finding in before.findings)
    gone = tuple(kind for kind in kinds if kind not in left)[:3]
    return gone or tuple(kinds)[:1]


def _action(parent: Candidate, child: Candidate, changed: tuple[str, ...]) -> str:
    lead = parent.evaluation.lead if parent.evaluation else None
    found = f"The diagnosis said: {lead.title}" if lead else "There was no diagnosis."
    advice = f" {lead.suggestion}" if lead and lead.suggestion else ""
    what = f" What changed: {'; '.join(changed)}." if changed else ""
    return f"{child.move or 'Changed without a description'}.{what} {found}{advice}"[:4000]
