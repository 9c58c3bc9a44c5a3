"""What people do to entries of the library: decide, alone or on several, take back, claim, discuss, show to others."""

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from evolution_app import permissions, services
from evolution_app.models import ExperienceEntry, Review
from evolution_app.permissions import get_visible
from evolution_app.services import NotAllowed, Refused, Stale
from evolution_app.views import queues, undoing
from evolution_app.views.access import back_to, person, sentence, signed_in, tell_refusal
from evolution_app.views.library import asked_queue, entry_context, visible_entry

_DECISIONS: dict[str, tuple[Callable[..., Review], str]] = {
    "approve": (services.approve_entry, "Approved"),
    "request_changes": (services.request_changes, "Sent back to its author"),
    "reject": (services.reject_entry, "Rejected"),
    "retire": (services.retire_entry, "Retired"),
    "restore": (services.restore_entry, "Back in the review queue"),
}


def _version(request: HttpRequest) -> int:
    given = request.POST.get("version", "")
    return int(given) if given.isdecimal() and len(given) < 9 else 0


@signed_in
@require_POST
def decide(request: HttpRequest, entry_id: int, decision: str) -> HttpResponse:
    """Approve, request changes, reject, retire or restore; then on to the next entry of the queue.

    What cannot be decided shows the page again with what was typed; a newer version, with what has changed.
    """
    entry = visible_entry(request, entry_id)
    act, answer = _DECISIONS[decision]
    extra = {"waiver": request.POST.get("waiver", "")} if decision == "approve" else {}
    try:
        review = act(
            entry=entry,
            by=person(request),
            version=_version(request),
            reason=request.POST.get("reason", ""),
            **extra,
        )
    except Refused as error:
        return _shown_again(request, entry, error)
    return _done(request, entry, review, f"{answer}: E-{entry.pk}")


def _shown_again(request: HttpRequest, entry: ExperienceEntry, error: Refused) -> HttpResponse:
    tell_refusal(request, error)
    is_stale = isinstance(error, Stale)
    # As it is now: somebody else may have changed it since it was read.
    entry = visible_entry(request, entry.pk)
    context = entry_context(request, entry, seen=_version(request) if is_stale else None)
    return render(request, "library/detail.html", context, status=409 if is_stale else 422)


def _done(request: HttpRequest, entry: ExperienceEntry, review: Review, what: str) -> HttpResponse:
    undoing.remember(request, review.batch, what)
    queue = asked_queue(request)
    visible = ExperienceEntry.objects.visible_to(person(request))
    following = queues.next_after(entry, queue, visible, person(request))
    if following is None:
        return redirect("library")
    response = redirect("entry", following.pk)
    response["Location"] += "" if queue == "review" else f"?queue={queue}"
    return response


@signed_in
@require_POST
def merge(request: HttpRequest, entry_id: int) -> HttpResponse:
    """Retire this entry in favour of another one."""
    entry = visible_entry(request, entry_id)
    if not permissions.may_review(request.user):
        raise NotAllowed("only experts review entries")
    into = request.POST.get("into", "").strip().upper().removeprefix("E-")
    try:
        if not into.isdecimal() or len(into) > 12:
            raise Refused("name the entry to merge into, such as E-12")
        review = services.merge_entry(
            entry=entry,
            into=get_visible(ExperienceEntry, request.user, pk=int(into)),
            by=person(request),
            version=_version(request),
            reason=request.POST.get("reason", ""),
        )
    except Refused as error:
        return _shown_again(request, entry, error)
    undoing.remember(request, review.batch, f"Merged E-{entry.pk} into E-{into}")
    return redirect("entry", int(into))


@signed_in
@require_POST
def decide_several(request: HttpRequest) -> HttpResponse:
    """One decision with one reason on the entries that were ticked, each named with the version that was listed."""
    act, answer = _DECISIONS.get(request.POST.get("decision", ""), (None, ""))
    back = back_to(request, "/library")
    if act is None:
        messages.error(request, "Choose what to decide.", "bad")
        return back
    chosen = [
        (visible_entry(request, int(pk)), int(version))
        for pk, _, version in (value.partition(":") for value in request.POST.getlist("entry"))
        if pk.isdecimal() and version.isdecimal() and len(pk + version) < 18
    ]
    if not chosen:
        messages.error(request, "Tick the entries to decide on.", "bad")
        return back
    batch, done, refused = services.decide_together(
        chosen=chosen, by=person(request), decide=act, reason=request.POST.get("reason", "")
    )
    if done:
        names = ", ".join(f"E-{entry.pk}" for entry in done)
        undoing.remember(request, batch, f"{answer}: {names}")
    for entry, why in refused:
        messages.error(request, f"E-{entry.pk}: {why}.", "bad")
    return back


@signed_in
@require_POST
def undo(request: HttpRequest) -> HttpResponse:
    """Take back the latest decision or batch; one entry is shown again, several in their list."""
    offer = undoing.undoable(request)
    try:
        if offer is None:
            raise Refused("there is nothing to take back any more")
        entries = services.undo_reviews(batch=offer["batch"], by=person(request))
    except Refused as error:
        tell_refusal(request, error)
        return back_to(request, "/library")
    undoing.forget(request)
    messages.success(request, "Taken back.", "good")
    return redirect("entry", entries[0].pk) if len(entries) == 1 else back_to(request, "/library")


def _act_on(
    request: HttpRequest, entry_id: int, act: Callable[[ExperienceEntry], object]
) -> HttpResponse:
    """Do something small to an entry and show it again, or why not."""
    entry = visible_entry(request, entry_id)
    try:
        act(entry)
    except Refused as error:
        tell_refusal(request, error)
    return redirect("entry", entry.pk)


@signed_in
@require_POST
def resubmit(request: HttpRequest, entry_id: int) -> HttpResponse:
    by, version = person(request), _version(request)
    return _act_on(
        request, entry_id, lambda e: services.resubmit_entry(entry=e, by=by, version=version)
    )


@signed_in
@require_POST
def confirm(request: HttpRequest, entry_id: int) -> HttpResponse:
    by, version = person(request), _version(request)
    return _act_on(
        request, entry_id, lambda e: services.confirm_entry(entry=e, by=by, version=version)
    )


@signed_in
@require_POST
def claim(request: HttpRequest, entry_id: int) -> HttpResponse:
    by, note = person(request), request.POST.get("note", "")
    return _act_on(request, entry_id, lambda e: services.claim_entry(entry=e, by=by, note=note))


@signed_in
@require_POST
def release(request: HttpRequest, entry_id: int) -> HttpResponse:
    by = person(request)
    return _act_on(request, entry_id, lambda e: services.release_entry(entry=e, by=by))


@signed_in
@require_POST
def comment(request: HttpRequest, entry_id: int) -> HttpResponse:
    by, text = person(request), request.POST.get("text", "")
    return _act_on(request, entry_id, lambda e: services.comment(entry=e, by=by, text=text))


@signed_in
@require_POST
def share_entry(request: HttpRequest, entry_id: int) -> HttpResponse:
    by, visibility = person(request), request.POST.get("visibility", "")
    return _act_on(
        request,
        entry_id,
        lambda e: services.share_entry(entry=e, by=by, visibility=visibility),
    )


@signed_in
@require_POST
def save_view(request: HttpRequest) -> HttpResponse:
    """Keep the search of the page that the form stands on under a name."""
    query = request.POST.get("query", "")
    try:
        services.save_view(user=person(request), name=request.POST.get("name", ""), query=query)
    except Refused as error:
        messages.error(request, sentence(error), "bad")
    return back_to(request, "/library")


@signed_in
@require_POST
def forget_view(request: HttpRequest, view_id: int) -> HttpResponse:
    services.forget_view(user=person(request), view_id=view_id)
    return redirect("library")
