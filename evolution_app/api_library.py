"""The library over HTTP: lists, one entry, export and import as JSON lines (see `gpu_runner.core.entry_lines`)."""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from ninja import Router

from evolution_app import permissions, services
from evolution_app.api_common import page, person
from evolution_app.models import ExperienceEntry
from evolution_app.services.exchange import MAX_IMPORT_BYTES
from gpu_runner.core.entries import EntryState
from gpu_runner.core.entry_lines import LineReport, Outcome, written

library = Router(tags=["library"])
IN_USE_NAME: Final = "in_use"
"""In place of one state: approved or checked."""


@library.get("")
def list_entries(
    request: HttpRequest, state: str = "", offset: int = 0, limit: int = 100
) -> dict[str, Any]:
    rows = ExperienceEntry.objects.visible_to(person(request)).for_lists()
    return page(rows.filter(state=state) if state else rows, offset, limit, entry_json)


def entry_json(entry: ExperienceEntry) -> dict[str, Any]:
    return {
        "id": entry.pk,
        "uid": entry.uid,
        "state": entry.state,
        "version": entry.current.number if entry.current else None,
        "title": entry.current.title if entry.current else "",
        "kind": entry.current.kind if entry.current else "",
    }


@library.get("/export")
def export(request: HttpRequest, state: str = IN_USE_NAME) -> HttpResponse:
    """The entries in use that you see, one JSON object a line after a head line; `state=` names one state, or (empty) all."""
    return export_file(request, state)


def export_file(request: HttpRequest, state: str) -> HttpResponse:
    rows = ExperienceEntry.objects.visible_to(person(request)).exclude(current=None).order_by("id")
    if state == IN_USE_NAME:
        rows = rows.in_use()
    elif state in set(EntryState):
        rows = rows.filter(state=state)
    entries = rows.select_related("approved", "current").iterator()
    lines = written(entry.as_core() for entry in entries)
    response = HttpResponse(lines, content_type="application/x-ndjson")
    response["Content-Disposition"] = 'attachment; filename="library.jsonl"'
    return response


@library.post("/import")
def import_entries(request: HttpRequest, dry_run: bool = False) -> dict[str, Any]:
    """Take over exported lines (the request's body); a report per line, and nothing at all where one is unusable."""
    # Read as a stream: Django's own limit is that of forms.
    body = request.read(MAX_IMPORT_BYTES + 1)
    if len(body) > MAX_IMPORT_BYTES:
        raise services.Refused(f"at most {MAX_IMPORT_BYTES // 2**20} MiB at once")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body[: error.start].count(b"\n") + 1
        raise services.Refused(f"line {line} is not UTF-8 text") from error
    act = services.plan_import if dry_run else services.import_lines
    reports = act(by=person(request), text=text)
    usable = all(report.outcome is not Outcome.UNUSABLE for report in reports)
    changes = sum(report.outcome in (Outcome.NEW, Outcome.CHANGED) for report in reports)
    return {
        "imported": changes if usable and not dry_run else 0,
        "usable": usable,
        "lines": [_line_json(report) for report in reports],
    }


def _line_json(report: LineReport) -> dict[str, Any]:
    return {
        "line": report.number,
        "outcome": report.outcome,
        "uid": report.line.uid if report.line else None,
        "problem": report.problem or None,
    }


@library.get("/{int:entry_id}")
def show_entry(request: HttpRequest, entry_id: int) -> dict[str, Any]:
    entry = permissions.get_visible(ExperienceEntry, request.user, pk=entry_id)
    return {**entry_json(entry), "content": entry.content.model_dump(mode="json")}
