"""The parts of a run page that live events refresh.

Each tag reads what it shows, so that the page and the frames of the socket draw with the same template from the same rows.
`oob` makes a part ready to be swapped in wherever the page has it.
"""

from typing import Any

from django import template

from evolution_app.models import Run, Task
from evolution_app.views import reading
from evolution_app.views.diffs import draw

register = template.Library()


def _fresh(run: Run) -> Run:
    """The run's row as it is now: an event may be older than the state that it leads to."""
    return Run.objects.select_related("task", "runner").get(pk=run.pk)


@register.inclusion_tag("runs/_head.html")
def run_head(run: Run, oob: bool = False) -> dict[str, Any]:
    """State, best, budget; five queries."""
    run = _fresh(run)
    best = reading.best_of(run)
    return {
        "run": run,
        "oob": oob,
        "best": best,
        "faster_than": reading.faster_than(best) if best else [],
        "bars": reading.budget_bars(run),
        "ahead": run.runs_ahead() if reading.is_waiting(run) else None,
    }


@register.inclusion_tag("runs/_warnings.html")
def run_warnings(run: Run, oob: bool = False) -> dict[str, Any]:
    """What inspecting the task warned of; nothing before it was inspected. One query."""
    report = Task.objects.values_list("report", flat=True).get(pk=run.task_id) or {}
    return {"run": run, "oob": oob, "warnings": report.get("warnings", [])}


@register.inclusion_tag("runs/_islands.html")
def run_islands(run: Run, oob: bool = False) -> dict[str, Any]:
    return {"run": run, "oob": oob, "islands": reading.island_summaries(run)}


@register.inclusion_tag("runs/_feed_rows.html")
def run_feed(run: Run) -> dict[str, Any]:
    return {"run": run, "candidates": reading.feed_of(run)}


@register.inclusion_tag("runs/_diagnosis.html")
def run_diagnosis(run: Run, oob: bool = False) -> dict[str, Any]:
    return {"run": run, "oob": oob, "diagnosis": reading.latest_diagnosis(run)}


@register.inclusion_tag("runs/_diff.html")
def run_diff(run: Run, oob: bool = False) -> dict[str, Any]:
    """The newest candidate with a parent: how many lines changed; the body is fetched when opened."""
    candidate = reading.latest_with_parent(run)
    context: dict[str, Any] = {"run": run, "oob": oob, "candidate": candidate}
    if candidate is not None:
        link = candidate.parent_links.select_related("parent__source").order_by("position").first()
        if link is not None:
            context |= {
                "parent": link.parent,
                "drawing": draw(link.parent.source.text, candidate.source.text),
            }
    return context
