"""What the library is worth: uses, wins and uplift of each entry and of all, and how often predictions of a diagnosis held."""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from evolution_app.library_worth import measured_standings, uses
from evolution_app.models import Candidate, CandidateParent, ExperienceEntry, Run
from evolution_app.models.candidates import CORRECT
from evolution_app.views.access import person, signed_in
from gpu_runner.core import predictions
from gpu_runner.core.worth import (
    Standing,
    Uplift,
    entry_uplift,
    entry_uplifts,
    library_uplift,
)

LATEST_PAIRS: Final = 400


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
    uplifts, judged = entry_uplifts(all_uses), measured_standings()
    table = [
        (entry, uplifts[entry.uid], judged.get(entry.uid, Standing.UNDECIDED)) for entry in entries
    ]
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
