"""Working on the library together: soft claims, comments, and views that one saves."""

from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from evolution_app import permissions
from evolution_app.models import AuditEvent, EntryComment, ExperienceEntry, SavedView, User
from evolution_app.services.errors import NotAllowed, Refused

CLAIM_FOR: Final = timedelta(minutes=15)
MAX_COMMENT: Final = 4000


@transaction.atomic
def claim_entry(*, entry: ExperienceEntry, by: User, note: str = "") -> None:
    """Say that one is reviewing an entry; others see it, and may take it over with a note. It ends by itself."""
    if not permissions.may_review(by):
        raise NotAllowed("only experts review entries")
    entry = ExperienceEntry.objects.select_for_update().get(pk=entry.pk)
    held_by = entry.claimant
    if held_by is not None and held_by.pk != by.pk and not note.strip():
        raise Refused(
            f"{held_by.display_name} is reviewing it just now; to take it over, write a note that they will see"
        )
    entry.claimed_by, entry.claimed_until = by, timezone.now() + CLAIM_FOR
    entry.save(update_fields=["claimed_by", "claimed_until"])
    if held_by is not None and held_by.pk != by.pk:
        comment(entry=entry, by=by, text=f"Taken over from {held_by.display_name}: {note.strip()}")
        AuditEvent.objects.log(
            actor=by, verb="entry.taken_over", target=entry, before=held_by.username, why=note
        )


@transaction.atomic
def release_entry(*, entry: ExperienceEntry, by: User) -> None:
    if not permissions.may_review(by):
        raise NotAllowed("only experts review entries")
    ExperienceEntry.objects.filter(pk=entry.pk, claimed_by=by).update(
        claimed_by=None, claimed_until=None
    )


@transaction.atomic
def comment(*, entry: ExperienceEntry, by: User, text: str) -> EntryComment:
    if not permissions.may_submit(by):
        raise NotAllowed("viewers do not comment; an operator can make you a submitter")
    if not text.strip():
        raise Refused("write something")
    if len(text) > MAX_COMMENT:
        raise Refused(f"a comment has at most {MAX_COMMENT:,} characters")
    assert entry.current is not None
    return EntryComment.objects.create(
        entry=entry, version=entry.current, author=by, text=text.strip()
    )


@transaction.atomic
def save_view(*, user: User, name: str, query: str) -> SavedView:
    """Keep a search under a name; the same name again replaces it."""
    name, query = name.strip(), query.removeprefix("?")
    if not name or len(name) > 60:
        raise Refused("give the view a name of at most 60 characters")
    if len(query) > 500:
        raise Refused("the search is too long to be kept")
    return SavedView.objects.update_or_create(user=user, name=name, defaults={"query": query})[0]


@transaction.atomic
def forget_view(*, user: User, view_id: int) -> None:
    SavedView.objects.filter(user=user, pk=view_id).delete()
