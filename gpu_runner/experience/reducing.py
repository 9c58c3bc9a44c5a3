"""The smallest change that still shows the gain: of a nomination's difference only the hunks that it rests on are kept.

A child differs from its parent in more than what helped. Hunks of the difference are left out in groups, ever smaller ones, and
what still passes and keeps most of the gain is the lesson. Bounded by evaluations, so the result is small, not proven smallest.

Source: delta debugging, Zeller and Hildebrandt (2002); the test is a time, and half of the groups are skipped: only complements
are tried.
"""

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_runner.core.entries import EntryContent
from gpu_runner.core.task import TaskSpec
from gpu_runner.experience.verification import Evaluator

KEPT: Final = 0.9
"""Share of the gain, in logarithms, that a smaller change must keep."""

TimeOf = Callable[[str], float | None]
"""Microseconds of a source; None where it is not correct."""


@dataclass(frozen=True)
class Hunk:
    """Lines `start` to `end` of the code before are replaced."""

    start: int
    end: int
    lines: tuple[str, ...]


def reduced(
    entry: EntryContent, pool: Evaluator, own: TaskSpec, *, evaluations: int = 16
) -> EntryContent:
    """The entry with the smallest code after that still shows its gain; itself where nothing can be left out.

    Raises:
        InvalidTask, RunnerError: as the pool does.
    """

    def time_of(source: str) -> float | None:
        evaluation = pool.evaluate(own, source)
        return evaluation.candidate.device_us if evaluation.candidate is not None else None

    if not (entry.before and entry.after) or entry.cures:
        return entry
    after = smallest(entry.before, entry.after, time_of, evaluations=evaluations)
    return entry.model_copy(update={"after": after})


def smallest(before: str, after: str, time_of: TimeOf, *, evaluations: int) -> str:
    """The code before with as few hunks of the change as keep the gain.

    Args:
        evaluations: the budget, two for the whole change included.
    """
    hunks = hunks_of(before, after)
    if len(hunks) < 2 or evaluations < 3:
        return after
    slow, fast = time_of(before), time_of(after)
    if slow is None or fast is None or fast >= slow:
        return after
    wanted = KEPT * math.log(slow / fast)
    left = evaluations - 2

    def holds(kept: Sequence[Hunk]) -> bool:
        nonlocal left
        left -= 1
        time = time_of(applied(before, kept))
        return time is not None and math.log(slow / time) >= wanted

    groups = 2
    while len(hunks) > 1 and left > 0:
        for group in _groups(hunks, groups):
            rest = [hunk for hunk in hunks if hunk not in group]
            if left > 0 and rest and holds(rest):
                hunks, groups = rest, max(2, groups - 1)
                break
        else:
            if groups >= len(hunks):
                break
            groups = min(len(hunks), 2 * groups)
    return applied(before, hunks)


def hunks_of(before: str, after: str) -> list[Hunk]:
    """The places at which two sources differ, from the first line on."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        Hunk(a, b, tuple(new[c:d])) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"
    ]


def applied(before: str, hunks: Sequence[Hunk]) -> str:
    """The source with some of the hunks made."""
    lines = before.splitlines(keepends=True)
    for hunk in sorted(hunks, key=lambda hunk: hunk.start, reverse=True):
        lines[hunk.start : hunk.end] = hunk.lines
    return "".join(lines)


def _groups(hunks: Sequence[Hunk], count: int) -> list[Sequence[Hunk]]:
    """The hunks in so many groups of neighbours, none empty."""
    size = -(-len(hunks) // count)
    return [hunks[start : start + size] for start in range(0, len(hunks), size)]
