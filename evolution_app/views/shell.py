"""What every page shows around its content: the theme, and banners about the service."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from evolution_app.models import Runner
from evolution_app.models.accounts import Theme
from evolution_app.views.access import signed_in


@dataclass(frozen=True)
class Banner:
    level: str  # warn or bad
    icon: str
    text: str


def banners() -> list[Banner]:
    """One query. No runner alive, a runner that cannot work, or one that works without a sandbox."""
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
