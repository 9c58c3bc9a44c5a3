"""Two people at the same entries: claims, a decision that comes too late, and a whole review without a mouse."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.sites import RESULTS, Site


@pytest.fixture
def emil(browser: Browser, site: Site) -> Iterator[Page]:
    """An expert beside the local owner."""
    site.manage("account", "emil", "--role", "expert")
    context = browser.new_context(
        viewport={"width": 1366, "height": 900}, base_url=site.url, reduced_motion="reduce"
    )
    context.set_default_timeout(30_000)
    page = context.new_page()
    page.goto(site.link("emil"))
    page.wait_for_url("**/runs")
    yield page
    context.close()


@pytest.fixture
def lessons(site: Site, page: Page) -> list[str]:
    """Addresses of two nominations that everybody may see, by the local owner."""
    addresses = []
    for _ in range(2):
        played = site.play(3)
        played.wait()
        page.goto("/library?queue=review&sort=changed")
        page.locator("tbody tr a").first.click()
        page.wait_for_url(re.compile(r"/library/\d+$"))
        page.locator("select[name=visibility]").select_option("public")
        page.get_by_role("button", name="Set", exact=True).click()
        addresses.append(page.url)
    return addresses


@pytest.mark.exam
def test_two_people_review_at_the_same_time(page: Page, emil: Page, lessons: list[str]) -> None:
    first, second = lessons
    # A claim is seen on the other's open page, and taken over with a note.
    page.goto(first)
    emil.goto(first)
    page.keyboard.press("c")
    expect(page.get_by_text("you are reviewing it")).to_be_visible()
    expect(emil.locator("#entry-claim")).to_contain_text("is reviewing it just now")
    emil.screenshot(path=RESULTS / "claimed-by-another.png", full_page=True)
    with emil.expect_response(re.compile("history=1")):
        emil.get_by_label("Note to take over").fill("I wrote kernels like this one")
    # What is being typed outlives the refreshes of the page.
    with emil.expect_response(re.compile("history=1")):
        pass
    expect(emil.get_by_label("Note to take over")).to_have_value("I wrote kernels like this one")
    emil.get_by_role("button", name="Take over").click()
    expect(emil.get_by_text("you are reviewing it")).to_be_visible()
    expect(page.locator("#entry-comments")).to_contain_text("I wrote kernels like this one")

    # The owner edits meanwhile: what is typed stays, and a decision on the older version is not taken.
    emil.get_by_label("Reason", exact=True).fill("sound")
    page.goto(f"{first}/edit")
    page.get_by_label("What to do").fill("Add twice, do not multiply")
    page.get_by_role("button", name="Save as a new version").click()
    expect(emil.locator("#entry-moved")).to_contain_text("wrote version 2")
    expect(emil.get_by_label("Reason", exact=True)).to_have_value("sound")
    emil.get_by_role("button", name="Approve", exact=True).click()
    expect(emil.locator("#versions-diff")).to_contain_text("Add twice, do not multiply")
    expect(emil.get_by_label("Reason", exact=True)).to_have_value("sound")
    emil.screenshot(path=RESULTS / "stale-review.png", full_page=True)

    # By keyboard alone: edit and approve, reject with a reason, take it back.
    emil.goto(first)
    emil.keyboard.press("e")
    emil.wait_for_url("**/edit")
    emil.get_by_label("Title").fill("Add instead of multiplying")
    emil.get_by_label("Why you change it").press("Tab")
    emil.get_by_role("button", name="Save and approve").press("Enter")
    emil.wait_for_url(re.compile(r"/library/\d+$"))
    expect(emil.locator("#entry-head .chip").first).to_have_text(re.compile("approved"))
    emil.goto(second)
    emil.keyboard.press("x")
    expect(emil.get_by_label("Reason", exact=True)).to_be_focused()
    emil.keyboard.type("says the same as the other one")
    emil.keyboard.press("Control+Enter")
    expect(emil.locator(".undo")).to_contain_text("Rejected")
    emil.keyboard.press("z")
    emil.wait_for_url(re.compile(r"/library/\d+$"))
    expect(emil.locator("#entry-head .chip").first).to_have_text(re.compile("nominated"))

    # Several at once, and back.
    emil.goto("/library?queue=review")
    emil.keyboard.press("j")
    emil.keyboard.press("s")
    emil.get_by_label("Decision").select_option("reject")
    emil.get_by_label("Reason").fill("not now")
    emil.get_by_role("button", name="Decide").press("Enter")
    expect(emil.locator(".undo")).to_contain_text("Rejected: E-")
    emil.keyboard.press("z")
    expect(emil.get_by_text("Taken back")).to_be_visible()

    # Merged: the old address leads to the other entry.
    emil.goto(second)
    emil.get_by_label("Reason", exact=True).fill("the same lesson")
    emil.get_by_label("Entry to merge into").fill("E-" + first.rsplit("/", 1)[1])
    emil.get_by_label("Entry to merge into").press("Enter")
    emil.wait_for_url(first)
    emil.goto(second)
    assert emil.url == first


def test_what_only_a_run_has_checked_says_so_and_is_confirmed_in_one_step(
    emil: Page, site: Site
) -> None:
    for theme in ("light", "dark"):
        emil.context.add_cookies([{"name": "theme", "value": theme, "url": site.url}])
        emil.goto("/library?queue=unconfirmed")
        expect(emil.locator("tbody .chip").first).to_have_text(re.compile("checked, unconfirmed"))
        emil.screenshot(path=RESULTS / f"unconfirmed-{theme}.png")
    link = emil.locator("tbody td.title a").first
    address, title = str(link.get_attribute("href")), link.inner_text()
    link.click()
    expect(emil.locator("#entry-unconfirmed")).to_contain_text("no person has confirmed it")
    for theme in ("dark", "light"):
        emil.context.add_cookies([{"name": "theme", "value": theme, "url": site.url}])
        emil.reload()
        emil.screenshot(path=RESULTS / f"unconfirmed-entry-{theme}.png")
    emil.get_by_role("button", name="Confirm").click()
    expect(emil.locator("#entry-title")).not_to_have_text(title)
    expect(emil.locator("#entry-unconfirmed")).to_be_visible()
    emil.goto(address)
    expect(emil.locator("#entry-head .chip").first).to_have_text(re.compile("approved"))
    expect(emil.locator("#entry-unconfirmed")).to_have_count(0)
    expect(emil.get_by_label("Decisions")).to_contain_text("emil: Approve v1")
