"""What experts decide on entries."""

from typing import Any

from django.db import transaction

from evolution_app import permissions
from evolution_app.models import AuditEvent, ExperienceEntry, Review, User
from evolution_app.services.entries import add_version, fresh
from evolution_app.services.errors import NotAllowed, Refused
from gpu_runner.core.entries import EntryContent, EntryState


def waivers_needed(*, entry: ExperienceEntry, by: User) -> list[str]:
    """What an approval by this person would have to waive, in words for people; empty if nothing.

    Raises NotAllowed where no waiver helps.
    """
    if not permissions.may_review(by):
        raise NotAllowed("only experts review entries")
    needed = []
    if entry.nominated_by_id == by.pk:
        if not by.is_local_owner:
            raise NotAllowed("nobody approves what they nominated; ask another expert")
        needed.append("you nominated this entry yourself")
    if not entry.has_evidence():
        needed.append("no executed evidence shows a gain")
    return needed


@transaction.atomic
def approve_entry(
    *,
    entry: ExperienceEntry,
    by: User,
    version: int,
    reason: str = "",
    waiver: str = "",
    content: EntryContent | None = None,
) -> Review:
    """Let retrieval use an entry; with `content`, edit and approve in one step (the edit is the approver's).

    `version` is the number that the person read: Stale if there is a newer one. Missing evidence, or the local
    owner's own nomination, needs a `waiver` in words, which is kept.
    """
    entry = fresh(entry, version)
    needed = waivers_needed(entry=entry, by=by)
    if entry.state in (EntryState.REJECTED, EntryState.RETIRED):
        raise Refused(f"the entry is {entry.state}; restore it first")
    if needed and not waiver.strip():
        raise Refused(f"{' and '.join(needed)}: say why it should be approved all the same")
    decision = Review.Decision.APPROVE
    if content is not None:
        add_version(entry, content, by, note="edited while approving")
        decision = Review.Decision.EDIT_AND_APPROVE
    before = entry.state
    entry.state, entry.approved = EntryState.APPROVED, entry.current
    entry.save(update_fields=["state", "approved", "changed_at"])
    return _decide(entry, by, decision, before, reason, waiver if needed else "")


def _decide(
    entry: ExperienceEntry,
    by: User,
    decision: Review.Decision,
    before: Any,
    reason: str,
    waiver: str = "",
) -> Review:
    assert entry.current is not None
    review = Review.objects.create(
        entry=entry,
        version=entry.current,
        reviewer=by,
        decision=decision,
        reason=reason,
        waiver=waiver,
    )
    why = f"{reason} (waived: {waiver})".strip() if waiver else reason
    AuditEvent.objects.log(
        actor=by, verb=f"entry.{decision}", target=entry, before=before, after=entry.state, why=why
    )
    return review


def _reviewed(
    entry: ExperienceEntry,
    by: User,
    version: int,
    decision: Review.Decision,
    state: EntryState,
    reason: str,
) -> Review:
    """A decision that needs a reason and changes the state."""
    if not permissions.may_review(by):
        raise NotAllowed("only experts review entries")
    if not reason.strip():
        raise Refused("give a reason; whoever nominated the entry will read it")
    entry = fresh(entry, version)
    before, entry.state = entry.state, state
    if state is not EntryState.APPROVED:
        entry.approved = entry.approved if state is EntryState.RETIRED else None
    entry.save(update_fields=["state", "approved", "changed_at"])
    return _decide(entry, by, decision, before, reason)


@transaction.atomic
def request_changes(*, entry: ExperienceEntry, by: User, version: int, reason: str) -> Review:
    """Back to a draft, which its author edits and submits again."""
    return _reviewed(entry, by, version, Review.Decision.REQUEST_CHANGES, EntryState.DRAFT, reason)


@transaction.atomic
def reject_entry(*, entry: ExperienceEntry, by: User, version: int, reason: str) -> Review:
    return _reviewed(entry, by, version, Review.Decision.REJECT, EntryState.REJECTED, reason)


@transaction.atomic
def retire_entry(*, entry: ExperienceEntry, by: User, version: int, reason: str) -> Review:
    """Take an entry out of use; its history stays."""
    return _reviewed(entry, by, version, Review.Decision.RETIRE, EntryState.RETIRED, reason)


@transaction.atomic
def restore_entry(*, entry: ExperienceEntry, by: User, version: int, reason: str) -> Review:
    """Put a rejected or retired entry back into the review queue."""
    if entry.merged_into_id is not None:
        raise Refused("the entry was merged into another one")
    return _reviewed(entry, by, version, Review.Decision.RESTORE, EntryState.NOMINATED, reason)


@transaction.atomic
def merge_entry(
    *, entry: ExperienceEntry, into: ExperienceEntry, by: User, version: int, reason: str
) -> Review:
    """Retire an entry in favour of another that says the same; both keep their history."""
    if into.pk == entry.pk or into.merged_into_id is not None:
        raise Refused("merge into another entry that is not merged itself")
    if not ExperienceEntry.objects.visible_to(by).filter(pk=into.pk).exists():
        raise NotAllowed("you cannot see the entry to merge into")
    review = _reviewed(entry, by, version, Review.Decision.MERGE, EntryState.RETIRED, reason)
    ExperienceEntry.objects.filter(pk=entry.pk).update(merged_into=into)
    return review
