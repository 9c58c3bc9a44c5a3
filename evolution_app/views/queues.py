"""The queues of the library: which entries wait for whom, and for what."""

from datetime import timedelta
from typing import Any, Final

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from evolution_app.library_worth import measured_standings
from evolution_app.models import ExperienceEntry, Review, User
from gpu_runner.core.entries import EntryState
from gpu_runner.core.entry_states import IN_USE, OPEN
from gpu_runner.core.worth import Standing

WAITS_TOO_LONG: Final = timedelta(days=14)

REVIEW_QUEUES: Final = {
    "review": ("Waiting", "everything that waits for a decision"),
    "mine": ("Mine", "what you are reviewing, and drafts of yours that need changes"),
    "unassigned": ("Unassigned", "nobody is reviewing it just now"),
    "evidence": ("Needs evidence", "no executed pair shows a gain yet"),
    "unconfirmed": (
        "Unconfirmed",
        "in use because running it bore it out; no person has confirmed it yet",
    ),
    "disputed": ("Disputed", "experts have decided the same version differently"),
    "harmful": (
        "To retire?",
        "proposals gained less when they were shown it than when it was withheld",
    ),
    "stale": ("Stale", "in use with a newer version beside it, or waiting for two weeks"),
}
SHELVES: Final = {
    "used": ("In use", "what runs are shown: approved, or checked by execution"),
    "approved": ("Approved", "confirmed by an expert"),
    "drafts": ("Drafts", "distilled, or sent back for changes"),
    "rejected": ("Rejected", ""),
    "retired": ("Retired", ""),
    "all": ("All", ""),
}
QUEUES: Final = {**REVIEW_QUEUES, **SHELVES}

_FOR = (Review.Decision.APPROVE, Review.Decision.EDIT_AND_APPROVE, Review.Decision.RESTORE)
_AGAINST = (Review.Decision.REJECT, Review.Decision.REQUEST_CHANGES, Review.Decision.RETIRE)


def prepared(entries: QuerySet[ExperienceEntry]) -> Any:
    """With what the conditions ask for: whether it is supported, whether it is disputed."""
    standing = Review.objects.filter(entry=OuterRef("pk"), undone_by=None, decision__in=_FOR)
    disputed = standing.filter(
        version__reviews__decision__in=_AGAINST, version__reviews__undone_by=None
    )
    rows: Any = entries
    return rows.with_support().annotate(is_disputed=Exists(disputed))


def condition(queue: str, user: User) -> Q:
    """On prepared entries."""
    waiting = Q(state__in=OPEN)
    used = Q(state__in=IN_USE)
    held = Q(claimed_until__gt=timezone.now())
    long_ago = timezone.now() - WAITS_TOO_LONG
    return {
        "review": waiting,
        "mine": (waiting & held & Q(claimed_by=user))
        | Q(state=EntryState.DRAFT, nominated_by=user),
        "unassigned": waiting & ~held,
        "evidence": Q(state=EntryState.NOMINATED, is_supported=False),
        "disputed": Q(is_disputed=True) & (waiting | used),
        "harmful": used & Q(uid__in=_harmful()),
        "stale": (used & ~Q(current=F("approved"))) | (waiting & Q(changed_at__lt=long_ago)),
        "unconfirmed": Q(state=EntryState.CHECKED),
        "used": used,
        "approved": Q(state=EntryState.APPROVED),
        "drafts": Q(state=EntryState.DRAFT),
        "rejected": Q(state=EntryState.REJECTED),
        "retired": Q(state=EntryState.RETIRED),
        "all": Q(),
    }[queue]


def _harmful() -> list[str]:
    """Uids of entries that do harm; never none at all, since Django counts nothing of a query with an empty list in it."""
    found = [uid for uid, standing in measured_standings().items() if standing is Standing.RETIRE]
    return found or ["-"]


def counts(entries: QuerySet[ExperienceEntry], user: User) -> dict[str, int]:
    """How many entries stand in each queue; one query."""
    asked: Any = {queue: Count("pk", filter=condition(queue, user)) for queue in QUEUES}
    found: dict[str, int] = prepared(entries).aggregate(**asked)
    return found


def next_after(
    entry: ExperienceEntry, queue: str, entries: QuerySet[ExperienceEntry], user: User
) -> ExperienceEntry | None:
    """The entry of the queue that follows by number, from the start again at its end; None when it is empty."""
    rows = prepared(entries).filter(condition(queue, user)).exclude(pk=entry.pk).order_by("pk")
    following: ExperienceEntry | None = rows.filter(pk__gt=entry.pk).first() or rows.first()
    return following
