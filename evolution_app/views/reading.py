"""What the pages show, gathered in a bounded number of queries; nothing here changes anything."""

import os
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from django.db.models import Count, Max, Q, QuerySet

from evolution_app import events
from evolution_app.models import Candidate, Evaluation, Finding, Run, RunEvent
from evolution_app.models.candidates import CORRECT
from gpu_runner.core.verdicts import RunState, State

FEED_ROWS = 60


@dataclass(frozen=True)
class Bar:
    """What a run has spent of one thing, beside its limit where it has one."""

    name: str
    unit: str
    spent: float | None
    limit: float | None

    @property
    def percent(self) -> float | None:
        return None if not self.limit else min(100.0, 100 * (self.spent or 0) / self.limit)


_BARS = (
    ("evaluations", "evaluations", ""),
    ("wall_s", "time", "s"),
    ("gpu_s", "GPU time", "s"),
    ("tokens", "tokens", ""),
    ("money_usd", "money", "USD"),
)


def budget_bars(run: Run) -> list[Bar]:
    """Everything that is limited or was spent; a thing that is neither has no bar. Unknown is None, not 0."""
    bars = [Bar(name, unit, run.spent.get(key), run.budget.get(key)) for key, name, unit in _BARS]
    return [bar for bar in bars if bar.limit is not None or bar.spent]


@dataclass
class IslandSummary:
    number: int
    strategy: str = ""
    description: str = ""
    total: int = 0
    waiting: int = 0
    correct: int = 0
    failed: int = 0
    best: float | None = None
    arrived: int = 0
    left: int = 0
    is_empty: bool = False


def island_summaries(run: Run) -> list[IslandSummary]:
    """One per island in ring order, in three queries.

    An island counts as empty when others have candidates, or the run is over, and it has none.
    """
    summaries = {
        island.number: IslandSummary(island.number, island.strategy, island.description)
        for island in run.islands.all()
    }
    counted = (
        Candidate.objects.filter(run=run)
        .order_by()
        .values("island__number")
        .annotate(
            total=Count("id"),
            waiting=Count("id", filter=Q(state__in=[State.QUEUED, State.EVALUATING])),
            correct=Count("id", filter=CORRECT),
            failed=Count("id", filter=Q(state=State.FINISHED) & ~CORRECT),
            best=Max("speedup"),
        )
    )
    for row in counted:
        summary = summaries[row["island__number"]]
        summary.total, summary.waiting = row["total"], row["waiting"]
        summary.correct, summary.failed, summary.best = row["correct"], row["failed"], row["best"]
    for payload in _payloads(run, events.MIGRATION):
        if (home := summaries.get(payload.get("home", -1))) is not None:
            home.left += 1
        if (target := summaries.get(payload.get("to", -1))) is not None:
            target.arrived += 1
    expected = run.is_over or any(summary.total for summary in summaries.values())
    for summary in summaries.values():
        summary.is_empty = bool(expected and not summary.total)
    return list(summaries.values())


def _payloads(run: Run, kind: str) -> Iterator[dict[str, Any]]:
    rows: QuerySet[RunEvent, dict[str, Any]] = (
        RunEvent.objects.filter(run=run, kind=kind)
        .order_by("seq")
        .values_list("payload", flat=True)
    )
    return rows.iterator()


def curve_points(run: Run) -> list[dict[str, Any]]:
    """The points of the speedup curve in the order in which candidates were finished; one query.

    Without abandoned candidates: nothing was found out about them.
    """
    done = _payloads(run, events.DONE)
    return [point_of(p) for p in done if p.get("state") != State.ABANDONED.value]


def point_of(payload: dict[str, Any]) -> dict[str, Any]:
    """A point of the curve from the payload of `candidate.done`; `run.js` does the same to live frames."""
    return {
        "id": payload.get("candidate"),
        "island": payload.get("island"),
        "i": payload.get("evaluations"),
        "t": payload.get("seconds"),
        "speedup": payload.get("ratio"),
        "fidelity": payload.get("fidelity"),
        "ok": payload.get("verdict") == "correct",
        "verdict": payload.get("kind") or payload.get("verdict") or payload.get("state"),
    }


def feed_of(run: Run) -> QuerySet[Candidate]:
    """The newest candidates, newest first; two queries whatever their number."""
    return Candidate.objects.filter(run=run).for_lists().order_by("-number")[:FEED_ROWS]


def best_of(run: Run) -> Candidate | None:
    """With its island; the run row must have been read with `best`."""
    if run.best_id is None:
        return None
    return Candidate.objects.select_related("island", "run__task").get(pk=run.best_id)


def faster_than(candidate: Candidate) -> list[str]:
    """The baselines that a candidate beats, by name; with an interval its lower end must be above 1."""
    names = (
        ("eager", candidate.speedup_low or candidate.speedup),
        ("torch.compile", candidate.speedup_compile),
        ("your kernel", candidate.speedup_user),
    )
    return [name for name, value in names if value is not None and value > 1]


@dataclass
class Diagnosis:
    candidate: Candidate
    findings: list[Finding] = field(default_factory=list)
    total: int = 0


def latest_diagnosis(run: Run, limit: int = 4) -> Diagnosis | None:
    """The findings of the evaluation that ended last; at most three queries."""
    evaluation = (
        Evaluation.objects.filter(candidate__run=run, findings__isnull=False)
        .select_related("candidate__island")
        .defer("document")
        .order_by("-id")
        .first()
    )
    if evaluation is None:
        return None
    findings = list(evaluation.findings.all())
    return Diagnosis(evaluation.candidate, findings[:limit], len(findings))


def latest_with_parent(run: Run) -> Candidate | None:
    """The newest candidate that was made from another one: the one whose diff is worth a look."""
    return (
        Candidate.objects.filter(run=run, parent_links__isnull=False)
        .for_lists()
        .order_by("-number")
        .first()
    )


def parents_of(candidate: Candidate) -> list[Candidate]:
    """None, one or two, in order; one query."""
    return [link.parent for link in candidate.parent_links.select_related("parent")]


def ancestors_of(candidate: Candidate, limit: int = 12) -> list[Candidate]:
    """The line of first parents, oldest first, without the candidate itself; one query per step."""
    line: list[Candidate] = []
    seen = {candidate.pk}
    at = _first_parent(candidate)
    while at is not None and at.pk not in seen and len(line) < limit:
        line.insert(0, at)
        seen.add(at.pk)
        at = _first_parent(at)
    return line


def _first_parent(candidate: Candidate) -> Candidate | None:
    link = candidate.parent_links.select_related("parent").first()
    return None if link is None else link.parent


def verdict_counts(run: Run) -> Counter[str]:
    """How many of the run's candidates have which verdict, or state while they have none."""
    rows = Candidate.objects.filter(run=run).order_by().values_list("verdict", "state")
    counts: Counter[str] = Counter()
    for verdict, state, number in rows.annotate(number=Count("id")):
        counts[verdict or state] += number
    return counts


def is_waiting(run: Run) -> bool:
    return run.state == RunState.QUEUED


class ModelProfiles(NamedTuple):
    names: list[str]
    problem: str = ""


def model_profiles() -> ModelProfiles:
    """The names in the operator's file; nothing else of it leaves this function. The runner checks the rest."""
    path = os.environ.get("FOUNDRY_MODELS")
    if not path:
        return ModelProfiles([], "no model is configured; runs evolve without one")
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return ModelProfiles(
            [], "the operator's model file cannot be read; runs evolve without one"
        )
    profiles = content.get("profiles")
    return ModelProfiles(sorted(profiles) if isinstance(profiles, dict) else [])
