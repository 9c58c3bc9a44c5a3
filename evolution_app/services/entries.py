"""Entries of the library as their authors handle them: nominate, edit, submit again, show to others."""

from django.db import transaction

from evolution_app import permissions
from evolution_app.models import (
    AuditEvent,
    Candidate,
    EntryVersion,
    Evidence,
    ExperienceEntry,
    Task,
    User,
)
from evolution_app.services.deciding import actor_of, state_after
from evolution_app.services.errors import NotAllowed, Refused, Stale
from gpu_runner.core.entries import EntryContent, EntryState
from gpu_runner.core.entry_states import Decision


def pair_of(candidate: Candidate) -> tuple[Candidate, float] | None:
    """The correct parent that a candidate improves on most, with time before / time after; None without one."""
    parents = candidate.parents.filter(device_us__isnull=False, fidelity=candidate.fidelity)
    timed = [
        (parent, parent.device_us)
        for parent in parents.select_related("source")
        if parent.device_us
    ]
    if candidate.device_us is None or not timed:
        return None
    parent, before_us = min(timed, key=lambda pair: pair[1])
    return parent, before_us / candidate.device_us


@transaction.atomic
def nominate_entry(*, candidate: Candidate, by: User, content: EntryContent) -> ExperienceEntry:
    """Put a lesson forward, with the candidate and its parent as evidence where both are correct and timed."""
    if not permissions.may_nominate(by, candidate):
        raise NotAllowed("you may nominate from your own candidates; experts from what they see")
    entry = ExperienceEntry.objects.create(
        state=EntryState.NOMINATED, task=candidate.run.task, candidate=candidate, nominated_by=by
    )
    add_version(entry, content, by, note="nominated")
    if pair := pair_of(candidate):
        add_evidence(
            entry, Evidence.Role.NOMINATION, before=pair[0], after=candidate, ratio=pair[1]
        )
    AuditEvent.objects.log(actor=by, verb="entry.nominated", target=entry)
    return entry


def add_evidence(
    entry: ExperienceEntry,
    role: Evidence.Role,
    *,
    before: Candidate,
    after: Candidate,
    ratio: float,
    low: float | None = None,
    high: float | None = None,
) -> Evidence:
    evaluation = after.latest_evaluation()
    return Evidence.objects.create(
        entry=entry,
        role=role,
        task=after.run.task,
        before=before,
        after=after,
        device=evaluation.device if evaluation else "",
        fidelity=after.fidelity,
        ratio=ratio,
        low=low,
        high=high,
    )


def add_version(
    entry: ExperienceEntry, content: EntryContent, author: User | None, note: str
) -> EntryVersion:
    number = (entry.current.number if entry.current else 0) + 1
    version = EntryVersion.objects.create(
        entry=entry,
        number=number,
        title=content.title,
        kind=content.kind,
        content=content.model_dump(mode="json"),
        author=author,
        note=note,
    )
    entry.current = version
    entry.save(update_fields=["current", "changed_at"])
    return version


def fresh(entry: ExperienceEntry, version: int) -> ExperienceEntry:
    """The entry, locked; Stale if `version` is not its newest."""
    entry = ExperienceEntry.objects.select_for_update().get(pk=entry.pk)
    if entry.current is None or entry.current.number != version:
        now = entry.current.number if entry.current else 0
        raise Stale(
            f"the entry is at version {now}, not {version}: look at what changed, then decide again"
        )
    return entry


@transaction.atomic
def edit_entry(
    *, entry: ExperienceEntry, by: User, version: int, content: EntryContent, note: str = ""
) -> EntryVersion:
    """Add a version; `version` is the number of the one that was edited. A version in use stays so beside it."""
    if not permissions.may_edit_entry(by, entry):
        raise NotAllowed(
            "experts edit entries; you may edit what you nominated until it is approved"
        )
    entry = fresh(entry, version)
    entry.state = state_after(entry, Decision.REVISE, actor_of(entry, by))
    added = add_version(entry, with_marks(content, entry.content), by, note or "edited")
    entry.save(update_fields=["state", "changed_at"])
    AuditEvent.objects.log(
        actor=by, verb="entry.edited", target=entry, before=version, after=added.number, why=note
    )
    return added


def with_marks(content: EntryContent, before: EntryContent) -> EntryContent:
    """What a model wrote stays marked where a person left it as it was."""
    unread = tuple(
        name for name in content.by_model if getattr(content, name) == getattr(before, name)
    )
    return content.model_copy(update={"by_model": unread})


@transaction.atomic
def confirm_entry(*, entry: ExperienceEntry, by: User, version: int) -> EntryVersion:
    """A person has read what a model wrote and stands in for it: a version without marks, in the same state."""
    if not permissions.may_edit_entry(by, entry):
        raise NotAllowed("experts confirm entries; you may confirm what you nominated")
    entry = fresh(entry, version)
    content = entry.content
    if not content.by_model:
        raise Refused("nothing in it waits for confirmation")
    confirmed = content.model_copy(update={"by_model": ()})
    added = add_version(entry, confirmed, by, note="confirmed what a model wrote")
    AuditEvent.objects.log(
        actor=by, verb="entry.confirmed", target=entry, before=list(content.by_model)
    )
    return added


@transaction.atomic
def resubmit_entry(*, entry: ExperienceEntry, by: User, version: int) -> None:
    """Nominate a draft: one that was distilled, or one of which changes were requested."""
    if not permissions.may_edit_entry(by, entry):
        raise NotAllowed("only who nominated it, or an expert, submits an entry again")
    entry = fresh(entry, version)
    entry.state = state_after(entry, Decision.SUBMIT, actor_of(entry, by))
    entry.save(update_fields=["state", "changed_at"])
    AuditEvent.objects.log(actor=by, verb="entry.resubmitted", target=entry)


@transaction.atomic
def share_entry(*, entry: ExperienceEntry, by: User, visibility: str) -> None:
    """Make an entry visible to more people than its task, or (empty) to the same ones again."""
    if visibility and visibility not in Task.Visibility.values:
        raise Refused(f"visibility is one of {', '.join(Task.Visibility.values)}")
    if not permissions.may_widen_entry(by, entry):
        raise NotAllowed(
            "only the owner of its task makes an entry more visible, unless the task is public"
        )
    before, entry.visibility = entry.visibility, visibility
    entry.save(update_fields=["visibility", "changed_at"])
    AuditEvent.objects.log(
        actor=by, verb="entry.visibility", target=entry, before=before, after=visibility
    )
