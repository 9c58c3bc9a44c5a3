"""The list of runs, the live page of one run, and what people ask of it."""

from collections import defaultdict
from collections.abc import Callable

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from evolution_app import permissions, services
from evolution_app.api import source_file
from evolution_app.forms import SteerForm
from evolution_app.models import Candidate, EntryUse, EntryVersion, ExperienceEntry, Run
from evolution_app.permissions import get_visible
from evolution_app.services import NotAllowed, Refused
from evolution_app.views import reading
from evolution_app.views.access import back_to, person, signed_in, tell_refusal
from gpu_runner.core.verdicts import RunState, State, Verdict

PAGE = 25
CANDIDATES_PAGE = 100

_STATES = {
    "active": [
        RunState.QUEUED,
        RunState.RUNNING,
        RunState.PAUSING,
        RunState.PAUSED,
        RunState.STOPPING,
    ],
    "finished": [RunState.FINISHED],
    "cancelled": [RunState.CANCELLED],
    "failed": [RunState.FAILED],
}
_SORTS = {
    "newest": ("-number",),
    "oldest": ("number",),
    "fastest": ("-speedup", "number"),
    "island": ("island__number", "number"),
}


@signed_in
@require_GET
def run_list(request: HttpRequest) -> HttpResponse:
    runs = _filtered(request, Run.objects.visible_to(person(request)))
    rows = runs.select_related("task__owner", "best__island").defer("task__report", "task__notes")
    context = {
        "page": Paginator(rows.order_by("-id"), PAGE).get_page(request.GET.get("page")),
        "states": list(_STATES),
        "is_filtered": any(request.GET.get(name) for name in ("q", "state", "mine")),
        "section": "runs",
    }
    return render(request, "runs/list.html", context)


def _filtered(request: HttpRequest, runs: QuerySet[Run]) -> QuerySet[Run]:
    if text := request.GET.get("q", "").strip():
        runs = runs.filter(task__name__icontains=text)
    if states := _STATES.get(request.GET.get("state", "")):
        runs = runs.filter(state__in=states)
    if request.GET.get("mine"):
        runs = runs.filter(task__owner=person(request))
    return runs


def _run(request: HttpRequest, run_id: int) -> Run:
    rows = Run.objects.select_related("task__owner", "best", "runner", "started_by")
    return get_visible(rows, request.user, pk=run_id)


@signed_in
@require_GET
def run_page(request: HttpRequest, run_id: int) -> HttpResponse:
    """The live page. `since` is read before everything else, so that what happens meanwhile is sent again, not lost."""
    run = _run(request, run_id)
    start = {
        "run": run.pk,
        "since": run.last_seq,
        "over": run.is_over,
        "points": reading.curve_points(run),
        "events": reverse("run-events", args=[run.pk]),
        "feed": reverse("run-feed", args=[run.pk]),
        "controls": reverse("run-controls", args=[run.pk]),
    }
    context = {
        "run": run,
        "task": run.task,
        "start": start,
        "steer": SteerForm(),
        "section": "runs",
        **_controls(request, run),
        **_entries(request, run),
    }
    return render(request, "runs/detail.html", context)


def _controls(request: HttpRequest, run: Run) -> dict[str, object]:
    return {"run": run, "may_steer": permissions.may_steer(request.user, run)}


@signed_in
@require_GET
def controls(request: HttpRequest, run_id: int) -> HttpResponse:
    """The buttons alone; the page asks for them when the state changes."""
    return render(request, "runs/_controls.html", _controls(request, _run(request, run_id)))


@signed_in
@require_GET
def feed(request: HttpRequest, run_id: int) -> HttpResponse:
    return render(request, "runs/_feed.html", {"run": _run(request, run_id)})


@signed_in
@require_GET
def candidates(request: HttpRequest, run_id: int) -> HttpResponse:
    """All candidates of a run, filtered, sorted and paged by the server."""
    run = _run(request, run_id)
    rows = Candidate.objects.filter(run=run).for_lists()
    wanted = request.GET.get("verdict", "")
    if wanted in set(Verdict):
        rows = rows.filter(verdict=wanted)
    elif wanted in set(State):
        rows = rows.filter(state=wanted)
    if (island := request.GET.get("island", "")).isdecimal():
        rows = rows.filter(island__number=int(island))
    sort = request.GET.get("sort", "newest")
    if sort == "fastest":
        rows = rows.correct()
    rows = rows.order_by(*_SORTS.get(sort, _SORTS["newest"]))
    context = {
        "run": run,
        "task": run.task,
        "page": Paginator(rows, CANDIDATES_PAGE).get_page(request.GET.get("page")),
        "counts": sorted(reading.verdict_counts(run).items()),
        "islands": range(run.options["islands"]),
        "sorts": list(_SORTS),
        "section": "runs",
    }
    return render(request, "runs/candidates.html", context)


_REQUESTS: dict[str, tuple[Callable[..., Run], str]] = {
    "pause": (services.request_pause, "The run pauses after the candidates in progress."),
    "resume": (services.request_resume, "The run goes on."),
    "stop": (services.request_stop, "The run finishes after the candidates in progress."),
    "cancel": (services.request_cancel, "Cancelling: done when the runner acknowledges it."),
}


@signed_in
@require_POST
def steer(request: HttpRequest, run_id: int, action: str) -> HttpResponse:
    """Pause, resume, stop or cancel."""
    run = _run(request, run_id)
    ask, answer = _REQUESTS[action]
    try:
        ask(run=run, by=person(request))
    except Refused as error:
        tell_refusal(request, error)
    else:
        messages.success(request, answer, "live")
    return back_to(request, run.get_absolute_url())


@signed_in
@require_POST
def inject(request: HttpRequest, run_id: int) -> HttpResponse:
    """A hint or a kernel from a person."""
    run = _run(request, run_id)
    if not permissions.may_steer(request.user, run):
        raise NotAllowed("only its owner, or an expert it is shared with, steers a run")
    form = SteerForm(request.POST)
    if not form.is_valid():
        messages.error(request, " ".join(form.errors.as_text().replace("*", "").split()), "bad")
        return redirect("run", run.pk)
    data = form.cleaned_data
    try:
        services.inject(
            run=run,
            by=person(request),
            source=data["source"].replace("\r\n", "\n") if data["source"].strip() else "",
            hint=data["hint"],
            island=data["island"],
        )
    except Refused as error:
        tell_refusal(request, error)
    else:
        what = "kernel is queued" if data["source"].strip() else "hint is noted"
        messages.success(request, f"Your {what} for island {data['island']}.", "good")
    return redirect("run", run.pk)


@signed_in
@require_GET
def best_file(request: HttpRequest, run_id: int) -> HttpResponse:
    """The best candidate's file; 404 while there is none."""
    run = _run(request, run_id)
    rows = Candidate.objects.select_related("source", "run__task", "island")
    return source_file(get_visible(rows, request.user, run=run, pk=run.best_id or 0))


@signed_in
@require_GET
def entries(request: HttpRequest, run_id: int) -> HttpResponse:
    """The panel of library entries alone; the page of a run in progress asks for it every ten seconds."""
    return render(request, "runs/_entries.html", _entries(request, _run(request, run_id)))


def _entries(request: HttpRequest, run: Run) -> dict[str, object]:
    """Which entries of the library were shown for which candidates; what one may not see is counted, not named."""
    visible = ExperienceEntry.objects.visible_to(person(request))
    rows = EntryUse.objects.filter(run=run).select_related("entry", "version", "candidate")
    fed: dict[EntryVersion, list[Candidate]] = defaultdict(list)
    for use in rows.filter(entry__in=visible).order_by("candidate__number"):
        fed[use.version].append(use.candidate)
    return {
        "run": run,
        "fed": sorted(fed.items(), key=lambda pair: (-len(pair[1]), pair[0].pk)),
        "hidden": rows.exclude(entry__in=visible).values("entry").distinct().count(),
        "without": run.candidates.filter(arm="without").count(),
    }
