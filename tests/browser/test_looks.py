"""How the pages look and read: both themes, wide and phone, no overflow, no violation that axe finds.

The pictures are in test-results/.
"""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.sites import RESULTS, Site

AXE = (Path(__file__).parent / "vendor/axe-core/4.14.1/axe.min.js").read_text()
SIZES = {"wide": (1366, 900), "phone": (390, 844)}


@pytest.fixture(scope="session")
def shown(site: Site) -> dict[str, str]:
    """The addresses of every kind of page, with a run that has all fates of candidates."""
    played = site.play(12)
    played.wait()
    run = f"/runs/{played.run}"
    return {
        "runs": "/runs",
        "new-task": "/tasks/new?example=level2/mlp_block",
        "run": run,
        "candidates": f"{run}/candidates",
        "search": f"{run}/search",
        "usage": f"{run}/usage",
        "log": f"{run}/log",
        "candidate": f"{run}/c/10",
        "failed-candidate": f"{run}/c/2",
        "code": f"{run}/c/2/code",
        "diff": f"{run}/c/3/diff?view=unified",
        "split-diff": f"{run}/c/3/diff?view=split",
        "lineage": f"{run}/c/10/lineage",
        "prompt": f"{run}/c/3/model",
        "nominate": f"{run}/c/3/nominate",
        "library": "/library?queue=all",
        "review": "/library?queue=review",
        "entry": "/library/1",
        "account": "/account",
        "nothing": "/nowhere",
    }


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        ("wide", "light"),
        ("phone", "dark"),
        pytest.param("wide", "dark", marks=pytest.mark.exam),
        pytest.param("phone", "light", marks=pytest.mark.exam),
    ],
)
def test_pages_fit_and_are_accessible(
    page: Page, site: Site, shown: dict[str, str], size: str, theme: str
) -> None:
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.context.add_cookies([{"name": "theme", "value": theme, "url": site.url}])
    wrong = []
    for name, address in shown.items():
        page.goto(address)
        expect(page.locator("html")).to_have_attribute("data-bs-theme", theme)
        if name == "run":
            expect(page.locator(".chart canvas")).to_be_visible()
        page.screenshot(path=RESULTS / f"{name}-{theme}-{size}.png", full_page=True)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wrong.append(f"{name}: wider than the screen")
        wrong += [f"{name}: {violation}" for violation in violations(page)]
    assert wrong == []


def violations(page: Page) -> list[str]:
    """What axe finds, rules of WCAG 2.2 AA only.

    Line numbers are left out: they are links as high as a line of code, and findings link to the same lines.
    """
    page.evaluate(AXE)
    tags = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
    options = {"runOnly": {"type": "tag", "values": tags}, "resultTypes": ["violations"]}
    found = page.evaluate(f"axe.run({{exclude: [['td.ln']]}}, {json.dumps(options)})")["violations"]
    return [
        f"{violation['id']}: {node['html'][:140]} {node.get('failureSummary', '')[:260]}"
        for violation in found
        for node in violation["nodes"][:3]
    ]


def test_the_theme_switches_at_once_and_stays(page: Page, shown: dict[str, str]) -> None:
    page.goto(shown["run"])
    button = page.get_by_role("button", name=re.compile("theme", re.IGNORECASE))
    chosen = [page.locator("html").get_attribute("data-theme")]
    for _ in range(3):
        button.click()
        chosen.append(page.locator("html").get_attribute("data-theme"))
    assert chosen == ["auto", "light", "dark", "auto"]
    button.click()
    button.click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")


def test_the_keyboard_leads_everywhere_and_can_be_switched_off(
    page: Page, shown: dict[str, str]
) -> None:
    page.goto(shown["runs"])
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.wait_for_url("**/library**")
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("gr?")
    expect(page.get_by_label("Search")).to_have_value("gr?")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    page.keyboard.press("j")
    expect(page.locator("tr.selected")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/runs/\d+$"))

    page.keyboard.press("?")
    page.get_by_label("Single-key shortcuts are on").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)


BROKEN = "import torch\nclass Model(torch.nn.Module):\n    def forwrd(self, x):\n        return x\n"


def test_problems_of_a_task_appear_at_their_line_while_one_types(page: Page, site: Site) -> None:
    page.goto("/tasks/new")
    expect(page.locator("#check")).to_contain_text("get_inputs() returns")
    editor = page.locator(".cm-content")
    editor.click()
    page.keyboard.insert_text(BROKEN)
    expect(page.locator("#check")).to_contain_text("Model has no method forward")
    expect(page.locator("#check")).to_contain_text("Line 2")
    expect(page.locator(".cm-lint-marker-error")).to_have_count(1)
    page.get_by_role("button", name="Start the run").click()
    expect(page.get_by_role("alert").first).to_contain_text("Nothing was started")
    expect(page.locator(".cm-content")).to_contain_text("forwrd")


def test_a_file_is_uploaded_into_the_editor(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "my_task.py"
    file.write_text(BROKEN.replace("forwrd", "forward") + "def get_inputs():\n    return []\n")
    page.goto("/tasks/new")
    page.locator("#id_upload").set_input_files(file)
    expect(page.locator("#check")).to_contain_text("honours the contract")
    expect(page.get_by_label("Name of the task")).to_have_value("my_task")
    large = tmp_path / "large.py"
    large.write_text("#" * 70_000)
    page.locator("#id_upload").set_input_files(large)
    expect(page.locator("#upload-note")).to_contain_text("at most 64 KiB")


def test_a_lesson_is_nominated_edited_and_approved(page: Page, shown: dict[str, str]) -> None:
    page.goto(shown["candidate"])
    page.get_by_role("link", name="Nominate").click()
    expect(page.get_by_label("Evidence")).to_contain_text("modelled")
    page.get_by_label("Title").fill("Blocks of 2048")
    page.get_by_role("button", name="Nominate").click()
    page.wait_for_url(re.compile(r"/library/\d+$"))
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("What to do").fill("Use blocks of 2048 elements.")
    page.get_by_label("Why you change it").fill("clearer")
    page.get_by_role("button", name="Save as a new version").click()
    expect(page.get_by_label("Versions")).to_contain_text("clearer")
    page.get_by_label("Waiver").fill("there is only me")
    address = page.url
    page.get_by_role("button", name="Approve").click()
    page.goto(address)
    expect(page.locator(".page-head .chip")).to_contain_text("approved")
    expect(page.get_by_label("Decisions")).to_contain_text("there is only me")
