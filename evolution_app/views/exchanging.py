"""Export of the library as a file, and import with a look at what it would do."""

from collections import Counter

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods

from evolution_app import permissions, services
from evolution_app.api_library import export_file
from evolution_app.services import NotAllowed
from evolution_app.services.exchange import MAX_IMPORT_BYTES
from evolution_app.views.access import person, signed_in
from gpu_runner.core.entries import EntryState
from gpu_runner.core.entry_lines import LineReport, Outcome

MAX_IN_FORM = 250_000
SHOWN = 1000
"""Lines of a report; those that cannot be used come first."""


@signed_in
@require_GET
def export(request: HttpRequest) -> HttpResponse:
    return export_file(request, request.GET.get("state", ""))


@signed_in
@require_http_methods(["GET", "POST"])
def import_page(request: HttpRequest) -> HttpResponse:
    """A file, then a report per line; only a second press, with the same text, changes anything."""
    if not permissions.may_review(request.user):
        raise NotAllowed("only experts import entries")
    text, problem = _text(request)
    reports: list[LineReport] = []
    is_done = False
    if text and not problem:
        act = services.import_lines if "import" in request.POST else services.plan_import
        reports = act(by=person(request), text=text)
        is_done = "import" in request.POST and not _unusable(reports)
    if is_done:
        messages.success(request, "Imported; what is new waits for review.", "good")
    context = {
        "states": list(EntryState),
        # A form holds less than a file: of a large one, the page asks again.
        "text": "" if is_done or len(text) > MAX_IN_FORM else text,
        "problem": problem,
        "reports": sorted(reports, key=_is_usable)[:SHOWN],
        "left_out": max(0, len(reports) - SHOWN),
        "counts": dict(Counter(report.outcome.value for report in reports)),
        "may_import": bool(reports) and not _unusable(reports) and not is_done,
        "is_done": is_done,
        "section": "library",
    }
    status = 422 if problem or _unusable(reports) else 200
    return render(request, "library/import.html", context, status=status)


def _unusable(reports: list[LineReport]) -> bool:
    return not all(map(_is_usable, reports))


def _is_usable(report: LineReport) -> bool:
    return report.outcome is not Outcome.UNUSABLE


def _text(request: HttpRequest) -> tuple[str, str]:
    """What was uploaded or pasted, and what is wrong with it."""
    if request.method == "GET":
        return "", ""
    upload = request.FILES.get("file")
    if upload is None:
        text = request.POST.get("text", "")
        return text, "" if text.strip() else "Choose a file, or paste its lines."
    if (upload.size or 0) > MAX_IMPORT_BYTES:
        return "", f"The file has more than {MAX_IMPORT_BYTES // 2**20} MiB."
    try:
        content: str = upload.read().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        return "", f"{upload.name} is not UTF-8 text: line {line} holds other bytes."
    return content, "" if content.strip() else "The file is empty."
