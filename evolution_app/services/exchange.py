"""Entries that travel between installations, and those that every installation starts with."""

from collections.abc import Iterable
from dataclasses import replace

from django.db import transaction

from evolution_app import permissions
from evolution_app.models import AuditEvent, Evidence, ExperienceEntry, Task, User
from evolution_app.services.entries import add_version
from evolution_app.services.errors import NotAllowed
from gpu_runner.core.entries import Entry, EntryContent, EntryState
from gpu_runner.core.entry_lines import LineReport, Outcome, planned
from gpu_runner.core.entry_states import IN_USE, Actor, Decision, next_state

MAX_IMPORT_BYTES = 16 * 1024 * 1024
_DISPROVED = "what it claims did not show when it was run"
_HIDDEN = "this uid is taken; give the entry another one"


def plan_import(*, by: User, text: str) -> list[LineReport]:
    """What importing exported lines would do, line by line; nothing is changed."""
    if not permissions.may_review(by):
        raise NotAllowed("only experts import entries")
    rows = ExperienceEntry.objects.exclude(current=None).select_related("current")
    visible = {entry.uid: entry.content for entry in rows.visible_to(by)}
    reports = planned(text, visible)
    unknown = [r.line.uid for r in reports if r.line is not None and r.line.uid not in visible]
    hidden = set(ExperienceEntry.objects.filter(uid__in=unknown).values_list("uid", flat=True))
    return [
        replace(report, outcome=Outcome.UNUSABLE, problem=_HIDDEN)
        if report.line is not None and report.line.uid in hidden
        else report
        for report in reports
    ]


@transaction.atomic
def import_lines(*, by: User, text: str) -> list[LineReport]:
    """Take over what `plan_import` says, or nothing at all where a line is unusable; again is no change."""
    reports = plan_import(by=by, text=text)
    if any(report.outcome is Outcome.UNUSABLE for report in reports):
        return reports
    for report in reports:
        if report.line is not None and report.outcome in (Outcome.NEW, Outcome.CHANGED):
            _take_over(by, report.line.uid, report.line.content)
    return reports


def _take_over(by: User, uid: str, content: EntryContent) -> None:
    """It arrives nominated, without evidence: nothing is approved because another installation approved it.

    A new version of an entry that is here leaves its approved version in use.
    """
    entry, is_new = ExperienceEntry.objects.select_for_update().get_or_create(
        uid=uid, defaults={"state": EntryState.NOMINATED, "nominated_by": by}
    )
    add_version(entry, content, by, note="imported")
    if not is_new and entry.state in (EntryState.VERIFIED, EntryState.DRAFT):
        entry.state = EntryState.NOMINATED
        entry.save(update_fields=["state"])
    AuditEvent.objects.log(actor=by, verb="entry.imported", target=entry)


@transaction.atomic
def load_starting_entries(*, entries: Iterable[Entry]) -> int:
    """Bring the entries that the project starts with up to date; how many changed. What people have touched stays theirs.

    They are the system's, seen by everybody, and come in the state that their record on file supports.
    """
    present = {
        entry.uid: entry
        for entry in ExperienceEntry.objects.select_related("current").filter(nominated_by=None)
    }
    return sum(_load(entry, present.get(entry.id)) for entry in entries)


def _state_shipped(shipped: Entry) -> EntryState:
    """Where the record of running it leads; no more than execution can say, since nobody has decided on it here."""
    decision = {
        EntryState.CHECKED: Decision.ADMIT,
        EntryState.NOMINATED: Decision.SUBMIT,
        EntryState.REJECTED: Decision.DISPROVE,
    }.get(shipped.state)
    if decision is None:
        return EntryState.DRAFT
    return next_state(EntryState.DRAFT, decision, Actor.SYSTEM, reason=_DISPROVED)


def _was_touched(entry: ExperienceEntry) -> bool:
    return entry.reviews.exists() or entry.versions.exclude(author=None).exists()


def _load(shipped: Entry, entry: ExperienceEntry | None) -> bool:
    if entry is None:
        entry = ExperienceEntry.objects.create(
            uid=shipped.id, state=EntryState.DRAFT, visibility=Task.Visibility.PUBLIC
        )
    elif entry.content == shipped.content or _was_touched(entry):
        return False
    version = add_version(entry, shipped.content, None, note="comes with the project")
    entry.state = _state_shipped(shipped)
    entry.approved = version if entry.state in IN_USE else None
    entry.save(update_fields=["state", "approved", "changed_at"])
    for effect in shipped.content.effects:
        Evidence.objects.create(
            entry=entry,
            version=version,
            role=Evidence.Role.VERIFICATION,
            device=effect.device,
            fidelity=effect.fidelity,
            ratio=effect.ratio,
            low=effect.low,
            high=effect.high,
        )
    why = _DISPROVED if entry.state is EntryState.REJECTED else ""
    AuditEvent.objects.log(
        actor=None, verb="entry.loaded", target=entry, after=entry.state, why=why
    )
    return True
