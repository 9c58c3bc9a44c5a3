"""Who may connect: the origin of sockets, bearer tokens, and who reads the metrics.

CSRF protection and the content security policy are middleware: see the settings.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import split_domain_port, validate_host
from django_prometheus.exports import ExportToDjangoView

from evolution_app.models import ApiToken, User
from evolution_app.permissions import may_operate

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
# Channels' own types differ from Django's in ways that do not matter here.
Application = Any

_REFUSED = 4403


class SameOrigin:
    """Lets a socket through only if its Host is ours and its Origin, which every browser sends, is that very host and port.

    Another program on this machine is another port of the same host, and a name that somebody points at 127.0.0.1 is
    another host: neither may use the cookies of a person's browser.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:
        if is_same_origin(header(scope, b"host"), header(scope, b"origin")):
            return await self.application(scope, receive, send)
        return await send({"type": "websocket.close", "code": _REFUSED})


def is_same_origin(host: str | None, origin: str | None) -> bool:
    """Whether a Host header is one of ours and an Origin header, if any, names it; None is an absent header."""
    if host is None or not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    if origin is None:
        return True
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key.lower() == name:
            return str(value.decode("latin-1"))
    return None


class BearerToken:
    """Signs a socket in by `Authorization: Bearer ...`, for programs; a session, if any, was looked at before."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:
        user = await sync_to_async(user_of_header)(header(scope, b"authorization"))
        if user is not None:
            scope = {**scope, "user": user}
        return await self.application(scope, receive, send)


def user_of_header(authorization: str | None) -> User | None:
    """The user whom a bearer token signs in; None without one that is usable."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        return None
    return ApiToken.objects.user_of(token.strip())


def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' figures, for operators and for programs on this machine; 404 for everybody else."""
    if not may_operate(request.user) and not is_from_this_machine(request):
        raise Http404
    answer: HttpResponse = ExportToDjangoView(request)
    return answer


def is_from_this_machine(request: HttpRequest) -> bool:
    """Whether the connection, and no proxy's, comes from loopback."""
    address = request.META.get("REMOTE_ADDR") or ""
    if any(name in request.META for name in ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED")):
        return False
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
