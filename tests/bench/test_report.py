"""The page: complete in itself, honest in its words, and safe whatever a task is called."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest

from gpu_runner.bench.report import as_html, report_of
from gpu_runner.bench.rows import Best, Outcome, Row
from tests.bench.making import ON_GPU, SETTINGS, figures, ratio, row

VOID = {"meta", "line", "circle", "path", "br"}


class Page(HTMLParser):
    """Texts and tags of a page, whose elements must be closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.texts.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(filter(None, self.texts))


def page(rows: Sequence[Row]) -> Page:
    return Page(as_html(report_of(SETTINGS, rows)))


MEASURED = [
    row(
        "level1/softmax",
        ratio(2.0, 1.9, 2.1),
        ratio(0.5, 0.4, 0.6),
        curve=((1, 1.5), (3, 2.0)),
        evaluations=4,
        roofline_us=5.0,
        lock_s=12.5,
        counts={"correct": 3, "incorrect": 1},
    ),
    row("level2/mlp", environment=ON_GPU, counts={"incorrect": 4}, reason="budget: 4 evaluations"),
    row("level2/odd", outcome=Outcome.INVALID, reason="line 3: no Model", environment=ON_GPU),
]


def test_the_page_needs_nothing_but_itself() -> None:
    html = as_html(report_of(SETTINGS, MEASURED))
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<script|<link|<img|src=", html)
    policy = dict(Page(html).tags[4][1])
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_light_dark_and_narrow_screens_are_provided_for() -> None:
    html = as_html(report_of(SETTINGS, MEASURED))
    assert 'content="width=device-width, initial-scale=1"' in html
    assert "@media (prefers-color-scheme: dark)" in html
    assert "@media (max-width: 64rem)" in html


def test_what_was_found_stands_on_the_page_with_its_interval() -> None:
    text = page(MEASURED).text
    for words in (
        "3 of 3 results",
        "1 of 3 tasks with a correct kernel",
        "own_kernels · precision reference · measured",
        "33% of all tasks faster than eager; 33% by interval",
        "2.00 1.90 to 2.10",
        "0.50 0.40 to 0.60",
        "unusable task: line 3: no Model",
        "no correct kernel: budget: 4 evaluations",
        "3 correct, 1 incorrect",
        "12.5",
        "3 MiB eager 6 MiB",
        "12 s the device was held to time; 125.0 s per ten tasks",
        "50%",
    ):
        assert words in text, words
    assert "Modelled:" not in text


def test_modelled_figures_say_that_nothing_was_timed() -> None:
    found = page([row("level1/softmax", 2.0)])
    assert "Modelled: no GPU was used." in found.text
    assert "computed for the NVIDIA H200 by a model of it, and nothing was timed" in found.text
    assert "Against torch.compile" not in found.text
    assert "by interval" not in found.text.partition("What the words mean")[0]


def test_what_won_the_selection_stands_beside_what_is_published() -> None:
    best = Best(
        candidate_id=1,
        generation=2,
        origin="tune",
        figures=figures(ratio(1.5, 1.4, 1.6)),
        selected=figures(ratio(1.75, 1.7, 1.8)),
    )
    found = page([row("level1/a", ratio(9.0, 8.0, 9.9)).model_copy(update={"best": best})])
    assert "1.50 1.40 to 1.60 – 1.75 1.70 to 1.80" in found.text


def test_a_best_whose_last_timing_failed_says_so() -> None:
    assert "not timed again" in page([row("level1/a", ratio(2.0, 1.9, 2.1))]).text
    assert "not timed again" not in page([row("level1/a", 2.0)]).text


def test_three_plots_are_drawn_with_words_for_those_who_do_not_see_them() -> None:
    labels = [attributes["aria-label"] for tag, attributes in page(MEASURED).tags if tag == "svg"]
    assert labels == [
        "Speedup of each task of level1",
        "Speedup of each task of level2",
        "Best speedup over eager so far against evaluations",
        "Time of each kernel against the roofline",
    ]


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", '"><b onclick="x">', "{{ 7 * 7 }}"])
def test_names_and_reasons_are_text_and_nothing_else(evil: str) -> None:
    rows = [
        row(f"level1/{evil}", 2.0, level=evil, kind=evil, curve=((1, 2.0),), counts={evil: 1}),
        row("level1/b", outcome=Outcome.INVALID, reason=evil),
        row("level1/c", outcome=Outcome.WAITING, environment={}),
    ]
    found = page([*rows, row("level1/d", 2.0, environment={"gpu": evil, evil: evil})])
    assert evil in found.text
    assert not {tag for tag, _ in found.tags} & {"script", "b onclick"}
    assert not any("onclick" in attributes for _, attributes in found.tags)


def test_several_sittings_are_told_apart_with_what_differs() -> None:
    rows = [
        row("level1/a", ratio(2.0, 1.9, 2.1)),
        row("level1/b", ratio(8.0, 7.9, 8.1), environment=ON_GPU | {"driver": "590"}),
    ]
    text = page(rows).text
    assert "These figures come from 2 sittings that differ in driver." in text
    assert "measured · 2 sittings together" in text
    first, second = rows[0].sitting, rows[1].sitting
    assert f"measured · sitting {first}" in text
    assert f"measured · sitting {second}" in text


def test_what_is_still_to_come_is_named() -> None:
    rows = [row("level1/a", 2.0), row("level1/b", outcome=Outcome.WAITING, environment={})]
    text = page(rows).text
    assert "1 of 2 results" in text
    assert "Not finished: 1 result is still to come." in text
    assert "level1/b (own_kernels, reference)" in text


def test_a_section_without_any_kernel_counts_its_failures_all_the_same() -> None:
    assert "level1 0 of 1 1 0%" in page([row("level1/a")]).text


def test_a_report_of_nothing_is_a_page_too() -> None:
    assert "0 of 0 results" in page([]).text
