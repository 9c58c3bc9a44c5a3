"""Entries as JSON lines: what was written is read again, and each unusable line is named."""

import json
import math
from typing import Any

import pytest

from gpu_runner.core.entries import Entry, EntryContent, EntryKind, EntryState
from gpu_runner.core.entry_lines import Outcome, planned, written
from gpu_runner.core.starting_entries import starting_entries


def entry(uid: str, title: str = "read once") -> Entry:
    content = EntryContent(kind=EntryKind.TECHNIQUE, title=title, action="do it")
    return Entry(id=uid * 32, version=3, state=EntryState.APPROVED, content=content)


def outcomes(text: str, present: dict[str, EntryContent] | None = None) -> list[tuple[int, str]]:
    return [(report.number, report.outcome.value) for report in planned(text, present or {})]


def test_the_starting_entries_survive_the_round_trip() -> None:
    entries = starting_entries()
    reports = planned("".join(written(entries)), {})
    assert [report.outcome for report in reports] == [Outcome.NEW] * len(entries)
    assert [report.line.content for report in reports if report.line] == [
        entry.content for entry in entries
    ]


def test_importing_twice_changes_nothing_and_a_change_is_seen() -> None:
    text = "".join(written([entry("a"), entry("b")]))
    present = {"a" * 32: entry("a").content, "b" * 32: entry("b", "another").content}
    assert outcomes(text, present) == [(2, "unchanged"), (3, "changed")]


def test_each_unusable_line_is_reported_and_the_others_are_read() -> None:
    head, good = written([entry("a")])
    bad = json.dumps({"uid": "short", "content": {}})
    text = f"{head}{good}\n{bad}\n[\n{good}"
    assert outcomes(text) == [
        (2, "new"),
        (4, "unusable"),
        (5, "unusable"),
        (6, "unusable"),
    ]
    problems = [report.problem for report in planned(text, {})]
    assert "uid" in problems[1]
    assert "twice" in problems[3]


def test_a_file_without_a_head_is_read_and_one_of_a_later_schema_is_not() -> None:
    _, good = written([entry("a")])
    assert outcomes(good) == [(1, "new")]
    later = json.dumps({"schema": "kernel-foundry/entries", "version": 99})
    assert outcomes(f"{later}\n{good}") == [(1, "unusable")]
    assert outcomes("") == []


LINE: dict[str, Any] = json.loads("".join(written([entry("a")])).splitlines()[1])


def line(**content: object) -> str:
    return json.dumps(LINE | {"content": LINE["content"] | content})


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (line()[:40], "EOF"),
        ("[" * 100_000, "recursion limit"),
        ("null", "object"),
        (json.dumps(LINE | {"supersedes": ["a" * 32]}), "supersedes: Extra inputs"),
        (json.dumps({"uid": "a" * 32}), "content: Field required"),
        (line(title="a\0b"), "NUL"),
        (line(title="a\ud800b"), "JSON"),
        (line(title=" "), "what it is"),
        (line(when={"operators": ["x" * (1 << 20)]}), "at most 1,048,576"),
        (
            line(
                effects=[
                    {
                        "device": "h200",
                        "fidelity": "modelled",
                        "track": "own_kernels",
                        "precision": "ieee",
                        "ratio": 2,
                        "low": math.nan,
                    }
                ]
            ),
            "finite",
        ),
        (line(by_model="action"), "by_model"),
    ],
)
def test_junk_is_reported_and_keeps_no_other_line_from_being_read(raw: str, problem: str) -> None:
    good = json.dumps(LINE | {"uid": "b" * 32})
    junk, other = planned(f"{raw}\n{good}", {})
    assert (junk.number, junk.outcome, other.number, other.outcome) == (1, "unusable", 2, "new")
    assert problem in junk.problem


def test_what_ends_a_line_for_people_only_survives_the_round_trip() -> None:
    odd = entry("a", "one\u2028two\x85three\x0bfour \\u0000")
    text = "".join(written([odd])).replace("\n", "\r\n")
    [report] = planned("\ufeff" + text, {})
    assert (report.number, report.outcome) == (2, Outcome.NEW)
    assert report.line is not None
    assert report.line.content == odd.content
