"""One candidate: what it is, what was found out, how it differs, where it comes from."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_cache_control
from django.utils.http import quote_etag
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from evolution_app import permissions, services
from evolution_app.api import source_file
from evolution_app.forms import EntryForm
from evolution_app.models import Candidate, ExperienceEntry, Finding, ModelCall, Run
from evolution_app.models.sources import digest_of
from evolution_app.permissions import get_visible
from evolution_app.services import Refused
from evolution_app.views import reading
from evolution_app.views.access import person, sentence, signed_in
from evolution_app.views.diffs import draw
from evolution_app.views.glossary import Meaning, meaning_of
from evolution_app.views.highlight import lines_of
from gpu_runner.core.entries import Effect, EntryContent, EntryKind, Provenance, When
from gpu_runner.core.evaluation import Evaluation

TABS = (
    ("overview", "Overview"),
    ("code", "Code"),
    ("diff", "Diff"),
    ("lineage", "Lineage"),
    ("model", "Prompt and reply"),
)
_VIEWS = ("unified", "split")


def _candidate(request: HttpRequest, run_id: int, number: int) -> Candidate:
    rows = Candidate.objects.select_related("source", "island", "run__task__owner", "run__best")
    return get_visible(rows, request.user, run_id=run_id, number=number)


@signed_in
@require_GET
def candidate_page(
    request: HttpRequest, run_id: int, number: int, tab: str = "overview"
) -> HttpResponse:
    if tab not in dict(TABS):
        raise Http404
    candidate = _candidate(request, run_id, number)
    context = {
        "candidate": candidate,
        "run": candidate.run,
        "task": candidate.run.task,
        "tab": tab,
        "tabs": TABS,
        "faster_than": reading.faster_than(candidate),
        "parents": reading.parents_of(candidate),
        "is_best": candidate.run.best_id == candidate.pk,
        "may_nominate": permissions.may_nominate(request.user, candidate),
        "last_number": candidate.run.last_candidate,
        "section": "runs",
        **_TAB_CONTEXTS[tab](request, candidate),
    }
    return render(request, f"candidates/{tab}.html", context)


def _evaluated(candidate: Candidate) -> tuple[Evaluation | None, list[Finding]]:
    latest = candidate.latest_evaluation()
    if latest is None:
        return None, []
    return latest.as_core(), list(latest.findings.all())


def _overview(request: HttpRequest, candidate: Candidate) -> dict[str, Any]:
    evaluation, findings = _evaluated(candidate)
    return {
        "evaluation": evaluation,
        "findings": findings,
        "rows": _timing_rows(evaluation) if evaluation else [],
        "kernels": _kernel_table(evaluation) if evaluation else None,
        "may_judge": permissions.may_review(request.user),
        "children": candidate.children.order_by("number")[:20],
        "ancestors": reading.ancestors_of(candidate),
    }


def _timing_rows(evaluation: Evaluation) -> list[dict[str, Any]]:
    """The candidate and every baseline that was timed, each beside the speedup over it."""
    rows = [{"name": "this candidate", "timing": evaluation.candidate, "ratio": None}]
    for field, name in (
        ("eager", "eager"),
        ("torch_compile", "torch.compile"),
        ("user", "your kernel"),
    ):
        timing, ratio = getattr(evaluation.baselines, field), getattr(evaluation.speedup, field)
        if timing is not None or ratio is not None or field != "user":
            rows.append({"name": name, "timing": timing, "ratio": ratio})
    return rows


@dataclass(frozen=True)
class KernelTable:
    """Facts down, kernels across: there are few kernels and many facts, and a phone is narrow."""

    names: list[str]
    rows: list[tuple[Meaning, list[Any]]]


def _kernel_table(evaluation: Evaluation) -> KernelTable | None:
    """The profile's facts per kernel, whatever the evaluator kept; None without any."""
    kernels = evaluation.profile.get("kernels")
    if not isinstance(kernels, list) or not all(isinstance(kernel, dict) for kernel in kernels):
        return None
    facts = dict.fromkeys(name for kernel in kernels[:50] for name in kernel)
    names = [str(kernel.get("kernel") or kernel.get("name") or "kernel") for kernel in kernels[:50]]
    rows = [
        (meaning_of(fact), [_plain(kernel.get(fact)) for kernel in kernels[:50]])
        for fact in facts
        if fact not in ("kernel", "name")
    ]
    return KernelTable(names, rows) if rows else None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    if isinstance(value, list):
        return "; ".join(str(_plain(inner)) for inner in value)
    return value


def _code(request: HttpRequest, candidate: Candidate) -> dict[str, Any]:
    _, findings = _evaluated(candidate)
    by_line: dict[int, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.line:
            by_line[finding.line].append(finding)
    lines = [(line, by_line.get(line.number, [])) for line in lines_of(candidate.source.text)]
    return {"lines": lines, "elsewhere": [finding for finding in findings if not finding.line]}


def _diff(request: HttpRequest, candidate: Candidate) -> dict[str, Any]:
    """Against the first parent unless asked otherwise; against the reference where there is no parent."""
    choices = _against_choices(candidate)
    keys = [key for key, _ in choices]
    against = request.GET.get("against", "")
    if against not in keys and _other(candidate, against) is None:
        against = keys[0]
    view = request.GET.get("view", "")
    return {
        "against": against,
        "choices": choices,
        "other": _other(candidate, against),
        "view": view if view in _VIEWS else request.COOKIES.get("diff", "unified"),
        "drawing": draw(_text_of(candidate, against), candidate.source.text),
    }


def _against_choices(candidate: Candidate) -> list[tuple[str, str]]:
    parents = reading.parents_of(candidate)
    choices = [(f"c-{parent.number}", f"parent c-{parent.number}") for parent in parents]
    choices.append(("reference", "the reference"))
    best = candidate.run.best
    if best is not None and best.pk != candidate.pk and f"c-{best.number}" not in dict(choices):
        choices.append((f"c-{best.number}", f"best c-{best.number}"))
    if candidate.run.task.baseline_source_id:
        choices.append(("baseline", "your own kernel"))
    return choices


def _other(candidate: Candidate, against: str) -> Candidate | None:
    """The candidate of the same run that `c-12` names."""
    number = against.removeprefix("c-")
    if not against.startswith("c-") or not number.isdecimal() or len(number) > 9:
        return None
    rows = Candidate.objects.select_related("source")
    return rows.filter(run=candidate.run, number=int(number)).first()


def _text_of(candidate: Candidate, against: str) -> str:
    task = candidate.run.task
    if against == "reference":
        return task.source.text
    if against == "baseline" and task.baseline_source is not None:
        return task.baseline_source.text
    other = _other(candidate, against)
    if other is None:
        raise Http404
    return other.source.text


def _lineage(request: HttpRequest, candidate: Candidate) -> dict[str, Any]:
    visible = ExperienceEntry.objects.visible_to(person(request))
    return {
        "ancestors": reading.ancestors_of(candidate, limit=40),
        "children": list(candidate.children.select_related("island").order_by("number")[:200]),
        "uses": candidate.entry_uses.filter(entry__in=visible).select_related("entry", "version"),
    }


def _model(request: HttpRequest, candidate: Candidate) -> dict[str, Any]:
    return {"calls": ModelCall.objects.filter(candidate=candidate)}


_TAB_CONTEXTS = {
    "overview": _overview,
    "code": _code,
    "diff": _diff,
    "lineage": _lineage,
    "model": _model,
}


@signed_in
@require_GET
def diff_fragment(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """The diff's body alone. Both sources never change, so a browser may keep the answer."""
    candidate = _candidate(request, run_id, number)
    context = {"candidate": candidate, "run": candidate.run, **_diff(request, candidate)}
    response = render(request, "candidates/_diff_body.html", context)
    other = digest_of(_text_of(candidate, context["against"]))
    response["ETag"] = quote_etag(f"{other[:16]}-{candidate.source_id[:16]}-{context['view']}")
    patch_cache_control(response, private=True, max_age=3600)
    return response


@signed_in
@require_GET
def download(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    return source_file(_candidate(request, run_id, number))


@signed_in
@require_POST
def judge_finding(request: HttpRequest, run_id: int, number: int, finding_id: int) -> HttpResponse:
    """An expert says whether a finding was right."""
    candidate = _candidate(request, run_id, number)
    rows = Finding.objects.filter(evaluation__candidate=candidate, pk=finding_id)
    finding = rows.select_related("evaluation__candidate").first()
    if finding is None:
        raise Http404
    answer = {"yes": True, "no": False}.get(request.POST.get("right", ""))
    services.judge_finding(finding=finding, by=person(request), is_right=answer)
    return redirect(f"{candidate.get_absolute_url()}#finding-{finding.position}")


@signed_in
@require_http_methods(["GET", "POST"])
def nominate(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Put a lesson forward with this candidate and its parent as evidence."""
    candidate = _candidate(request, run_id, number)
    if not permissions.may_nominate(request.user, candidate):
        raise services.NotAllowed(
            "you may nominate from your own candidates; experts from what they see"
        )
    pair = services.pair_of(candidate)
    base = _nomination(candidate, pair)
    form = EntryForm(request.POST or None, initial=EntryForm.initial_of(base))
    if request.method == "POST" and form.is_valid():
        try:
            entry = services.nominate_entry(
                candidate=candidate, by=person(request), content=form.content(base)
            )
        except Refused as error:
            form.add_error(None, sentence(error))
        else:
            return redirect("entry", entry.pk)
    context = {
        "form": form,
        "candidate": candidate,
        "run": candidate.run,
        "task": candidate.run.task,
        "pair": pair,
        "drawing": draw(pair[0].source.text, candidate.source.text) if pair else None,
        "section": "library",
    }
    return render(request, "library/nominate.html", context, status=422 if form.errors else 200)


def _nomination(candidate: Candidate, pair: tuple[Candidate, float] | None) -> EntryContent:
    """What is known without anybody typing it: code before and after, the effect, where it was learned."""
    run: Run = candidate.run
    task = run.task
    latest = candidate.latest_evaluation()
    effects: tuple[Effect, ...] = ()
    if pair is not None and latest is not None:
        evaluation = latest.as_core()
        if evaluation.fidelity is not None:
            effects = (
                Effect(
                    device=task.target if evaluation.fidelity == "modelled" else evaluation.device,
                    fidelity=evaluation.fidelity,
                    track=evaluation.track,
                    precision=evaluation.precision,
                    ratio=pair[1],
                ),
            )
    move = candidate.move or candidate.origin
    return EntryContent(
        kind=EntryKind.TECHNIQUE,
        title=move[:200],
        when=When(hardware=(task.target,)),
        action=move,
        before=pair[0].source.text if pair else "",
        after=candidate.source.text,
        effects=effects,
        provenance=Provenance(
            task_name=task.name,
            task_key=task.key,
            parent_id=pair[0].number if pair else None,
            candidate_id=candidate.number,
            origin=candidate.origin,
        ),
    )
