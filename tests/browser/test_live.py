"""A run that a script plays, watched in the browser: nothing needs a reload, nothing is lost, nothing is shown twice."""

import re
import time

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from tests.browser.sites import Site

LIVE_MS = 30_000


def open_run(page: Page, run: int) -> None:
    page.goto(f"/runs/{run}")
    page.evaluate("window.loadedOnce = true")


def not_reloaded(page: Page) -> bool:
    return bool(page.evaluate("window.loadedOnce === true"))


def totals(page: Page) -> list[int]:
    return [
        int(e.get_attribute("data-total") or 0)
        for e in page.locator("[data-island][data-total]").all()
    ]


def points(page: Page) -> int:
    return int(page.locator(".chart").get_attribute("data-points") or 0)


def rows(page: Page) -> list[str]:
    return [row.get_attribute("id") or "" for row in page.locator("#feed > li").all()]


def assert_complete(page: Page, count: int) -> None:
    """The page shows all of a finished run, each thing once."""
    expect(page.locator("#live-state")).to_have_attribute("data-state", "ended", timeout=60_000)
    assert rows(page) == [f"c-{number}" for number in range(count, 0, -1)]
    assert points(page) == count
    assert sum(totals(page)) == count
    assert (
        page.locator("#feed > li[data-state=queued], #feed > li[data-state=evaluating]").count()
        == 0
    )


def test_islands_and_the_curve_grow_without_a_reload(page: Page, site: Site) -> None:
    played = site.play(12, pause_s=0.06)
    open_run(page, played.run)
    seen_stages = set()
    first = points(page)
    deadline = time.monotonic() + 40
    while page.locator("#live-state").get_attribute("data-state") != "ended":
        assert time.monotonic() < deadline
        seen_stages |= set(page.locator("#feed li[data-state=evaluating] .kind").all_inner_texts())
        page.wait_for_timeout(50)
    played.wait()

    assert_complete(page, 12)
    assert not_reloaded(page)
    assert first < 12
    assert totals(page) == [4, 4, 4]
    assert {"compile", "probe"} <= seen_stages
    expect(page.locator("#best-speedup")).to_have_text("1.83x")
    assert page.title() == "1.83x · finished · double"
    expect(page.locator("#diag-latest")).to_contain_text("Memory bound")
    expect(page.locator("#download-best")).to_be_visible()


def test_a_diff_opens_on_the_live_page_and_on_its_own(page: Page, site: Site) -> None:
    played = site.play(12)
    played.wait()
    open_run(page, played.run)
    page.locator("#diff-latest summary").click()
    expect(page.locator("#diff-latest ins").first).to_be_visible()

    page.locator("#feed #c-10 a").first.click()
    page.get_by_role("link", name="Diff", exact=True).click()
    expect(page.locator(".diff.unified tr.ins")).to_have_count(2)
    page.keyboard.press("n")
    expect(page.locator("tr.here.change-start")).to_have_count(1)
    page.keyboard.press("v")
    expect(page.locator(".diff.split")).to_be_visible()
    page.get_by_label("against").select_option("reference")
    expect(page.locator(".diff.split")).to_contain_text("class Model")
    page.keyboard.press("[")
    page.wait_for_url("**/c/9/diff")


def test_a_killed_web_server_costs_the_page_nothing(page: Page, site: Site) -> None:
    played = site.play(24, pause_s=0.1)
    open_run(page, played.run)
    expect(page.locator("#live-state")).to_have_attribute("data-state", "live")
    expect(page.locator("#feed > li").nth(2)).to_be_visible(timeout=LIVE_MS)

    site.child("daphne").kill()
    expect(page.locator("#live-state")).to_have_attribute(
        "data-state", re.compile("resuming|lost|polling"), timeout=10_000
    )
    expect(page.locator("#live-state")).to_have_attribute(
        "data-state", re.compile("live|ended"), timeout=60_000
    )
    played.wait()

    assert_complete(page, 24)
    assert not_reloaded(page)


def test_without_a_socket_the_page_asks(page: Page, site: Site) -> None:
    def refuse(socket: WebSocketRoute) -> None:
        socket.close(code=1011)

    page.route_web_socket("**/ws/**", refuse)
    played = site.play(3)
    played_more = site.play(9, finish=True)
    played.wait()
    open_run(page, played_more.run)

    assert_complete_after_polling(page, 9)
    played_more.wait()
    assert not_reloaded(page)


def assert_complete_after_polling(page: Page, count: int) -> None:
    expect(page.locator("#feed > li")).to_have_count(count, timeout=60_000)
    assert_complete(page, count)


def test_new_rows_are_held_while_somebody_reads(page: Page, site: Site) -> None:
    played = site.play(6, pause_s=0.15)
    open_run(page, played.run)
    expect(page.locator("#feed > li").first).to_be_visible(timeout=LIVE_MS)
    page.locator("#feed-hold").check()
    before = rows(page)
    expect(page.locator("#feed-waiting")).to_be_visible(timeout=LIVE_MS)
    assert rows(page) == before

    played.wait()
    page.locator("#feed-waiting").click()
    expect(page.locator("#feed > li")).to_have_count(6)


def test_the_page_of_a_finished_run_needs_no_socket(page: Page, site: Site) -> None:
    played = site.play(5)
    played.wait()
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    open_run(page, played.run)

    assert_complete(page, 5)
    assert sockets == []


def test_a_run_is_paused_stopped_and_cancelled_from_its_page(page: Page, site: Site) -> None:
    played = site.play(2, finish=False)
    played.wait()
    open_run(page, played.run)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#run-head .chip")).to_contain_text("pausing")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#run-head .chip")).to_contain_text("running")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#run-head .chip")).to_contain_text("stopping")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#run-head .chip")).to_contain_text("cancelling")


def test_the_curve_is_reached_by_keyboard_and_read_as_a_table(page: Page, site: Site) -> None:
    played = site.play(5)
    played.wait()
    open_run(page, played.run)
    page.locator(".chart").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-chart-spoken]")).to_have_text(
        "Candidate 1, island 0: 1.04x modelled"
    )
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-chart-spoken]")).to_have_text("Candidate 2, island 1: values")
    page.get_by_text("Show as table").click()
    expect(page.locator("[data-chart-table] tbody tr")).to_have_count(5)
    expect(page.locator("[data-chart-summary]")).to_contain_text("x modelled over eager")
    page.get_by_role("link", name="Log").first.focus()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.locator(".btn-outline:focus").count():
            break
    ring = page.locator(".btn-outline:focus").evaluate("e => getComputedStyle(e).outlineStyle")
    assert ring == "solid", "a focused button shows where the focus is"
    page.get_by_text("log", exact=True).click()
    page.get_by_text("time", exact=True).click()
    expect(page.locator(".chart canvas")).to_have_count(1)


def test_pages_show_all_of_it_without_javascript(browser: Browser, site: Site) -> None:
    played = site.play(4)
    played.wait()
    pages = signed_in_without_scripts(browser, site)
    page = next(pages)
    page.goto(f"/runs/{played.run}")
    expect(page.locator("#feed > li")).to_have_count(4)
    expect(page.locator("[data-chart-table] tbody tr")).to_have_count(4)
    page.goto(f"/runs/{played.run}/c/3/diff")
    expect(page.locator(".diff tr.ins")).to_have_count(2)
    page.goto("/tasks/new?example=level1/softmax")
    page.get_by_label("Evaluations").fill("3")
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    expect(page.get_by_role("heading", name="softmax")).to_be_visible()
    with pytest.raises(StopIteration):
        next(pages)


def signed_in_without_scripts(browser: Browser, site: Site):  # type: ignore[no-untyped-def]
    """The token is pasted where no script moves it."""
    context = browser.new_context(java_script_enabled=False, base_url=site.url)
    page = context.new_page()
    link = site.link()
    page.goto(link)
    page.get_by_label("Sign-in token").fill(link.partition("#")[2])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/runs")
    yield page
    context.close()


def test_a_link_signs_in_once_and_its_token_is_in_no_address(browser: Browser, site: Site) -> None:
    link = site.link()
    token = link.partition("#")[2]
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(link)
    page.wait_for_url("**/runs")
    assert not [url for url in asked if token in url.partition("#")[0]]
    context.close()

    other = browser.new_context(base_url=site.url)
    again = other.new_page()
    again.goto(link)
    expect(again.get_by_text("used already or is too old")).to_be_visible()
    other.close()
