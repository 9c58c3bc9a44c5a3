"""Submitting a task, checking one while it is typed, and the page of a task with its runs."""

import json
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from evolution_app import permissions, services, suite
from evolution_app.forms import ESTIMATED_BY, EstimateForm, SubmitForm
from evolution_app.models import Task, User
from evolution_app.permissions import get_visible
from evolution_app.services import NotAllowed, Refused
from evolution_app.views.access import person, sentence, signed_in, tell_refusal
from evolution_app.views.highlight import lines_of
from gpu_runner.core.contract import check_contract
from gpu_runner.core.probe import probe_assignments
from gpu_runner.core.source import MAX_BYTES, Problem
from gpu_runner.core.task import Budget
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Precision, Track

CONTRACT = (
    ("Model", "a class Model(nn.Module) with forward, or a function reference"),
    ("get_inputs", "get_inputs() returns the list of arguments of forward"),
    ("get_init_inputs", "get_init_inputs() returns those of the constructor, if it takes any"),
)


@signed_in
@require_http_methods(["GET", "POST"])
def new_task(request: HttpRequest) -> HttpResponse:
    """The form; a POST keeps the task, queues a run and goes to its page."""
    if not permissions.may_submit(request.user):
        raise NotAllowed("viewers do not submit; an operator can make you a submitter")
    if request.method == "GET":
        return _form_page(request, SubmitForm(initial=_initial(request)))
    form = SubmitForm(request.POST, request.FILES)
    if not form.is_valid():
        return _form_page(request, form, status=422)
    try:
        return _start(request, form)
    except Refused as error:
        form.add_error(None, sentence(error))
        return _form_page(request, form, status=422)


def _start(request: HttpRequest, form: SubmitForm) -> HttpResponse:
    data = form.cleaned_data
    source = data["source"].replace("\r\n", "\n")
    baseline = (data["baseline_source"] or "").replace("\r\n", "\n")
    task = services.submit_task(
        owner=person(request),
        name=data["name"],
        source=source,
        baseline_source=baseline if baseline.strip() else None,
        track=Track(data["track"]),
        precision=Precision(data["precision"]),
        target=data["target"],
        visibility=data["visibility"],
        suite=suite.path_of(source),
    )
    run = services.start_run(task=task, by=person(request), **form.run_options())
    return redirect("run", run.pk)


def _initial(request: HttpRequest) -> dict[str, object]:
    """From `?example=level2/mlp_block` or `?copy=12`, a task that the person may see."""
    if example := suite.find(request.GET.get("example", "")):
        return {"source": example.source, "name": example.title}
    copied = request.GET.get("copy", "")
    if not copied.isdecimal():
        return {}
    tasks = Task.objects.select_related("source", "baseline_source")
    task = get_visible(tasks, request.user, pk=int(copied))
    fields = ("name", "track", "precision", "target", "visibility")
    initial: dict[str, object] = {name: getattr(task, name) for name in fields}
    baseline = task.baseline_source.text if task.baseline_source else ""
    return {**initial, "source": task.source.text, "baseline_source": baseline}


def _form_page(request: HttpRequest, form: SubmitForm, status: int = 200) -> HttpResponse:
    source = form["source"].value() or ""
    context = {
        "form": form,
        "examples": suite.examples(),
        "chosen_example": request.GET.get("example", ""),
        "limit_kib": MAX_BYTES // 1024,
        "section": "new",
        **_check_context(source),
        **_estimate_context(request, {name: form[name].value() for name in ESTIMATED_BY}),
    }
    return render(request, "tasks/new.html", context, status=status)


@signed_in
@require_GET
def estimate(request: HttpRequest) -> HttpResponse:
    """What the run that the form describes may take; asked again whenever a choice changes."""
    context = _estimate_context(request, request.GET.dict())
    return render(request, "tasks/_estimate.html", context)


def _estimate_context(request: HttpRequest, told: Mapping[str, Any]) -> dict[str, object]:
    """`estimate` is None where the form has no limits that could be scaled to."""
    form = EstimateForm(told)
    model = str(told.get("model") or "")
    known = form.estimate(person(request)) if form.is_valid() else None
    return {"estimate": known, "model": model}


@signed_in
@require_POST
def check_task(request: HttpRequest) -> HttpResponse:
    """The check panel for a source that is being typed; parsed within bounds, never run."""
    source = request.POST.get("source", "")
    context = _check_context(source)
    if source.strip() and not context["problems"]:
        similar = services.similar_tasks(user=person(request), source=source.replace("\r\n", "\n"))
        same = list(similar.only("id", "name", "report")[:3])
        reports = (TaskReport.model_validate(task.report) for task in same if task.report)
        context |= {"similar": same, "report": next(reports, None)}
    return render(request, "tasks/_check.html", context)


def _check_context(source: str) -> dict[str, object]:
    problems: list[Problem] = check_contract(source) if source.strip() else []
    marks = [
        {"line": problem.line, "message": problem.message, "severity": "error"}
        for problem in problems
    ]
    return {
        "problems": problems,
        "has_source": bool(source.strip()),
        "contract": CONTRACT,
        "has_literal_sizes": bool(source.strip()) and not problems and not _can_shrink(source),
        "marks": json.loads(json.dumps(marks)),
        "size": len(source.encode("utf-8", "replace")),
    }


def _can_shrink(source: str) -> bool:
    """Whether a smaller task can be derived from the module's integers; without, every check runs at full size."""
    return any(probe_assignments(source))


@signed_in
@require_GET
def task_page(request: HttpRequest, task_id: int) -> HttpResponse:
    tasks = Task.objects.select_related("owner", "source", "baseline_source")
    task = get_visible(tasks, request.user, pk=task_id)
    runs = task.runs.select_related("best__island", "started_by").order_by("-id")[:50]
    context = {
        "task": task,
        "runs": runs,
        "lines": lines_of(task.source.text),
        "report": TaskReport.model_validate(task.report) if task.report else None,
        "may_share": permissions.may_share(request.user, task),
        "may_steer": permissions.may_steer(request.user, task),
        "shares": task.shares.select_related("user"),
        "visibilities": Task.Visibility.choices,
        "section": "runs",
    }
    return render(request, "tasks/detail.html", context)


@signed_in
@require_POST
def share_task(request: HttpRequest, task_id: int) -> HttpResponse:
    """Change the visibility, name a person, or take a name back."""
    task = get_visible(Task, request.user, pk=task_id)
    try:
        services.share_task(
            task=task,
            by=person(request),
            visibility=request.POST.get("visibility") or None,
            add=_people(request.POST.get("add", "")),
            remove=_people(request.POST.get("remove", "")),
        )
    except Refused as error:
        tell_refusal(request, error)
    return redirect("task", task.pk)


def _people(name: str) -> list[User]:
    if not name.strip():
        return []
    found = User.objects.filter(username=name.strip(), is_active=True).first()
    if found is None:
        raise Refused(f"there is no account named {name.strip()[:60]}")
    return [found]


@signed_in
@require_POST
def start_run(request: HttpRequest, task_id: int) -> HttpResponse:
    """Another run of a task with the options of its latest run, or the defaults; the seed is drawn anew."""
    task = get_visible(
        Task.objects.select_related("source", "baseline_source"), request.user, pk=task_id
    )
    latest = task.runs.order_by("-id").first()
    options: dict[str, Any] = dict(latest.options) if latest else {}
    options.pop("seed", None)
    if "budget" in options:
        options["budget"] = Budget.model_validate(options["budget"])
    try:
        run = services.start_run(task=task, by=person(request), **options)
    except Refused as error:
        tell_refusal(request, error)
        return redirect("task", task.pk)
    messages.success(request, "Another run is queued, with the options of the latest one.", "good")
    return redirect("run", run.pk)
