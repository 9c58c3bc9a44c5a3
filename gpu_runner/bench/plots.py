"""Where the marks of the report's three plots lie; the template draws them. Coordinates are those of a 360 wide view box,
which a phone shows at its own size, so that texts stay readable there."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from gpu_runner.bench.figures import speedup
from gpu_runner.bench.rows import Outcome, Row
from gpu_runner.core.evaluation import Ratio
from gpu_runner.core.metrics import geometric_mean

WIDTH: Final = 360.0
ROW: Final = 30.0
SIDE: Final = 12.0
BOX_HEIGHT: Final = 240.0
AXIS: Final = 34.0
"""Room for the numbers left of a plot's box."""
_STEPS: Final = (1.0, 2.0, 5.0)
_DECADES: Final = range(-6, 10)


@dataclass(frozen=True)
class Log:
    """A logarithmic axis from `low` to `high` (both above 0), drawn from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a positive value lies; one beyond the axis lies on its end."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + (self.end - self.start) * min(1.0, max(0.0, share)), 2)

    def ticks(self, most: int) -> list["Tick"]:
        """Round numbers on the axis: of 1, 2 and 5 as many as fit, else whole decades, every second of them, ..."""
        fine = [step * 10.0**decade for decade in _DECADES for step in _STEPS]
        coarse = [10.0**decade for decade in _DECADES]
        choices = [fine, *(coarse[6 % n :: n] for n in (1, 2, 3, 4, 6))]
        inside = [[v for v in c if self.low <= v <= self.high] for c in choices]
        chosen = next((values for values in inside if len(values) <= most), inside[-1])
        return [Tick(self.at(value), f"{value:g}") for value in chosen]


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Mark:
    """A speedup with its interval; `low` and `high` are None where it has none."""

    at: float
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True)
class Bar:
    """One task of the first plot; marks are None where there is no such figure."""

    y: float
    task: str
    eager: Mark | None
    torch_compile: Mark | None
    failure: str


@dataclass(frozen=True)
class Speedups:
    """The tasks of one level, the largest speedup first, those without a kernel last."""

    level: str
    height: float
    one: float
    ticks: Sequence[Tick]
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Line:
    name: str
    path: str


@dataclass(frozen=True)
class Search:
    """Best speedup over eager so far, against evaluations: a line per task, and their geometric mean."""

    one: float
    across: Sequence[Tick]
    up: Sequence[Tick]
    lines: Sequence[Line]
    mean: str


@dataclass(frozen=True)
class Point:
    x: float
    kernel_y: float
    eager_y: float | None
    text: str


@dataclass(frozen=True)
class Rooflines:
    """Time of the published kernel against the least time; both axes are the same, so that the diagonal is the roofline."""

    ticks: Sequence[Tick]
    up: Sequence[Tick]
    points: Sequence[Point]


def speedups(rows: Sequence[Row]) -> list[Speedups]:
    """One plot per level, all on one axis; empty where nothing was timed."""
    shown = [row for row in rows if row.outcome is not Outcome.WAITING]
    ratios = [r for row in shown for r in (speedup(row, "eager"), speedup(row, "torch_compile"))]
    ends = [end for r in ratios if r for end in (r.ratio, r.low or r.ratio, r.high or r.ratio)]
    if not ends:
        return []
    axis = _log([*ends, 1.0], SIDE, WIDTH - SIDE)
    levels = groupby(sorted(shown, key=lambda row: row.level), key=lambda row: row.level)
    return [_level(level, list(own), axis) for level, own in levels]


def search(rows: Sequence[Row]) -> Search | None:
    """None where no task has a correct kernel."""
    found = [row for row in rows if row.curve]
    if not found:
        return None
    most = max(max(row.evaluations, row.curve[-1][0]) for row in found)
    values = [value for row in found for _, value in row.curve]
    up = _log([*values, 1.0], BOX_HEIGHT, 8.0)

    def across(number: float) -> float:
        return round(AXIS + (WIDTH - SIDE - AXIS) * number / most, 2)

    return Search(
        one=up.at(1.0),
        across=[Tick(across(n), f"{n}") for n in _round_numbers(most)],
        up=up.ticks(7),
        lines=[
            Line(
                f"{row.task}: {row.curve[-1][1]:.2f}x",
                _steps(row.curve, row.evaluations, across, up),
            )
            for row in found
        ],
        mean=_steps(_mean_curve(rows, most), most, across, up),
    )


def rooflines(rows: Sequence[Row]) -> Rooflines | None:
    """None where no published kernel has both times."""
    found = [
        (row, row.roofline_us, row.best.figures.kernel_us, row.best.figures.eager_us)
        for row in rows
        if row.best and row.best.figures.kernel_us and row.roofline_us
    ]
    if not found:
        return None
    times = [time for _, *all_three in found for time in all_three if time]
    across, up = _log(times, AXIS, WIDTH - SIDE), _log(times, BOX_HEIGHT, 8.0)
    points = [
        Point(
            across.at(least),
            up.at(kernel),
            up.at(eager) if eager else None,
            f"{row.task}: {kernel:,.1f} us, roofline {least:,.1f} us ({least / kernel:.0%})",
        )
        for row, least, kernel, eager in found
        if least and kernel
    ]
    return Rooflines(across.ticks(5), up.ticks(7), points)


def _level(level: str, rows: Sequence[Row], axis: Log) -> Speedups:
    def order(row: Row) -> float:
        ratio = speedup(row, "eager") or speedup(row, "torch_compile")
        return -ratio.ratio if ratio else math.inf

    bars = [
        Bar(
            y=ROW * number,
            task=row.task.removeprefix(f"{level}/"),
            eager=_mark(speedup(row, "eager"), axis, "eager"),
            torch_compile=_mark(speedup(row, "torch_compile"), axis, "torch.compile"),
            failure=_failure(row),
        )
        for number, row in enumerate(sorted(rows, key=order))
    ]
    return Speedups(level, ROW * len(bars), axis.at(1.0), axis.ticks(7), bars)


def _mark(ratio: Ratio | None, axis: Log, name: str) -> Mark | None:
    if ratio is None:
        return None
    ends = [axis.at(end) if end else None for end in (ratio.low, ratio.high)]
    interval = f" ({ratio.low:.2f} to {ratio.high:.2f})" if ratio.low and ratio.high else ""
    return Mark(axis.at(ratio.ratio), ends[0], ends[1], f"{ratio.ratio:.2f}x {name}{interval}")


def _failure(row: Row) -> str:
    if row.outcome is Outcome.DONE:
        return "" if row.best else "no correct kernel"
    return {Outcome.INVALID: "unusable task", Outcome.FAILED: "not run"}[row.outcome]


def _log(values: Iterable[float], start: float, end: float) -> Log:
    """An axis with a little room at both ends."""
    known = list(values)
    low, high = min(known), max(known)
    room = max(1.15, (high / low) ** 0.04)
    return Log(low / room, high * room, start, end)


def _mean_curve(rows: Sequence[Row], most: int) -> list[tuple[int, float]]:
    """The geometric mean over all tasks; without a correct kernel, eager is kept and the speedup is 1."""
    counted = [row for row in rows if row.outcome is not Outcome.WAITING]
    curve = []
    for number in range(1, most + 1):
        reached = [
            max((best for n, best in row.curve if n <= number), default=1.0) for row in counted
        ]
        curve.append((number, geometric_mean(reached) or 1.0))
    return curve


def _steps(
    curve: Sequence[tuple[int, float]], last: int, across: Callable[[float], float], up: Log
) -> str:
    """An SVG path that is level between two rises."""
    (first, best), *rises = curve
    path = f"M{across(first)} {up.at(best)}"
    for number, value in rises:
        path += f"H{across(number)}V{up.at(value)}"
    return path + f"H{across(max(last, curve[-1][0]))}"


def _round_numbers(most: int) -> list[int]:
    """From 0 on, at most seven."""
    step = next(
        (n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if most / n <= 6), max(1, most // 6)
    )
    return list(range(0, most + 1, step))
