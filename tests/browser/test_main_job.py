"""The main job, with a real runner: submit an example, watch islands evolve, stop, check the downloaded file."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.sites import RESULTS, ROOT, Site

TASK = "level1/sum_of_squares"
ISLANDS = 3
PATIENCE_S = 420


@pytest.mark.timeout(900)
def test_an_example_becomes_a_verified_file(
    real_page: Page, real_site: Site, tmp_path: Path
) -> None:
    page = real_page
    submit(page)
    page.evaluate("window.loadedOnce = true")
    watch_until_every_island_has_candidates(page)
    assert page.evaluate("window.loadedOnce === true")

    open_the_latest_diff(page)
    stop(page)
    page.screenshot(path=RESULTS / "main-job.png", full_page=True)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download best").click()
    best = tmp_path / "best.py"
    download.value.save_as(best)
    assert "# Verdict:     correct" in best.read_text()
    assert "modelled" in best.read_text()

    evaluation = evaluate(best)
    assert evaluation["verdict"] == "correct"
    assert evaluation["fidelity"] == "modelled"


def submit(page: Page) -> None:
    page.goto("/runs")
    page.get_by_role("link", name="New task").first.click()
    page.get_by_label("Start from an example").select_option(TASK)
    expect(page.locator(".cm-content")).to_contain_text("class Model")
    expect(page.locator("#check")).to_contain_text("honours the contract")
    page.get_by_label("Evaluations").fill("60")
    page.get_by_label("Device").select_option("cpu")
    page.get_by_label("Seed").fill("1")
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))


def watch_until_every_island_has_candidates(page: Page) -> None:
    """Points are counted on the way: the curve grows, it does not jump to its end."""
    seen: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        seen.append(int(page.locator(".chart").get_attribute("data-points") or 0))
        totals = [
            int(island.get_attribute("data-total") or 0)
            for island in page.locator("[data-island][data-total]").all()
        ]
        has_child = page.locator("#diff-latest details").count() > 0
        if len(totals) == ISLANDS and min(totals) >= 1 and seen[-1] >= 4 and has_child:
            break
        page.wait_for_timeout(250)
    else:
        pytest.fail(f"after {PATIENCE_S} s the islands have {totals} candidates, {seen[-1]} points")
    assert sorted(set(seen)) == list(range(min(seen), max(seen) + 1))


def open_the_latest_diff(page: Page) -> None:
    page.locator("#diff-latest summary").click()
    expect(page.locator("#diff-latest .diff tr.ins").first).to_be_visible()


def stop(page: Page) -> None:
    page.locator("#stop").click()
    head = page.locator("#run-head")
    expect(head).to_have_attribute("data-state", "finished", timeout=120_000)
    expect(page.locator("#live-state")).to_have_attribute("data-state", "ended")
    expect(page.locator("#best-speedup")).to_have_text(re.compile(r"\d+\.\d\dx"))


def evaluate(best: Path) -> dict[str, object]:
    task = ROOT / "examples" / f"{TASK}.py"
    command = [
        sys.executable,
        "-m",
        "gpu_runner",
        "evaluate",
        str(task),
        str(best),
        "--json",
        "--device",
        "cpu",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    evaluation: dict[str, object] = json.loads(done.stdout)
    return evaluation
