"""Entries that say much the same as one, from an index that is built again when the library has changed."""

from functools import lru_cache

from django.db.models import Max

from evolution_app.models import EntryVersion, ExperienceEntry, User
from gpu_runner.core.entries import EntryContent, EntryState
from gpu_runner.core.similar import Alike


def similar_to(entry: ExperienceEntry, user: User) -> list[tuple[ExperienceEntry, float]]:
    """Entries that the person may see and that are in use or wait, the most similar first; two queries."""
    newest = EntryVersion.objects.aggregate(newest=Max("id"))["newest"] or 0
    found = dict(_index(newest).like(text_of(entry.content), without=[entry.pk], count=30))
    rows = ExperienceEntry.objects.visible_to(user).filter(pk__in=found).for_lists()
    rows = rows.exclude(state__in=[EntryState.RETIRED, EntryState.REJECTED])
    pairs = [(other, found[other.pk]) for other in rows]
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0].pk))[:6]


@lru_cache(maxsize=1)
def _index(newest_version: int) -> Alike:
    """Of all entries, whoever may see them: what is not visible is left out when it is asked."""
    rows = ExperienceEntry.objects.exclude(current=None).values_list("pk", "current__content")
    return Alike({pk: text_of(EntryContent.model_validate(content)) for pk, content in rows})


def text_of(content: EntryContent) -> str:
    when = content.when
    return " ".join(
        [content.title, content.title, content.action, *when.operators, *when.bottlenecks]
    )
