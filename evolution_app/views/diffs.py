"""A diff as rows ready to draw, side by side or unified."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from django.utils.safestring import SafeString

from evolution_app.views.highlight import Line, lines_of
from gpu_runner.core.diff import Row, diff


@dataclass(frozen=True)
class DrawnRow:
    """One line of the drawing. `starts_change` marks where `n` and `p` stop."""

    kind: str  # same, insert, delete, change, skip
    old_number: int | None = None
    new_number: int | None = None
    old: SafeString | None = None
    new: SafeString | None = None
    starts_change: bool = False
    skipped: int = 0


@dataclass(frozen=True)
class Drawing:
    split: tuple[DrawnRow, ...]
    unified: tuple[DrawnRow, ...]
    added: int
    removed: int

    @property
    def is_empty(self) -> bool:
        return not self.added and not self.removed


@lru_cache(maxsize=128)
def draw(old: str, new: str) -> Drawing:
    """The difference of two sources, coloured, with the changed words marked; cached by content."""
    old, new = (text.replace("\r\n", "\n").replace("\r", "\n") for text in (old, new))
    change = diff(old, new)
    old_lines, new_lines = lines_of(old), lines_of(new)
    split: list[DrawnRow] = []
    unified: list[DrawnRow] = []
    shown = 0
    for hunk in change.hunks:
        first = hunk.rows[0].old_number or hunk.rows[0].new_number or 1
        skipped = first - 1 - shown
        if skipped > 0:
            split.append(DrawnRow("skip", skipped=skipped))
            unified.append(DrawnRow("skip", skipped=skipped))
        for same, rows in groupby(hunk.rows, key=lambda row: row.kind == "same"):
            block = [_drawn(row, old_lines, new_lines) for row in rows]
            split += block if same else _starting(block)
            unified += block if same else _starting(list(_stacked(block)))
        shown = max((row.old_number or shown for row in hunk.rows), default=shown)
    return Drawing(tuple(split), tuple(unified), change.added, change.removed)


def _drawn(row: Row, old_lines: tuple[Line, ...], new_lines: tuple[Line, ...]) -> DrawnRow:
    old = None if row.old_number is None else old_lines[row.old_number - 1]
    new = None if row.new_number is None else new_lines[row.new_number - 1]
    return DrawnRow(
        row.kind,
        row.old_number,
        row.new_number,
        None if old is None else old.marked(row.old_spans, "del"),
        None if new is None else new.marked(row.new_spans, "ins"),
    )


def _starting(block: list[DrawnRow]) -> list[DrawnRow]:
    first = block[0]
    marked = DrawnRow(
        first.kind, first.old_number, first.new_number, first.old, first.new, starts_change=True
    )
    return [marked, *block[1:]]


def _stacked(block: list[DrawnRow]) -> Iterator[DrawnRow]:
    """A block of changes as a unified diff has it: what went, then what came."""
    for row in block:
        if row.old is not None:
            yield DrawnRow("delete", old_number=row.old_number, old=row.old)
    for row in block:
        if row.new is not None:
            yield DrawnRow("insert", new_number=row.new_number, new=row.new)
