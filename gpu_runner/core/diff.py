"""The difference of two sources as rows to draw, with the words that changed within a line."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

_WORD = re.compile(r"\w+|\s+|[^\w\s]")

Span = tuple[int, int]


@dataclass(frozen=True)
class Row:
    """One line of a side-by-side diff; a side is None where the line exists only on the other.

    Spans are half-open character ranges that changed within the line; numbers count from 1.
    """

    kind: Literal["same", "change", "insert", "delete"]
    old_number: int | None
    new_number: int | None
    old: str | None
    new: str | None
    old_spans: tuple[Span, ...] = ()
    new_spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Hunk:
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Diff:
    hunks: tuple[Hunk, ...]
    added: int
    removed: int


def diff(old: str, new: str, context: int = 3) -> Diff:
    """Compare two sources line by line; `context` unchanged lines are kept around each change."""
    old_lines, new_lines = old.splitlines(), new.splitlines()
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    hunks = tuple(
        Hunk(tuple(row for opcode in group for row in _rows(opcode, old_lines, new_lines)))
        for group in matcher.get_grouped_opcodes(context)
    )
    rows = [row for hunk in hunks for row in hunk.rows]
    added = sum(row.kind != "same" and row.new is not None for row in rows)
    removed = sum(row.kind != "same" and row.old is not None for row in rows)
    return Diff(hunks, added, removed)


def _rows(
    opcode: tuple[str, int, int, int, int], old: Sequence[str], new: Sequence[str]
) -> Iterator[Row]:
    tag, old_start, old_end, new_start, new_end = opcode
    for offset in range(max(old_end - old_start, new_end - new_start)):
        i = old_start + offset if old_start + offset < old_end else None
        j = new_start + offset if new_start + offset < new_end else None
        yield _row(tag, i, j, old, new)


def _row(tag: str, i: int | None, j: int | None, old: Sequence[str], new: Sequence[str]) -> Row:
    left, right = (None if i is None else old[i]), (None if j is None else new[j])
    numbers = (None if i is None else i + 1, None if j is None else j + 1)
    if tag == "equal":
        return Row("same", *numbers, left, right)
    if left is None:
        return Row("insert", *numbers, None, right)
    if right is None:
        return Row("delete", *numbers, left, None)
    return Row("change", *numbers, left, right, *_changed_spans(left, right))


def _changed_spans(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    old_words, new_words = _WORD.findall(old), _WORD.findall(new)
    matcher = difflib.SequenceMatcher(None, old_words, new_words, autojunk=False)
    changes = [opcode for opcode in matcher.get_opcodes() if opcode[0] != "equal"]
    old_spans = tuple(
        _span(old_words, start, end) for _, start, end, _, _ in changes if start < end
    )
    new_spans = tuple(
        _span(new_words, start, end) for _, _, _, start, end in changes if start < end
    )
    return old_spans, new_spans


def _span(words: Sequence[str], start: int, end: int) -> Span:
    begin = sum(map(len, words[:start]))
    return begin, begin + sum(map(len, words[start:end]))
