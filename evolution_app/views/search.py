"""What the search of a run thinks: its plan as a tree, what its ways of making candidates earn, its strategies' texts."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import exp
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from evolution_app.models import Run, RunNote
from evolution_app.permissions import get_visible
from evolution_app.views.access import signed_in
from gpu_runner.core.search import Idea, IdeaState, StrategyText, WayShare

MAX_DEPTH: Final = 6
"""Ideas below are shown at this depth; a page is not endlessly wide."""


@dataclass(frozen=True)
class PlannedIdea:
    idea: Idea
    depth: int


@dataclass(frozen=True)
class EarningWay:
    way: WayShare

    @property
    def percent(self) -> float:
        return 100 * self.way.share

    @property
    def mean(self) -> float | None:
        return mean_ratio(self.way.gain, self.way.tries)


@dataclass(frozen=True)
class TriedText:
    text: StrategyText

    @property
    def mean(self) -> float | None:
        return mean_ratio(self.text.gain, self.text.tries)


def mean_ratio(gain: float, tries: int) -> float | None:
    """The geometric mean over all tries, of which those that gained nothing count as 1; None without any."""
    return exp(gain / tries) if tries else None


@signed_in
@require_GET
def search_page(request: HttpRequest, run_id: int) -> HttpResponse:
    """One query for the run and one for each of its four kinds of notes."""
    run = get_visible(Run.objects.select_related("task", "best"), request.user, pk=run_id)
    ideas = list(_latest_ideas(run))
    shares = RunNote.objects.filter(run=run, kind="shares").order_by("-id").first()
    ways = map(WayShare.model_validate, shares.payload["ways"] if shares else ())
    texts = {text.id: text for text in map(StrategyText.model_validate, _payloads(run, "strategy"))}
    context = {
        "run": run,
        "task": run.task,
        "plan": plan_tree(ideas),
        "untried": sum(map(_is_noise, ideas)),
        "ways": [EarningWay(way) for way in sorted(ways, key=lambda way: -way.share)],
        "texts": [
            TriedText(text) for text in sorted(texts.values(), key=lambda t: (t.island, t.id))
        ],
        "restarts": _payloads(run, "restart"),
        "section": "runs",
    }
    return render(request, "runs/search.html", context)


def plan_tree(ideas: Iterable[Idea]) -> list[PlannedIdea]:
    """The ideas depth first, each below the one that led to its base; those dropped before anybody tried them left out."""
    children: dict[int | None, list[Idea]] = defaultdict(list)
    shown = {idea.id: idea for idea in ideas if not _is_noise(idea)}
    for idea in sorted(shown.values(), key=lambda idea: idea.id):
        children[idea.parent if idea.parent in shown else None].append(idea)
    pending = [PlannedIdea(idea, 0) for idea in reversed(children[None])]
    tree = []
    while pending:
        at = pending.pop()
        tree.append(at)
        depth = min(at.depth + 1, MAX_DEPTH)
        pending += [PlannedIdea(child, depth) for child in reversed(children[at.idea.id])]
    return tree


def _is_noise(idea: Idea) -> bool:
    return idea.state is IdeaState.DROPPED and not idea.attempts


def _latest_ideas(run: Run) -> Iterator[Idea]:
    latest: dict[int, dict[str, Any]] = {}
    for payload in _payloads(run, "plan"):
        latest |= {idea["id"]: idea for idea in payload["ideas"]}
    return map(Idea.model_validate, latest.values())


def _payloads(run: Run, kind: str) -> list[dict[str, Any]]:
    notes = RunNote.objects.filter(run=run, kind=kind).order_by("id")
    return list(notes.values_list("payload", flat=True))
