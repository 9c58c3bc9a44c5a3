"""What all routes of the HTTP API share: who asks, and lists in pages."""

from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.http import Http404, HttpRequest

from evolution_app.models import User

MAX_PAGE = 1000


def person(request: HttpRequest) -> User:
    """The user behind a request that `auth` let through."""
    user = request.user
    if isinstance(user, AnonymousUser):
        raise Http404
    assert isinstance(user, User)
    return user


def page(rows: Any, offset: int, limit: int, as_json: Any) -> dict[str, Any]:
    offset, limit = max(0, offset), max(1, min(limit, MAX_PAGE))
    return {
        "count": rows.count(),
        "items": [as_json(row) for row in rows[offset : offset + limit]],
    }
