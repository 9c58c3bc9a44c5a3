"""The HTTP API under /api/v1/: submit, follow, results, library, agents. Its OpenAPI description is /api/v1/openapi.json.

A session (with its CSRF token) or a bearer token signs in; rights are those of the pages. What one may not see is 404.
"""

import json
from typing import Any, Literal

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_GET
from ninja import NinjaAPI, Router, Schema, Status
from ninja.security import HttpBearer, SessionAuth
from pydantic import ConfigDict, Field, ValidationError

from evolution_app import permissions, services
from evolution_app.api_agents import agents
from evolution_app.api_common import MAX_PAGE, page, person
from evolution_app.api_library import library
from evolution_app.estimates import estimated
from evolution_app.frames import frames_after
from evolution_app.models import ApiToken, Candidate, Run, Task, User
from gpu_runner.core.best_file import best_file
from gpu_runner.core.search import Method
from gpu_runner.core.task import Budget
from gpu_runner.core.verdicts import Precision, Track


class Bearer(HttpBearer):
    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        user = ApiToken.objects.user_of(token)
        if user is not None:
            request.user = user
        return user


api = NinjaAPI(
    title="Kernel Foundry",
    version="1",
    auth=[Bearer(), SessionAuth()],
    docs_url=None,
    urls_namespace="api",
)


@api.exception_handler(services.Refused)
def refused(request: HttpRequest, error: services.Refused) -> HttpResponse:
    problems = [{"line": p.line, "message": p.message} for p in error.problems]
    status = 409 if isinstance(error, services.Stale) else 422
    return api.create_response(request, {"detail": str(error), "problems": problems}, status=status)


@api.exception_handler(services.NotAllowed)
def not_allowed(request: HttpRequest, error: services.NotAllowed) -> HttpResponse:
    return api.create_response(request, {"detail": str(error)}, status=403)


# Tasks and runs


class RunOptions(Schema):
    model_config = ConfigDict(extra="forbid")

    islands: int = 3
    seed: int | None = None
    budget: Budget = Budget()
    device: str = "auto"
    model: str | None = None
    more_models: tuple[str, ...] = ()
    method: Method = Method.EVOLUTION
    use_initialisers: bool = True
    use_diagnosis: bool = True
    use_library: bool = True
    is_best_of_10: bool = False


class NewTask(Schema):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=120)
    source: str
    baseline_source: str | None = None
    track: Track = Track.OWN_KERNELS
    precision: Precision = Precision.REFERENCE
    target: str = "h200"
    visibility: Literal["private", "shared", "public"] = "private"
    run: RunOptions | None = Field(default=None, description="start a run at once")


def task_json(task: Task) -> dict[str, Any]:
    return {
        "id": task.pk,
        "name": task.name,
        "owner": task.owner.username,
        "track": task.track,
        "precision": task.precision,
        "target": task.target,
        "visibility": task.visibility,
        "created_at": task.created_at.isoformat(),
    }


def run_json(run: Run) -> dict[str, Any]:
    best = run.best
    return {
        "id": run.pk,
        "task": run.task_id,
        "state": run.state,
        "wanted": run.wanted,
        "stop_reason": run.stop_reason,
        "options": run.options,
        "spent": run.spent,
        "device": run.device,
        "last_seq": run.last_seq,
        "best": candidate_json(best) if best else None,
        "created_at": run.created_at.isoformat(),
        "finished_at": run.finished_at.isoformat() if run.finished_at else None,
    }


def candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "candidate_id": candidate.number,
        "island": candidate.island.number,
        "generation": candidate.generation,
        "parents": candidate.parent_numbers,
        "origin": candidate.origin,
        "move": candidate.move,
        "state": candidate.state,
        "verdict": candidate.verdict or None,
        "kind": candidate.kind or None,
        "fidelity": candidate.fidelity or None,
        "verified_at": candidate.verified_at or None,
        "speedup": candidate.speedup,
        "speedup_low": candidate.speedup_low,
        "speedup_high": candidate.speedup_high,
        "speedup_torch_compile": candidate.speedup_compile,
        "device_us": candidate.device_us,
    }


tasks = Router(tags=["tasks"])
runs = Router(tags=["runs"])


@tasks.post("", response={201: dict[str, Any]})
def submit(request: HttpRequest, new: NewTask) -> Status[dict[str, Any]]:
    """Submit a task and, with `run`, start evolving it."""
    user = person(request)
    fields = new.model_dump(exclude={"run"})
    task = services.submit_task(owner=user, **fields)
    run = None
    if new.run is not None:
        run = start(user, task, new.run)
    return Status(201, {"task": task_json(task), "run": run_json(run) if run else None})


def start(user: User, task: Task, options: RunOptions) -> Run:
    fields = options.model_dump(exclude={"budget"})
    return services.start_run(task=task, by=user, budget=options.budget, **fields)


@tasks.get("")
def list_tasks(request: HttpRequest, offset: int = 0, limit: int = 100) -> dict[str, Any]:
    rows = Task.objects.visible_to(person(request)).for_lists()
    return page(rows, offset, limit, task_json)


@tasks.get("/{int:task_id}")
def show_task(request: HttpRequest, task_id: int) -> dict[str, Any]:
    task = permissions.get_visible(Task, request.user, pk=task_id)
    return {**task_json(task), "source": task.source.text, "report": task.report}


@tasks.post("/{int:task_id}/runs", response={201: dict[str, Any]})
def start_task_run(
    request: HttpRequest, task_id: int, options: RunOptions
) -> Status[dict[str, Any]]:
    task = permissions.get_visible(Task, request.user, pk=task_id)
    return Status(201, run_json(start(person(request), task, options)))


@runs.get("")
def list_runs(request: HttpRequest, offset: int = 0, limit: int = 100) -> dict[str, Any]:
    rows = Run.objects.visible_to(person(request)).select_related("best__island")
    return page(rows, offset, limit, run_json)


@runs.get("/estimate")
def estimate(
    request: HttpRequest,
    model: str | None = None,
    method: Method = Method.EVOLUTION,
    evaluations: int | None = None,
    wall_s: float | None = None,
) -> dict[str, Any]:
    """What a run may take, by past ones with the same model and method; `past_runs` 0: nothing is known."""
    try:
        is_limited = evaluations is not None or wall_s is not None
        budget = Budget(evaluations=evaluations, wall_s=wall_s) if is_limited else Budget()
    except ValidationError as error:
        raise services.Refused(services.readable(error)) from error
    return estimated(person(request), model=model, method=method, budget=budget).as_json()


@runs.get("/{int:run_id}")
def show_run(request: HttpRequest, run_id: int) -> dict[str, Any]:
    """The run, and its `result` (as in result.json) once it is over."""
    run = permissions.get_visible(Run, request.user, pk=run_id)
    return {**run_json(run), "result": run.result()}


@runs.post("/{int:run_id}/steer/{action}")
def steer(
    request: HttpRequest, run_id: int, action: Literal["pause", "resume", "stop", "cancel"]
) -> dict[str, Any]:
    run = permissions.get_visible(Run, request.user, pk=run_id)
    ask = {
        "pause": services.request_pause,
        "resume": services.request_resume,
        "stop": services.request_stop,
        "cancel": services.request_cancel,
    }[action]
    return run_json(ask(run=run, by=person(request)))


@runs.get("/{int:run_id}/candidates")
def list_candidates(
    request: HttpRequest, run_id: int, offset: int = 0, limit: int = 100
) -> dict[str, Any]:
    run = permissions.get_visible(Run, request.user, pk=run_id)
    return page(run.candidates.for_lists(), offset, limit, candidate_json)


@runs.get("/{int:run_id}/candidates/{int:number}")
def show_candidate(request: HttpRequest, run_id: int, number: int) -> dict[str, Any]:
    """The candidate with its whole evaluation, the object that `evaluate --json` prints."""
    candidate = permissions.get_visible(Candidate, request.user, run_id=run_id, number=number)
    evaluation = candidate.latest_evaluation()
    return {
        **candidate_json(candidate),
        "evaluation": evaluation.document if evaluation else None,
    }


@runs.get("/{int:run_id}/candidates/{int:number}/source")
def download(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """The candidate as a file, with a header that says what was verified."""
    candidate = permissions.get_visible(Candidate, request.user, run_id=run_id, number=number)
    return source_file(candidate)


@runs.get("/{int:run_id}/best")
def download_best(request: HttpRequest, run_id: int) -> HttpResponse:
    run = permissions.get_visible(Run, request.user, pk=run_id)
    if run.best is None:
        raise Http404("no candidate is correct yet")
    return source_file(run.best)


def source_file(candidate: Candidate) -> HttpResponse:
    """A download of a candidate: the source, under what is known of it once it is evaluated."""
    evaluation = candidate.latest_evaluation()
    text = candidate.source.text
    name = f"run-{candidate.run_id}-c-{candidate.number}.py"
    if evaluation is not None:
        text = best_file(candidate.run.task.spec(), candidate.as_core(evaluation.as_core()), name)
    response = HttpResponse(text, content_type="text/x-python; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


# Following a run


@runs.get("/{int:run_id}/events")
def follow(request: HttpRequest, run_id: int, since: int = 0) -> HttpResponse:
    """Events after `since`, as on the socket; NDJSON with `Accept: application/x-ndjson`."""
    return events_response(request, run_id)


@require_GET
def run_events(request: HttpRequest, run_id: int) -> HttpResponse:
    """The same outside the API, for pages without a socket: `GET /runs/<id>/events?since=`."""
    return events_response(request, run_id)


def events_response(request: HttpRequest, run_id: int) -> HttpResponse:
    """JSON; NDJSON where it is accepted or `format=ndjson`; with `html=1` frames carry the pages' partials as `content`."""
    run = permissions.get_visible(Run, request.user, pk=run_id)
    given = request.GET.get("since", "0")
    since = int(given) if given.isdecimal() and len(given) < 18 else 0
    frames = frames_after(run.pk, since, with_html=request.GET.get("html") == "1", limit=MAX_PAGE)
    accepts_lines = "application/x-ndjson" in request.headers.get("Accept", "")
    if accepts_lines or request.GET.get("format") == "ndjson":
        lines = "".join(json.dumps(frame) + "\n" for frame in frames)
        return HttpResponse(lines, content_type="application/x-ndjson")
    return JsonResponse({"events": frames, "last_seq": run.last_seq, "is_over": run.is_over})


api.add_router("/tasks", tasks)
api.add_router("/runs", runs)
api.add_router("/runs", agents)
api.add_router("/library", library)
