"""What experts decide on entries, and how they take it back.

What is open to whom in which state stands in one table, `gpu_runner.core.entry_states`. Here is what that table does not
know: who sees the entry, whose nomination it is, who is reviewing it just now, and that the newest version was read.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from django.db import transaction

from evolution_app import permissions
from evolution_app.models import AuditEvent, ExperienceEntry, Review, User
from evolution_app.services.deciding import actor_of, state_after
from evolution_app.services.entries import add_version, fresh
from evolution_app.services.errors import NotAllowed, Refused
from gpu_runner.core.entries import EntryContent, EntryState
from gpu_runner.core.entry_states import Actor, Decision


def waivers_needed(*, entry: ExperienceEntry, by: User) -> list[str]:
    """What an approval by this person would have to waive, in words for people; empty if nothing.

    Raises NotAllowed where no waiver helps.
    """
    _review_by(entry, by)
    needed = []
    if entry.nominated_by_id == by.pk:
        needed.append("you nominated this entry yourself")
    if not entry.has_evidence():
        needed.append("no executed evidence shows a gain")
    return needed


def _review_by(entry: ExperienceEntry, by: User) -> Actor:
    if not permissions.may_review(by):
        raise NotAllowed("only experts review entries")
    actor = actor_of(entry, by)
    if actor is not Actor.EXPERT:
        raise NotAllowed("nobody decides on what they nominated; ask another expert")
    return actor


def _ready(entry: ExperienceEntry, by: User, version: int) -> ExperienceEntry:
    """The entry, locked, as the reviewer read it and not in somebody else's hands."""
    if not permissions.may_review(by):
        raise NotAllowed("only experts review entries")
    entry = fresh(entry, version)
    claimant = entry.claimant
    if claimant is not None and claimant.pk != by.pk:
        raise Refused(
            f"{claimant.display_name} is reviewing this entry just now; take it over first, with a note that they will see"
        )
    return entry


@transaction.atomic
def approve_entry(
    *,
    entry: ExperienceEntry,
    by: User,
    version: int,
    reason: str = "",
    waiver: str = "",
    content: EntryContent | None = None,
    batch: str | None = None,
) -> Review:
    """Let retrieval use an entry, or confirm one that is used because it was checked.

    With `content`, edit and approve in one step; the edit is the approver's.
    `version` is the number that the person read: Stale if there is a newer one. Missing evidence, or the local
    owner's own nomination, needs a `waiver` in words, which is kept. What a model wrote must have been confirmed; who
    edits the entry confirms it.
    """
    entry = _ready(entry, by, version)
    needed = waivers_needed(entry=entry, by=by)
    decision = Decision.APPROVE if content is None else Decision.EDIT_AND_APPROVE
    state = state_after(entry, decision, Actor.EXPERT)
    if content is None and entry.content.by_model:
        raise Refused("a model wrote parts of it: read and confirm them, or edit them, first")
    if needed and not waiver.strip():
        raise Refused(f"{' and '.join(needed)}: say why it should be approved all the same")
    before, approved_before = entry.state, entry.approved
    if content is not None:
        content = content.model_copy(update={"by_model": ()})
        add_version(entry, content, by, note="edited while approving")
    entry.state, entry.approved = state, entry.current
    return _kept(
        entry,
        by,
        Review.Decision(decision.value),
        before,
        approved_before,
        reason,
        waiver=waiver if needed else "",
        batch=batch,
    )


def _kept(
    entry: ExperienceEntry,
    by: User,
    decision: Review.Decision,
    before: str,
    approved_before: Any,
    reason: str,
    *,
    waiver: str = "",
    batch: str | None = None,
    undoes: Review | None = None,
) -> Review:
    """Write the entry's new state, the decision and its trace; a decision ends its reviewer's claim."""
    assert entry.current is not None
    entry.claimed_by, entry.claimed_until = None, None
    entry.save(
        update_fields=[
            "state",
            "approved",
            "merged_into",
            "claimed_by",
            "claimed_until",
            "changed_at",
        ]
    )
    review = Review.objects.create(
        entry=entry,
        version=entry.current,
        reviewer=by,
        decision=decision,
        reason=reason,
        waiver=waiver,
        state_before=before,
        approved_before=approved_before,
        batch=batch or uuid.uuid4().hex,
        undoes=undoes,
    )
    why = f"{reason} (waived: {waiver})".strip() if waiver else reason
    AuditEvent.objects.log(
        actor=by, verb=f"entry.{decision}", target=entry, before=before, after=entry.state, why=why
    )
    return review


def _decided(
    entry: ExperienceEntry,
    by: User,
    version: int,
    decision: Decision,
    reason: str,
    batch: str | None = None,
    into: ExperienceEntry | None = None,
) -> Review:
    """A decision of the table that changes the state and needs a reason."""
    entry = _ready(entry, by, version)
    actor = _review_by(entry, by)
    state = state_after(entry, decision, actor, reason)
    before, approved_before = entry.state, entry.approved
    entry.state = state
    if state is not EntryState.RETIRED:
        entry.approved = None
    entry.merged_into = into
    kept = Review.Decision(decision.value)
    return _kept(entry, by, kept, before, approved_before, reason, batch=batch)


@transaction.atomic
def request_changes(
    *, entry: ExperienceEntry, by: User, version: int, reason: str, batch: str | None = None
) -> Review:
    """Back to a draft, which its author edits and submits again."""
    return _decided(entry, by, version, Decision.REQUEST_CHANGES, reason, batch)


@transaction.atomic
def reject_entry(
    *, entry: ExperienceEntry, by: User, version: int, reason: str, batch: str | None = None
) -> Review:
    return _decided(entry, by, version, Decision.REJECT, reason, batch)


@transaction.atomic
def retire_entry(
    *, entry: ExperienceEntry, by: User, version: int, reason: str, batch: str | None = None
) -> Review:
    """Take an entry out of use; its history stays."""
    return _decided(entry, by, version, Decision.RETIRE, reason, batch)


@transaction.atomic
def restore_entry(
    *, entry: ExperienceEntry, by: User, version: int, reason: str, batch: str | None = None
) -> Review:
    """Put a rejected or retired entry back into the review queue; one that was merged stands for itself again."""
    return _decided(entry, by, version, Decision.RESTORE, reason, batch)


@transaction.atomic
def merge_entry(
    *, entry: ExperienceEntry, into: ExperienceEntry, by: User, version: int, reason: str
) -> Review:
    """Retire an entry in favour of another that says the same; both keep their history, and the old address leads on."""
    if into.pk == entry.pk or into.merged_into_id is not None:
        raise Refused("merge into another entry that is not merged itself")
    if into.state in (EntryState.REJECTED, EntryState.RETIRED):
        raise Refused(f"the other entry is {into.state}; restore it first")
    if not ExperienceEntry.objects.visible_to(by).filter(pk=into.pk).exists():
        raise NotAllowed("you cannot see the entry to merge into")
    return _decided(entry, by, version, Decision.MERGE, reason, into=into)


# Several at once


def decide_together(
    *,
    chosen: Sequence[tuple[ExperienceEntry, int]],
    by: User,
    decide: Callable[..., Review],
    reason: str,
) -> tuple[str, list[ExperienceEntry], list[tuple[ExperienceEntry, str]]]:
    """One decision with one reason on several entries, each for itself: one that cannot be decided stops no other.

    Args:
        chosen: each entry with the number of the version that the person read.

    Returns:
        The name of the batch, by which it is taken back; the entries decided; the others, each with what stands in the way.
    """
    batch = uuid.uuid4().hex
    done: list[ExperienceEntry] = []
    refused: list[tuple[ExperienceEntry, str]] = []
    for entry, version in chosen:
        try:
            decide(entry=entry, by=by, version=version, reason=reason, batch=batch)
        except (Refused, NotAllowed) as error:
            refused.append((entry, str(error)))
        else:
            done.append(entry)
    return batch, done, refused


# Taking back


@transaction.atomic
def undo_reviews(*, batch: str, by: User) -> list[ExperienceEntry]:
    """Take back what one decided a moment ago: all of a batch, or nothing where an entry has changed since."""
    rows = Review.objects.filter(batch=batch, reviewer=by).select_related("entry")
    reviews = list(rows.of_people())
    if not reviews:
        raise Refused("there is nothing to take back")
    return [_undo(review, by) for review in reviews]


def _undo(review: Review, by: User) -> ExperienceEntry:
    entry = ExperienceEntry.objects.select_for_update().get(pk=review.entry_id)
    if not review.is_recent or review.state_before is None:
        raise Refused(f"it is too late to take back the decision on {entry}; decide again instead")
    newest = entry.reviews.order_by("-id").first()
    if newest is None or newest.pk != review.pk or entry.current_id != review.version_id:
        raise Refused(f"{entry} has changed since; decide again instead")
    before = entry.state
    approved_before = entry.approved
    entry.state, entry.approved = review.state_before, review.approved_before
    entry.merged_into = None
    reason = f"took back: {review.get_decision_display()}"
    _kept(entry, by, Review.Decision.UNDO, before, approved_before, reason, undoes=review)
    return entry
