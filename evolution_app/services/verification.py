"""What execution says of entries: which nomination is to be run next, on which tasks, and what was found.

The runner runs them (`gpu_runner.experience.verification`); here is their queue, and the record that moves them on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q

from evolution_app import suite
from evolution_app.models import AuditEvent, Evidence, ExperienceEntry, Task
from evolution_app.services.entries import fresh
from gpu_runner.core.entries import EntryState
from gpu_runner.core.entry_states import Actor, Decision, next_state
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Fidelity

MOST_OTHER_TASKS = 50


@dataclass(frozen=True)
class Trial:
    """The code before and after on one task; `ratio` None where no times could be compared.

    Args:
        task_key: of the task that it ran on; the newest task of that key is named beside the evidence.
    """

    task_key: str
    device: str
    fidelity: Fidelity | None
    ratio: float | None
    low: float | None = None
    high: float | None = None


def next_to_verify(*, is_modelled: bool) -> ExperienceEntry | None:
    """The nomination that has waited longest and has code to run; None without any.

    Args:
        is_modelled: whether speed would be modelled, which says nothing about entries that are marked as unmodelled.
    """
    waiting = ExperienceEntry.objects.filter(state=EntryState.NOMINATED).exclude(current=None)
    waiting = waiting.exclude(current__content__before="").exclude(current__content__after="")
    for entry in waiting.select_related("current", "task").order_by("changed_at", "id"):
        has_task = bool(entry.content.task) or entry.task is not None
        if has_task and not (is_modelled and entry.content.unmodelled):
            return entry
    return None


def own_task(entry: ExperienceEntry) -> TaskSpec:
    """The task that an entry brings along, or the one that it was learned on."""
    content = entry.content
    if content.task:
        known = {"name": content.title[:120], "source": content.task}
        if content.effects:
            known |= {"track": content.effects[0].track, "precision": content.effects[0].precision}
        return TaskSpec.model_validate(known)
    assert entry.task is not None, f"entry {entry.pk} has no task to run on"
    return entry.task.spec()


def other_tasks(entry: ExperienceEntry) -> list[TaskSpec]:
    """Public tasks of other owners, the newest first, then the built-in suite: a claim is trusted as far as its task is."""
    owner = entry.task.owner_id if entry.task is not None else None
    of_others = Q(visibility=Task.Visibility.PUBLIC) & ~Q(owner=owner)
    rows = Task.objects.filter(of_others).order_by("-id")
    public = rows.select_related("source", "baseline_source")[:MOST_OTHER_TASKS]
    built_in = (TaskSpec(name=one.title, source=one.source) for one in suite.examples())
    specs = [*(task.spec() for task in public), *built_in]
    return list({spec.key: spec for spec in specs}.values())


@transaction.atomic
def record_verification(
    *, entry: ExperienceEntry, version: int, accepted: bool, reason: str, trials: Sequence[Trial]
) -> ExperienceEntry:
    """Keep every trial, also those that show no gain, and move the entry on: verified, or back to its author with the reason.

    Raises:
        Stale: the entry was edited meanwhile; the newer version waits for a verification of its own.
        NotAllowedNow: somebody has decided on it meanwhile.
    """
    entry = fresh(entry, version)
    decision = Decision.VERIFY if accepted else Decision.FAIL_VERIFICATION
    before = entry.state
    entry.state = next_state(EntryState(entry.state), decision, Actor.SYSTEM, reason=reason)
    entry.save(update_fields=["state", "changed_at"])
    for trial in trials:
        if trial.ratio is None or trial.fidelity is None:
            continue
        Evidence.objects.create(
            entry=entry,
            version=entry.current,
            role=Evidence.Role.VERIFICATION,
            task=Task.objects.filter(key=trial.task_key).order_by("-id").first(),
            device=trial.device[:120],
            fidelity=trial.fidelity,
            ratio=trial.ratio,
            low=trial.low,
            high=trial.high,
        )
    verb = "entry.verified" if accepted else "entry.not_verified"
    AuditEvent.objects.log(
        actor=None, verb=verb, target=entry, before=before, after=entry.state, why=reason
    )
    return entry
