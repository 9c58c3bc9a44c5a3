"""The offer to take back what one has just decided, kept with the session until it is too late."""

from typing import Any

from django.http import HttpRequest

from evolution_app.models import Review
from evolution_app.views.access import person

_KEY = "undo"


def remember(request: HttpRequest, batch: str | None, what: str) -> None:
    """Offer to take back the decisions of a batch; `what` says in words what was done."""
    request.session[_KEY] = {"batch": batch, "what": what}


def forget(request: HttpRequest) -> None:
    request.session.pop(_KEY, None)


def undoable(request: HttpRequest) -> dict[str, Any] | None:
    """The latest offer that still holds."""
    offer: dict[str, Any] | None = request.session.get(_KEY)
    if offer is None:
        return None
    mine = Review.objects.filter(batch=offer["batch"], reviewer=person(request))
    review = mine.of_people().first()
    return offer if review is not None and review.is_recent else None
