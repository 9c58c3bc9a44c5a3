"""What a run used up and what came of it: by maker, by model, by island."""

from typing import Any

from django.db.models import Avg, Count, Max, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from evolution_app.models import Candidate, ModelCall, Run
from evolution_app.models.candidates import CORRECT
from evolution_app.permissions import get_visible
from evolution_app.views import reading
from evolution_app.views.access import signed_in
from evolution_app.views.worth import prediction_records


@signed_in
@require_GET
def usage_page(request: HttpRequest, run_id: int) -> HttpResponse:
    """What was spent, and by whom with what result."""
    run = get_visible(Run.objects.select_related("task", "best"), request.user, pk=run_id)
    context = {
        "run": run,
        "task": run.task,
        "bars": reading.budget_bars(run),
        "makers": makers_of(run),
        "calls": calls_of(run),
        "islands": reading.island_summaries(run),
        "records": prediction_records(request, run),
        "section": "runs",
    }
    return render(request, "runs/usage.html", context)


def makers_of(run: Run) -> list[dict[str, Any]]:
    """One row per origin: how many it made, how many were correct, the best."""
    rows: Any = (
        Candidate.objects.filter(run=run)
        .order_by()
        .values("origin")
        .annotate(
            total=Count("id"),
            correct=Count("id", filter=CORRECT),
            cheating=Count("id", filter=Q(verdict="cheating")),
            best=Max("speedup"),
        )
    )
    return sorted(rows, key=lambda row: (-(row["best"] or 0), row["origin"]))


def calls_of(run: Run) -> list[dict[str, Any]]:
    """One row per model and role. A sum over calls of which some are unknown says so: `unknown` counts those."""
    rows: Any = (
        ModelCall.objects.filter(run=run)
        .order_by()
        .values("model", "role")
        .annotate(
            total=Count("id"),
            ok=Count("id", filter=Q(outcome="ok")),
            tokens_read=Sum("tokens_in"),
            tokens_written=Sum("tokens_out"),
            cost_usd=Sum("money_usd"),
            unknown=Count("id", filter=Q(money_usd=None)),
            mean_s=Avg("seconds"),
        )
    )
    return sorted(rows, key=lambda row: (row["model"], row["role"]))
