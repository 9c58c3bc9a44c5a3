"""A small suite on this machine's own evaluator: killed, gone on with, stopped by Ctrl-C, and looked at in a browser."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from gpu_runner.bench.report import as_html, report_of
from gpu_runner.bench.rows import Outcome
from gpu_runner.journal import read_records
from tests.bench.making import ON_GPU, SETTINGS, ratio, row

ROOT = Path(__file__).parents[2]
BROKEN = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.nothing()


def get_inputs():
    return [torch.zeros(4)]
"""
OPTIONS = "--device cpu --evaluations 2 --islands 2 --tasks-at-once 2 --seed 1".split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A suite of three quick tasks and one that cannot be used."""
    for level in ("level1", "serving"):
        (tmp_path / "suite" / level).mkdir(parents=True)
    copy(ROOT / "examples/level1/softmax.py", tmp_path / "suite/level1/2_softmax.py")
    copy(ROOT / "examples/level1/gelu_tanh.py", tmp_path / "suite/level1/10_gelu.py")
    copy(ROOT / "examples/level1/sum_of_squares.py", tmp_path / "suite/serving/sum.py")
    (tmp_path / "suite/level1/3_broken.py").write_text(BROKEN)
    return tmp_path


def started(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "gpu_runner", "bench", str(folder / "suite")]
    return subprocess.Popen(
        [*command, "--out", str(folder / "out"), *OPTIONS],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def evaluated(folder: Path) -> Counter[tuple[str, int]]:
    return Counter(
        (path.parent.name, record["candidate_id"])
        for path in folder.glob("out/**/journal.jsonl")
        for record in read_records(path)
        if record["record"] == "finished"
    )


def wait_for(is_so: Callable[[], Any], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 240
    while not is_so():
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.exam
@pytest.mark.sandbox
@pytest.mark.timeout(900)
def test_a_suite_killed_and_stopped_ends_with_every_candidate_evaluated_once(folder: Path) -> None:
    with started(folder) as first:
        wait_for(lambda: evaluated(folder), first)
        first.kill()
    before = evaluated(folder)
    with started(folder) as second:
        wait_for(lambda: len(evaluated(folder)) > len(before), second)
        second.send_signal(signal.SIGINT)
        _, told = second.communicate(timeout=240)
    assert second.returncode == 1
    assert "run the same command again to go on" in told
    assert len(evaluated(folder)) < 6
    with started(folder) as third:
        _, told = third.communicate(timeout=600)
    # One task has no kernel, since it is unusable.
    assert third.returncode == 1, told
    assert evaluated(folder) >= before
    assert set(evaluated(folder).values()) == {1}
    report = json.loads((folder / "out/report.json").read_text())
    assert [(row["task"], row["outcome"]) for row in report["rows"]] == [
        ("level1/2_softmax", "done"),
        ("level1/3_broken", "invalid"),
        ("level1/10_gelu", "done"),
        ("serving/sum", "done"),
    ]
    assert all(row["best"] for row in report["rows"] if row["outcome"] == "done")
    assert {row["fidelity"] for row in report["rows"]} == {"modelled", None}
    assert [sitting["rows"] for sitting in report["sittings"]] == [4]
    assert [row["kind"] for row in report["rows"]][::2] == ["softmax", "elementwise"]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A report of two measured sittings and modelled figures, with long names and every outcome."""
    rows = [
        row(
            f"level{1 + number // 6}/{number}_{'a_rather_long_name_' * 3}{number}",
            ratio(0.5 + number / 4, 0.45 + number / 4, 0.55 + number / 4),
            ratio(1.5 - number / 12, 1.45 - number / 12, 1.6 - number / 12),
            environment=ON_GPU | {"driver": str(580 + number % 2)},
            roofline_us=4.0 + number,
            curve=((1, 0.5), (2 + number, 0.5 + number / 4)),
            evaluations=24,
            counts={"correct": 20, "compile_error": 4},
            seconds=61.0,
            lock_s=8.5,
        )
        for number in range(12)
    ]
    rows += [
        row("serving/none", environment=ON_GPU, counts={"incorrect": 24}, reason="budget"),
        row("serving/odd", outcome=Outcome.INVALID, environment=ON_GPU, reason="no Model " * 30),
        row("serving/lost", outcome=Outcome.FAILED, environment=ON_GPU, reason="DeviceLost: gone"),
        row("serving/later", outcome=Outcome.WAITING, environment={}),
        row("modelled/one", 2.0, curve=((1, 2.0),), evaluations=4),
    ]
    path = tmp_path / "report.html"
    path.write_text(as_html(report_of(SETTINGS, rows)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium")
        yield browser
        browser.close()


SMALLEST_TEXT = """
() => Math.min(...[...document.querySelectorAll('svg text')].map(
    text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))
"""
FAINT = """
() => {
  const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = text => rgb(text).map(v => v / 255).map(
    v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
  ).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    while (element && getComputedStyle(element).backgroundColor.endsWith(', 0)')) element = element.parentElement;
    return getComputedStyle(element || document.body).backgroundColor;
  };
  return [...document.querySelectorAll('h1, h2, h3, p, td, th, small, dt, dd, span, b, figcaption, summary, text')]
    .filter(e => e.textContent.trim() && !e.matches('.key')).map(e => {
      const style = getComputedStyle(e);
      const [a, b] = [light(e.tagName === 'text' ? style.fill : style.color), light(behind(e))].sort((x, y) => y - x);
      return [(a + 0.05) / (b + 0.05), e.tagName, e.textContent.trim().slice(0, 30)];
    }).filter(([contrast]) => contrast < 4.5);
}
"""


@pytest.mark.exam
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_the_report_is_readable_on_every_screen(
    page: Path, chromium: Any, scheme: str, width: int
) -> None:
    context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    shown = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    shown.on("request", lambda request: asked.append(request.url))
    shown.on("console", lambda message: said.append(message.text))
    shown.goto(page.as_uri())
    assert (asked, said) == ([page.as_uri()], [])
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.evaluate(SMALLEST_TEXT) >= 8.5
    assert shown.evaluate(FAINT) == []
    context.close()
