"""The Experience Library: list and search, an entry with its evidence and history, editing, and what experts decide."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from evolution_app import permissions, services
from evolution_app.forms import EntryForm
from evolution_app.models import AuditEvent, EntryVersion, ExperienceEntry, Review, Task
from evolution_app.permissions import get_visible
from evolution_app.services import NotAllowed, Refused, Stale
from evolution_app.views.access import person, sentence, signed_in, tell_refusal
from evolution_app.views.diffs import Drawing, draw
from gpu_runner.core.entries import EntryContent, EntryKind, EntryState

PAGE = 25

QUEUES = (
    ("review", "waiting for review"),
    ("approved", "approved"),
    ("mine", "nominated by me"),
    ("drafts", "drafts"),
    ("rejected", "rejected"),
    ("retired", "retired"),
    ("all", "all"),
)


@signed_in
@require_GET
def entry_list(request: HttpRequest) -> HttpResponse:
    """One list with queues; what one may not see is in none of them."""
    user = person(request)
    visible = ExperienceEntry.objects.visible_to(user)
    queue = request.GET.get("queue", "")
    if queue not in dict(QUEUES):
        queue = "review" if permissions.may_review(user) else "approved"
    found = _searched(request, _queued(visible, queue, request))
    rows = found.for_lists().prefetch_related("evidence").order_by("-changed_at", "-id")
    counts = visible.aggregate(
        review=Count("id", filter=Q(state__in=[EntryState.NOMINATED, EntryState.VERIFIED])),
        approved=Count("id", filter=Q(state=EntryState.APPROVED)),
        all=Count("id"),
    )
    context = {
        "page": Paginator(rows, PAGE).get_page(request.GET.get("page")),
        "queue": queue,
        "queues": [(key, name, counts.get(key)) for key, name in QUEUES],
        "kinds": [kind.value for kind in EntryKind],
        "is_filtered": any(request.GET.get(name) for name in ("q", "kind")),
        "section": "library",
    }
    return render(request, "library/list.html", context)


def _queued(entries: QuerySet[ExperienceEntry], queue: str, request: HttpRequest) -> Any:
    conditions = {
        "review": Q(state__in=[EntryState.NOMINATED, EntryState.VERIFIED]),
        "approved": Q(state=EntryState.APPROVED),
        "mine": Q(nominated_by=request.user.pk),
        "drafts": Q(state=EntryState.DRAFT),
        "rejected": Q(state=EntryState.REJECTED),
        "retired": Q(state=EntryState.RETIRED),
        "all": Q(),
    }
    return entries.filter(conditions[queue])


def _searched(request: HttpRequest, entries: Any) -> Any:
    """Every word must occur in the newest version: in its title, or in what it says."""
    for word in request.GET.get("q", "").split()[:8]:
        entries = entries.filter(
            Q(current__title__icontains=word)
            | Q(current__content__action__icontains=word)
            | Q(current__content__when__icontains=word)
        )
    if (kind := request.GET.get("kind", "")) in set(EntryKind):
        entries = entries.filter(current__kind=kind)
    return entries


def _entry(request: HttpRequest, entry_id: int) -> ExperienceEntry:
    rows = ExperienceEntry.objects.select_related(
        "current", "approved", "task__owner", "candidate__run", "nominated_by", "merged_into"
    )
    return get_visible(rows, request.user, pk=entry_id)


@signed_in
@require_GET
def entry_page(request: HttpRequest, entry_id: int) -> HttpResponse:
    entry = _entry(request, entry_id)
    content = entry.content
    versions = list(entry.versions.select_related("author").order_by("-number"))
    context = {
        "entry": entry,
        "content": content,
        "before_after": draw(content.before, content.after) if content.before else None,
        "lines_only": content.after if not content.before else "",
        "versions": versions,
        "evidence": entry.evidence.select_related("task", "before", "after"),
        "reviews": entry.reviews.select_related("reviewer", "version").order_by("-id"),
        "audit": AuditEvent.objects.about(entry).newest_first()[:50],
        "uses": entry.uses.count(),
        "change": _change(request, versions),
        "may_edit": permissions.may_edit_entry(request.user, entry),
        "may_review": permissions.may_review(request.user),
        "may_widen": permissions.may_widen_entry(request.user, entry),
        "visibilities": Task.Visibility.choices,
        "approval": _approval(request, entry),
        "section": "library",
    }
    return render(request, "library/detail.html", context)


def _approval(request: HttpRequest, entry: ExperienceEntry) -> dict[str, Any]:
    """Whether this person may approve now, and what stands in the way, for the page to say."""
    if entry.state in (EntryState.REJECTED, EntryState.RETIRED):
        return {"allowed": False, "why": f"The entry is {entry.state}; restore it first."}
    try:
        needed = services.waivers_needed(entry=entry, by=person(request))
    except NotAllowed as error:
        return {"allowed": False, "why": sentence(error)}
    return {"allowed": True, "needed": needed}


def _change(request: HttpRequest, versions: list[EntryVersion]) -> dict[str, Any] | None:
    """The difference of two versions of the entry: `?from=1&to=3`, by default the last change."""
    by_number = {version.number: version for version in versions}
    newest = versions[0].number
    old = by_number.get(_number(request, "from", newest - 1))
    new = by_number.get(_number(request, "to", newest))
    if old is None or new is None:
        return None
    return {"old": old, "new": new, "drawing": _draw_versions(old, new)}


def _number(request: HttpRequest, name: str, default: int) -> int:
    value = request.GET.get(name, "")
    return int(value) if value.isdecimal() and len(value) < 9 else default


def _draw_versions(old: EntryVersion, new: EntryVersion) -> Drawing:
    return draw(_as_text(old.as_core()), _as_text(new.as_core()))


def _as_text(content: EntryContent) -> str:
    """An entry as lines, so that a diff of two versions reads like one."""
    when = content.when
    lines = [
        f"title: {content.title}",
        f"kind: {content.kind}",
        *(
            f"{name}: {', '.join(map(str, getattr(when, name)))}"
            for name in ("operators", "bottlenecks", "dtypes", "hardware", "tracks")
        ),
        f"shapes: {when.shapes}",
        f"triton_versions: {when.triton_versions}",
        *(f"action: {line}" for line in content.action.splitlines()),
        *(f"preconditions: {line}" for line in content.preconditions.splitlines()),
        *(f"if violated: {line}" for line in content.if_violated.splitlines()),
        *(f"before: {line}" for line in content.before.splitlines()),
        *(f"after: {line}" for line in content.after.splitlines()),
    ]
    return "\n".join(lines)


@signed_in
@require_http_methods(["GET", "POST"])
def edit_entry(request: HttpRequest, entry_id: int) -> HttpResponse:
    """A new version; a form that was opened on an older one is shown again with what changed meanwhile."""
    entry = _entry(request, entry_id)
    if not permissions.may_edit_entry(request.user, entry):
        raise NotAllowed(
            "experts edit entries; you may edit what you nominated until it is approved"
        )
    base = entry.content
    assert entry.current is not None
    initial = {**EntryForm.initial_of(base), "version": entry.current.number}
    form = EntryForm(request.POST or None, initial=initial)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                _save(request, entry, form, base)
            except Stale as error:
                form.add_error(None, sentence(error))
                status = 409
            except Refused as error:
                form.add_error(None, sentence(error))
            else:
                return redirect("entry", entry.pk)
    context = {
        "form": form,
        "entry": entry,
        "approval": _approval(request, entry),
        "section": "library",
    }
    return render(request, "library/edit.html", context, status=status)


def _save(
    request: HttpRequest, entry: ExperienceEntry, form: EntryForm, base: EntryContent
) -> None:
    version = form.cleaned_data["version"] or 0
    content = form.content(base)
    note = form.cleaned_data["note"]
    if "approve" in request.POST:
        services.approve_entry(
            entry=entry,
            by=person(request),
            version=version,
            reason=note,
            waiver=request.POST.get("waiver", ""),
            content=content,
        )
        messages.success(request, "Saved and approved; the edit is shown as yours.", "good")
        return
    services.edit_entry(
        entry=entry, by=person(request), version=version, content=content, note=note
    )
    messages.success(request, "Saved as a new version.", "good")


_DECISIONS: dict[str, tuple[Callable[..., Review], str]] = {
    "approve": (services.approve_entry, "Approved: retrieval uses it from now on."),
    "request_changes": (services.request_changes, "Back to its author with your reason."),
    "reject": (services.reject_entry, "Rejected; the history stays."),
    "retire": (services.retire_entry, "Retired; the history stays."),
    "restore": (services.restore_entry, "Back in the review queue."),
}


@signed_in
@require_POST
def decide(request: HttpRequest, entry_id: int, decision: str) -> HttpResponse:
    """Approve, request changes, reject, retire or restore; then on to the next entry that waits."""
    entry = _entry(request, entry_id)
    act, answer = _DECISIONS[decision]
    version = request.POST.get("version", "")
    extra = {"waiver": request.POST.get("waiver", "")} if decision == "approve" else {}
    try:
        act(
            entry=entry,
            by=person(request),
            version=int(version) if version.isdecimal() and len(version) < 9 else 0,
            reason=request.POST.get("reason", ""),
            **extra,
        )
    except Refused as error:
        tell_refusal(request, error)
        return redirect("entry", entry.pk)
    messages.success(request, f"{entry}: {answer}", "good")
    waiting = ExperienceEntry.objects.visible_to(person(request)).waiting_for_review()
    following = waiting.exclude(pk=entry.pk).order_by("id").first()
    return redirect("entry", following.pk) if following else redirect("library")


@signed_in
@require_POST
def merge(request: HttpRequest, entry_id: int) -> HttpResponse:
    """Retire this entry in favour of another one."""
    entry = _entry(request, entry_id)
    into = request.POST.get("into", "").strip().upper().removeprefix("E-")
    version = request.POST.get("version", "")
    try:
        if not into.isdecimal() or len(into) > 12:
            raise Refused("name the entry to merge into, such as E-12")
        services.merge_entry(
            entry=entry,
            into=get_visible(ExperienceEntry, request.user, pk=int(into)),
            by=person(request),
            version=int(version) if version.isdecimal() else 0,
            reason=request.POST.get("reason", ""),
        )
    except Refused as error:
        tell_refusal(request, error)
        return redirect("entry", entry.pk)
    messages.success(request, f"Merged into E-{into}; both keep their history.", "good")
    return redirect("entry", int(into))


@signed_in
@require_POST
def resubmit(request: HttpRequest, entry_id: int) -> HttpResponse:
    entry = _entry(request, entry_id)
    version = request.POST.get("version", "")
    try:
        services.resubmit_entry(
            entry=entry, by=person(request), version=int(version) if version.isdecimal() else 0
        )
    except Refused as error:
        tell_refusal(request, error)
    return redirect("entry", entry.pk)


@signed_in
@require_POST
def share_entry(request: HttpRequest, entry_id: int) -> HttpResponse:
    entry = _entry(request, entry_id)
    try:
        services.share_entry(
            entry=entry, by=person(request), visibility=request.POST.get("visibility", "")
        )
    except Refused as error:
        tell_refusal(request, error)
    return redirect("entry", entry.pk)
