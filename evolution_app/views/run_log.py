"""What happened in a run, line by line: the newest thousand events, more as they come, and all of them as a file."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from evolution_app import events
from evolution_app.models import Run, RunEvent
from evolution_app.permissions import get_visible
from evolution_app.views.access import signed_in

LINES: Final = 1000

KINDS: Final = {
    "candidates": (events.CREATED, events.DONE, events.REQUEUED, events.PUBLISHED),
    "stages": (events.STAGE,),
    "search": (events.RUN_STATE, events.RUN_BEST, events.ISLAND, events.MIGRATION, events.LOG),
    "diagnosis": (events.DIAGNOSIS, events.TASK_REPORT),
    "models": (events.MODEL_CALL,),
    "people": (events.STEERING,),
}
"""What the page can be narrowed to. The budget, which changes with every candidate, is in none and in no log."""


@dataclass(frozen=True)
class LogLine:
    seq: int
    at: datetime
    kind: str
    candidate: int | None
    text: str


@signed_in
@require_GET
def log_page(request: HttpRequest, run_id: int) -> HttpResponse:
    """The newest lines first; `?before=` goes back, `?kind=` and `?candidate=` narrow."""
    run = _run(request, run_id)
    rows = _asked(request, run)
    if before := _number(request, "before"):
        rows = rows.filter(seq__lt=before)
    found = list(rows.order_by("-seq")[: LINES + 1])
    lines = [line_of(event) for event in found[:LINES]]
    context = {
        "run": run,
        "task": run.task,
        "lines": lines,
        "since": run.last_seq,
        "kinds": list(KINDS),
        "older": lines[-1].seq if len(found) > LINES else None,
        "is_newest": not before,
        "section": "runs",
    }
    return render(request, "runs/log.html", context)


@signed_in
@require_GET
def log_lines(request: HttpRequest, run_id: int) -> HttpResponse:
    """The lines after `?since=`, and where to ask next; 204 while there are none and more may come."""
    run = _run(request, run_id)
    since = _number(request, "since") or 0
    # Read up to what the run had when it was read: later events are the next answer's.
    rows = _asked(request, run).filter(seq__gt=since, seq__lte=run.last_seq)
    lines = [line_of(event) for event in rows.order_by("-seq")[:LINES]]
    if not lines and not run.is_over:
        return HttpResponse(status=204)
    context = {"run": run, "lines": lines, "since": run.last_seq, "is_newest": True, "oob": True}
    return render(request, "runs/_log_lines.html", context)


@signed_in
@require_GET
def log_file(request: HttpRequest, run_id: int) -> HttpResponse:
    """Everything, oldest first, as text."""
    run = _run(request, run_id)
    response = HttpResponse(
        as_text(_asked(request, run).order_by("seq").iterator()),
        content_type="text/plain; charset=utf-8",
    )
    response["Content-Disposition"] = f'attachment; filename="run-{run.pk}.log"'
    return response


def _run(request: HttpRequest, run_id: int) -> Run:
    return get_visible(Run.objects.select_related("task"), request.user, pk=run_id)


def _asked(request: HttpRequest, run: Run) -> QuerySet[RunEvent, RunEvent]:
    rows: QuerySet[RunEvent, RunEvent] = RunEvent.objects.filter(run=run)
    rows = rows.exclude(kind=events.RUN_BUDGET)
    if kinds := KINDS.get(request.GET.get("kind", "")):
        rows = rows.filter(kind__in=kinds)
    if candidate := _number(request, "candidate"):
        rows = rows.filter(Q(payload__candidate=candidate))
    return rows


def _number(request: HttpRequest, name: str) -> int | None:
    given = request.GET.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 18 else None


def as_text(rows: Iterable[RunEvent]) -> Iterator[str]:
    for event in rows:
        line = line_of(event)
        at = timezone.localtime(line.at).isoformat(timespec="milliseconds")
        who = f" c-{line.candidate}" if line.candidate else ""
        text = " ".join(line.text.split())
        yield f"{at} {line.seq} {line.kind}{who} {text}\n"


def line_of(event: RunEvent) -> LogLine:
    payload: dict[str, Any] = event.payload
    say = _SAYS.get(event.kind)
    text = say(payload) if say else ""
    return LogLine(event.seq, event.created_at, event.kind, payload.get("candidate"), text)


def _ratio(value: Any) -> str:
    return f"{value:.2f}x" if isinstance(value, int | float) else "no time"


def _state(payload: dict[str, Any]) -> str:
    wanted = payload.get("wanted", "running")
    is_said = wanted in ("running", payload.get("state")) or payload.get("reason")
    asked = "" if is_said else f", asked for: {wanted}"
    reason = f": {payload['reason']}" if payload.get("reason") else ""
    return f"the run is {payload.get('state')}{asked}{reason}"


def _created(payload: dict[str, Any]) -> str:
    parents = ", ".join(f"c-{number}" for number in payload.get("parents") or ())
    made = f"{payload.get('origin')}: {payload.get('move') or 'no description'}"
    return f"island {payload.get('island')}, {made}" + (f", from {parents}" if parents else "")


def _done(payload: dict[str, Any]) -> str:
    verdict = payload.get("verdict") or payload.get("state") or ""
    kind = f" ({payload['kind']})" if payload.get("kind") else ""
    speed = f", {_ratio(payload.get('ratio'))} over eager" if verdict == "correct" else ""
    lead = f": {payload['lead']}" if payload.get("lead") else ""
    return f"{verdict}{kind}{speed}{lead}"


def _model_call(payload: dict[str, Any]) -> str:
    counts = (payload.get(name) for name in ("tokens_in", "tokens_out"))
    tokens = " + ".join("unknown" if count is None else str(count) for count in counts) + " tokens"
    return f"{payload.get('model')} as {payload.get('role')}: {payload.get('outcome')}, {tokens}"


_SAYS: dict[str, Callable[[dict[str, Any]], str]] = {
    events.RUN_STATE: _state,
    events.RUN_BEST: lambda p: f"the new best, {_ratio(p.get('ratio'))} over eager",
    events.ISLAND: lambda p: (
        f"island {p.get('number')}: {p.get('description') or p.get('strategy')}"
    ),
    events.MIGRATION: lambda p: f"copied from island {p.get('home')} to island {p.get('to')}",
    events.CREATED: _created,
    events.STAGE: lambda p: f"at {p.get('stage')}",
    events.REQUEUED: lambda p: f"back to the queue, our failure: {p.get('reason')}",
    events.DONE: _done,
    events.DIAGNOSIS: lambda p: str((p.get("lead") or {}).get("title", "")),
    events.MODEL_CALL: _model_call,
    events.STEERING: lambda p: (
        f"{p.get('author')} sent a {p.get('what')} to island {p.get('island')}"
    ),
    events.TASK_REPORT: lambda p: f"the task was inspected, warnings: {p.get('warnings')}",
    events.PUBLISHED: lambda p: (
        f"timed once more to be published: {_ratio(p.get('ratio'))} over eager"
    ),
    events.LOG: lambda p: str(p.get("text", "")),
}
