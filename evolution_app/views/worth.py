"""What the library is worth: uses, wins and uplift of each entry and of all, and how often predictions of a diagnosis held."""

from collections import defaultdict
from typing import Any, Final

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from evolution_app.models import Candidate, CandidateParent, ExperienceEntry, Run
from evolution_app.models.candidates import CORRECT
from evolution_app.views.access import person, signed_in
from gpu_runner.core import predictions
from gpu_runner.core.worth import (
    Standing,
    Uplift,
    Use,
    entry_uplift,
    gain_of,
    library_uplift,
    standings,
)

FRESH_S: Final = 30
NEWEST: Final = 200_000
LATEST_PAIRS: Final = 400


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


def worth_of(entry: ExperienceEntry) -> Uplift:
    return entry_uplift(entry.uid, uses())


@signed_in
@require_GET
def worth_page(request: HttpRequest) -> HttpResponse:
    """The panel: the library as a whole, then each entry that the person may see and that was ever shown."""
    all_uses = uses()
    shown = {uid for use in all_uses for uid in use.entries}
    rows = ExperienceEntry.objects.visible_to(person(request)).filter(uid__in=shown).for_lists()
    entries = list(rows)
    uplifts = {entry.uid: entry_uplift(entry.uid, all_uses) for entry in entries}
    judged = standings(uplifts)
    table = [(entry, uplifts[entry.uid], judged[entry.uid]) for entry in entries]
    table.sort(key=lambda row: (-row[1].uses, row[0].pk))
    context = {
        "library": library_uplift(all_uses),
        "rows": table,
        "to_retire": [row for row in table if row[2] is Standing.RETIRE],
        "records": prediction_records(request),
        "section": "library",
    }
    return render(request, "library/worth.html", context)


def prediction_records(request: HttpRequest, run: Run | None = None) -> list[predictions.Record]:
    """Of the latest pairs of parent and child that the person may see, by kind of finding."""
    visible = Candidate.objects.visible_to(person(request)).filter(CORRECT)
    links = CandidateParent.objects.filter(candidate__in=visible, parent__verdict="correct")
    if run is not None:
        links = links.filter(candidate__run=run)
    outcomes = []
    newest = links.order_by("-id").select_related("parent", "candidate")[:LATEST_PAIRS]
    known: dict[int, Any] = {}
    for link in newest:
        before, after = (_evaluation(one, known) for one in (link.parent, link.candidate))
        if before is not None and after is not None:
            outcome = predictions.outcome(before, after)
            outcomes += [outcome] if outcome is not None else []
    return predictions.records(outcomes)


def _evaluation(candidate: Candidate, known: dict[int, Any]) -> Any:
    if candidate.pk not in known:
        latest = candidate.latest_evaluation()
        known[candidate.pk] = latest.as_core() if latest else None
    return known[candidate.pk]
