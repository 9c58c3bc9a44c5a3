"""What every page shows around its content: the theme, and banners about the service."""

import shutil
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from evolution_app.models import Runner
from evolution_app.models.accounts import Theme
from evolution_app.views.access import signed_in

LEAST_FREE_BYTES: Final = 32_000_000


@dataclass(frozen=True)
class Banner:
    level: str  # warn or bad
    icon: str
    text: str


def banners() -> list[Banner]:
    """One query. No room on the disk, no runner alive, one that cannot work, or one that works without a sandbox."""
    return [*_disk(), *_runners()]


def _disk() -> list[Banner]:
    """Room for an embedded database; that of another one is its server's to watch."""
    if connection.vendor != "sqlite":
        return []
    free = shutil.disk_usage(settings.ENVIRONMENT.var).free
    if free >= LEAST_FREE_BYTES:
        return []
    text = (
        f"The disk is full ({free / 1e6:.0f} MB are left for the data folder), so nothing new is kept and runs wait. "
        "Free some space; they go on by themselves."
    )
    return [Banner("bad", "warning", text)]


def _runners() -> list[Banner]:
    runners = list(Runner.objects.alive().defer("fingerprint"))
    if not runners:
        text = (
            "No runner is alive, so runs wait. Under “make run” it is started again by itself; "
            "elsewhere start one with: python -m gpu_runner work"
        )
        return [Banner("warn", "warning", text)]
    found = [
        Banner("bad", "warning", f"Runner {runner.name} cannot work: {runner.problem}")
        for runner in runners
        if runner.problem
    ]
    found += [
        Banner(
            "bad",
            "shield",
            f"The sandbox of runner {runner.name} is off: submitted code runs with the runner's own rights.",
        )
        for runner in runners
        if not runner.is_sandboxed
    ]
    return found


def theme_of(request: HttpRequest) -> str:
    """The browser's cookie first, since it is the newer choice on this device; then the account's."""
    chosen = request.COOKIES.get("theme", "")
    if chosen not in Theme.values and getattr(request, "user", None) is not None:
        chosen = getattr(request.user, "theme", "")
    return chosen if chosen in Theme.values else str(Theme.AUTO)


@require_GET
@signed_in
def banners_view(request: HttpRequest) -> HttpResponse:
    """The banners alone; the pages ask for them every ten seconds."""
    return render(request, "parts/banners.html", {"banners": banners()})
