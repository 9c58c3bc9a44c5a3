"""Entries that travel between installations."""

from collections.abc import Sequence

from django.db import transaction

from evolution_app import permissions
from evolution_app.models import AuditEvent, ExperienceEntry, User
from evolution_app.services.entries import add_version
from evolution_app.services.errors import NotAllowed
from gpu_runner.core.entries import EntryContent, EntryState


@transaction.atomic
def import_entries(*, by: User, entries: Sequence[tuple[str, EntryContent]]) -> int:
    """Take over all entries, or none if one cannot be; how many changed something."""
    return sum(import_entry(by=by, uid=uid, content=content)[1] for uid, content in entries)


@transaction.atomic
def import_entry(*, by: User, uid: str, content: EntryContent) -> tuple[ExperienceEntry, bool]:
    """Take over an entry that was exported elsewhere; idempotent by uid and content.

    Returns:
        The entry, and whether anything changed. It arrives nominated, without evidence: nothing is
        approved because another installation approved it.
    """
    if not permissions.may_review(by):
        raise NotAllowed("only experts import entries")
    entry = ExperienceEntry.objects.select_for_update().filter(uid=uid).first()
    if (
        entry is not None
        and not ExperienceEntry.objects.visible_to(by).filter(pk=entry.pk).exists()
    ):
        raise NotAllowed("an entry of that uid exists that you cannot see")
    if entry is not None and entry.content == content:
        return entry, False
    if entry is None:
        entry = ExperienceEntry.objects.create(uid=uid, state=EntryState.NOMINATED, nominated_by=by)
    add_version(entry, content, by, note="imported")
    AuditEvent.objects.log(actor=by, verb="entry.imported", target=entry)
    return entry, True
