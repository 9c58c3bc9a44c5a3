"""A site of its own for the browser: `manage.py up` with its own data folder on a free port, and Chromium to look at it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.browser.sites import RESULTS, Site, start, stop

FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update"
    " --disable-sync --no-first-run"
).split()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs them all: they share two sites and one browser."""
    for item in items:
        if Path(item.fspath).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("browser"))


def missing(what: str) -> None:
    """Skip on a machine without it; fail where everything must be there."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"{what} is missing; CI needs it")
    pytest.skip(f"{what} is missing: `make test-system` installs it")


def find_chromium() -> str | None:
    given = os.environ.get("CHROMIUM")
    names = [given] if given else ["chromium", "chromium-browser", "google-chrome"]
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        missing("Chromium")
    RESULTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Site]:
    """Without a runner: runs are played by a script."""
    site = start(tmp_path_factory.mktemp("site"), "--no-runner")
    yield site
    stop(site)


@pytest.fixture(scope="session")
def real_site(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Site]:
    """With a real runner."""
    if shutil.which("bwrap") is None:
        missing("bubblewrap")
    site = start(tmp_path_factory.mktemp("real"))
    yield site
    stop(site)


class Watched:
    """Collects what a page should never do: errors, refused resources, requests to elsewhere."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.wrongs: list[str] = []
        self.url = url
        self.pages_loaded: list[str] = []
        context.on("console", self._console)
        context.on("weberror", lambda error: self.wrongs.append(f"script error: {error.error}"))
        context.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        # What a killed server looks like from here; a test that kills one looks at the page itself.
        expected = (
            "Failed to load resource",
            "Failed to fetch",
            "WebSocket connection",
            "htmx:ws:error",
        )
        if message.type == "error" and not any(words in message.text for words in expected):
            self.wrongs.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if request.is_navigation_request():
            self.pages_loaded.append(request.url)
        if not request.url.startswith((self.url, "data:", "blob:", "about:")):
            self.wrongs.append(f"asked {request.url}")


def signed_in(browser: Browser, site: Site, **options: Any) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1366, "height": 900}, base_url=site.url, **options
    )
    context.set_default_timeout(15_000)
    watched = Watched(context, site.url)
    page = context.new_page()
    page.goto(site.link())
    page.wait_for_url("**/runs")
    yield page
    context.close()
    assert watched.wrongs == []


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    yield from signed_in(browser, site)


@pytest.fixture
def real_page(browser: Browser, real_site: Site) -> Iterator[Page]:
    yield from signed_in(browser, real_site)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """A picture of the page where a test failed."""
    outcome = yield
    report = outcome.get_result()
    arguments = getattr(item, "funcargs", {})
    shown = arguments.get("page") or arguments.get("real_page")
    if report.when == "call" and report.failed and shown is not None:
        shown.screenshot(path=RESULTS / f"failed-{item.name}.png", full_page=True)
