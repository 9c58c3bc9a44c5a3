"""What finished proposals say about the library: pages show it, and the ranking of entries goes by it."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from django.core.cache import cache

from evolution_app.models import Candidate, CandidateParent
from gpu_runner.core.worth import Standing, Use, entry_uplifts, gain_of, standings

FRESH_S: Final = 30
RANKED_FOR_S: Final = 120
"""How long a runner goes by the same standings; reading the whole history takes a while, and one proposal changes little."""
NEWEST: Final = 200_000


def uses() -> list[Use]:
    """Every finished proposal that took part in the comparison, of all runs: what leaves here are figures, no names.

    Kept for half a minute, since the whole history is read.
    """
    found: list[Use] | None = cache.get("library-uses")
    if found is None:
        found = _read_uses()
        cache.set("library-uses", found, FRESH_S)
    return found


def _read_uses() -> list[Use]:
    took_part = Candidate.objects.exclude(arm="").exclude(verdict="").order_by("-id")[:NEWEST]
    rows = list(took_part.values_list("id", "run_id", "arm", "entries", "speedup"))
    parents: dict[int, float] = defaultdict(float)
    links = CandidateParent.objects.filter(candidate__verdict__gt="").exclude(candidate__arm="")
    for child, fitness in links.values_list("candidate_id", "parent__speedup"):
        parents[child] = max(parents[child], fitness or 0.0)
    return [
        Use(run=run, arm=arm, entries=tuple(shown), gain=gain_of(parents[pk], speedup or 0.0))
        for pk, run, arm, shown, speedup in rows
    ]


def measured_standings() -> Mapping[str, Standing]:
    """What is to be thought of every entry that took part, by uid."""
    found: dict[str, Standing] | None = cache.get("library-standings")
    if found is None:
        found = standings(entry_uplifts(uses()))
        cache.set("library-standings", found, RANKED_FOR_S)
    return found
