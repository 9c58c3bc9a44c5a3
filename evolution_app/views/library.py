"""The Experience Library: list and search, an entry with its evidence and history, editing."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from evolution_app import permissions, services
from evolution_app.forms import EntryForm
from evolution_app.library_worth import measured_standings
from evolution_app.models import AuditEvent, Candidate, EntryVersion, ExperienceEntry, Task, User
from evolution_app.permissions import get_visible
from evolution_app.services import NotAllowed, Refused, Stale
from evolution_app.views import queues, undoing, worth
from evolution_app.views.access import person, sentence, signed_in
from evolution_app.views.diffs import Drawing, draw
from evolution_app.views.similar import similar_to
from gpu_runner.core.entries import EntryContent, EntryKind, EntryState
from gpu_runner.core.entry_states import Actor, decisions_open

PAGE = 50

SORTS = {
    "changed": ("-changed_at", "-id"),
    "oldest": ("created_at", "id"),
    "most shown": ("-times_shown", "-id"),
    "title": ("current__title", "id"),
}


@signed_in
@require_GET
def entry_list(request: HttpRequest) -> HttpResponse:
    """One list with queues; what one may not see is in none of them."""
    user = person(request)
    visible = ExperienceEntry.objects.visible_to(user)
    queue = request.GET.get("queue", "")
    if queue not in queues.QUEUES:
        queue = "review" if permissions.may_review(user) else "used"
    found = _searched(request, queues.prepared(visible).filter(queues.condition(queue, user)))
    sort = request.GET.get("sort", "changed")
    rows = found.for_lists().prefetch_related("evidence").annotate(times_shown=Count("uses"))
    counts = queues.counts(visible, user)
    context = {
        "page": Paginator(rows.order_by(*SORTS.get(sort, SORTS["changed"])), PAGE).get_page(
            request.GET.get("page")
        ),
        "queue": queue,
        "about": queues.QUEUES[queue][1],
        "may_review": permissions.may_review(user),
        "review_queues": [
            (key, *queues.REVIEW_QUEUES[key], counts[key]) for key in queues.REVIEW_QUEUES
        ],
        "shelves": [(key, *queues.SHELVES[key], counts[key]) for key in queues.SHELVES],
        "kinds": [kind.value for kind in EntryKind],
        "sorts": list(SORTS),
        "views": user.saved_views.all(),
        "undo": undoing.undoable(request),
        "is_filtered": any(request.GET.get(name) for name in ("q", "kind")),
        "section": "library",
    }
    return render(request, "library/list.html", context)


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


@signed_in
@require_GET
def entry_page(request: HttpRequest, entry_id: int) -> HttpResponse:
    """An entry; the address of one that was merged leads to the other, unless its history is asked for."""
    entry = visible_entry(request, entry_id)
    if entry.merged_into_id is not None and "history" not in request.GET:
        visible = ExperienceEntry.objects.visible_to(person(request))
        if visible.filter(pk=entry.merged_into_id).exists():
            messages.info(request, f"E-{entry.pk} was merged into this entry.", "live")
            return redirect("entry", entry.merged_into_id)
    return render(request, "library/detail.html", entry_context(request, entry))


def visible_entry(request: HttpRequest, entry_id: int) -> ExperienceEntry:
    rows = ExperienceEntry.objects.select_related(
        "current",
        "approved",
        "task__owner",
        "candidate__run",
        "nominated_by",
        "merged_into",
        "claimed_by",
    )
    return get_visible(rows, request.user, pk=entry_id)


def entry_context(
    request: HttpRequest, entry: ExperienceEntry, *, seen: int | None = None
) -> dict[str, Any]:
    """All that an entry's page shows. `seen` is the version that the person has read, if that is not the newest."""
    content = entry.content
    user = person(request)
    versions = list(entry.versions.select_related("author").order_by("-number"))
    newest = versions[0].number
    seen = seen or _number(request, "seen", newest)
    return {
        "entry": entry,
        "content": content,
        "before_after": draw(content.before, content.after) if content.before else None,
        "lines_only": content.after if not content.before else "",
        "versions": versions,
        "evidence": entry.evidence.select_related("task", "before", "after", "version"),
        "reviews": entry.reviews.select_related("reviewer", "version").order_by("-id"),
        "comments": entry.comments.select_related("author", "version"),
        "audit": AuditEvent.objects.about(entry).newest_first()[:50],
        "not_verified": _why_not_verified(entry),
        "worth": worth.worth_of(entry),
        "standing": measured_standings().get(entry.uid),
        "shown_in": _shown_in(entry, user),
        "similar": similar_to(entry, user),
        "seen": seen,
        "newest": versions[0],
        "change": _change(request, versions, seen),
        "queue": asked_queue(request),
        "undo": undoing.undoable(request),
        "may_edit": permissions.may_edit_entry(user, entry),
        "may_review": permissions.may_review(user),
        "may_comment": permissions.may_submit(user),
        "may_widen": permissions.may_widen_entry(user, entry),
        "visibilities": Task.Visibility.choices,
        "approval": approval_of(request, entry),
        "open": [d.value for d in decisions_open(EntryState(entry.state), Actor.EXPERT)],
        "reason": request.POST.get("reason", ""),
        "section": "library",
    }


def asked_queue(request: HttpRequest) -> str:
    asked = request.POST.get("queue") or request.GET.get("queue") or "review"
    return asked if asked in queues.QUEUES else "review"


def _why_not_verified(entry: ExperienceEntry) -> AuditEvent | None:
    """What execution found wrong with a draft that came back from it."""
    if entry.state != EntryState.DRAFT:
        return None
    verified = AuditEvent.objects.about(entry).filter(verb="entry.not_verified")
    found: AuditEvent | None = verified.newest_first().first()
    return found


def _shown_in(entry: ExperienceEntry, user: User) -> Any:
    """The latest candidates that it was shown for, as far as the person may see them."""
    visible = Candidate.objects.visible_to(user)
    uses = entry.uses.filter(candidate__in=visible).select_related("candidate", "version")
    return uses.order_by("-id")[:10]


def approval_of(request: HttpRequest, entry: ExperienceEntry) -> dict[str, Any]:
    """Whether this person may approve now, and what stands in the way, for the page to say."""
    if entry.state in (EntryState.REJECTED, EntryState.RETIRED):
        return {"allowed": False, "why": f"The entry is {entry.state}; restore it first."}
    if entry.state == EntryState.DRAFT:
        return {"allowed": False, "why": "The entry is a draft; submit it for review first."}
    try:
        needed = services.waivers_needed(entry=entry, by=person(request))
    except NotAllowed as error:
        return {"allowed": False, "why": sentence(error)}
    if entry.content.by_model:
        why = "A model wrote parts of it: confirm them, or edit them, first."
        return {"allowed": False, "why": why, "needed": needed}
    return {"allowed": True, "needed": needed}


def _change(request: HttpRequest, versions: list[EntryVersion], seen: int) -> dict[str, Any] | None:
    """The difference of two versions: `?from=1&to=3`; by default what is new to the person, else the last change."""
    by_number = {version.number: version for version in versions}
    newest = versions[0].number
    old = by_number.get(_number(request, "from", seen if seen < newest else newest - 1))
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
        *(f"not when: {line}" for line in content.not_when.splitlines()),
        *(f"if violated: {line}" for line in content.if_violated.splitlines()),
        *(f"before: {line}" for line in content.before.splitlines()),
        *(f"after: {line}" for line in content.after.splitlines()),
    ]
    return "\n".join(lines)


@signed_in
@require_http_methods(["GET", "POST"])
def edit_entry(request: HttpRequest, entry_id: int) -> HttpResponse:
    """A new version; a form that was opened on an older one is shown again with what changed meanwhile."""
    entry = visible_entry(request, entry_id)
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
        "approval": approval_of(request, entry),
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
        review = services.approve_entry(
            entry=entry,
            by=person(request),
            version=version,
            reason=note,
            waiver=request.POST.get("waiver", ""),
            content=content,
        )
        undoing.remember(request, review.batch, f"Edited and approved E-{entry.pk}")
        messages.success(request, "Saved and approved; the edit is shown as yours.", "good")
        return
    services.edit_entry(
        entry=entry, by=person(request), version=version, content=content, note=note
    )
    messages.success(request, "Saved as a new version.", "good")
