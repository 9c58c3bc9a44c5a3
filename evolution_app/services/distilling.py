"""Drafts that runs made: what waits to be reduced to the change that its gain rests on, and is then nominated."""

from django.db import transaction

from evolution_app.models import AuditEvent, ExperienceEntry
from evolution_app.services.entries import add_version, fresh
from gpu_runner.core.entries import EntryContent, EntryState
from gpu_runner.core.entry_states import Actor, Decision, next_state

DISTILLED = "distilled"
"""The note of the first version of a draft that a run made."""


def next_draft() -> ExperienceEntry | None:
    """The oldest draft that a run made and that nobody, the runner included, has touched; None without any."""
    drafts = ExperienceEntry.objects.filter(
        state=EntryState.DRAFT, nominated_by=None, task__isnull=False, current__note=DISTILLED
    )
    return drafts.select_related("current", "task").order_by("id").first()


@transaction.atomic
def record_reduction(
    *, entry: ExperienceEntry, version: int, content: EntryContent, note: str = ""
) -> ExperienceEntry:
    """Keep the smaller form of a draft as its next version, and nominate it for verification.

    Raises:
        Stale: the draft was edited meanwhile.
        NotAllowedNow: somebody has decided on it meanwhile.
    """
    entry = fresh(entry, version)
    if not note:
        is_same = content == entry.content
        note = "nothing can be left out" if is_same else "reduced to what the gain rests on"
    add_version(entry, content, None, note=note[:500])
    before = entry.state
    entry.state = next_state(EntryState(entry.state), Decision.SUBMIT, Actor.SYSTEM)
    entry.save(update_fields=["state", "changed_at"])
    AuditEvent.objects.log(
        actor=None, verb="entry.nominated", target=entry, before=before, after=entry.state, why=note
    )
    return entry
