"""Rows counted and averaged: per track, precision and sitting, there per level and per kind.

A task counts once it has an outcome; an unusable one and one that we failed on count as failures. Rows of several sittings are
put together only where they were measured on the same model of GPU, and then say so beside what each sitting gives.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpu_runner.bench.rows import Outcome, Row
from gpu_runner.core.evaluation import Ratio
from gpu_runner.core.metrics import arithmetic_mean, fast_p, geometric_mean
from gpu_runner.core.verdicts import Fidelity, Precision, Track

Baseline = Literal["eager", "torch_compile"]
ALL: Final = "all"


class Speed(BaseModel):
    """The speedups of a group of tasks over one baseline."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    timed: int = Field(description="correct tasks whose speedup is known: the means are over these")
    fast_1: float = Field(description="share of all tasks, correct and faster")
    fast_1_by_interval: float | None = Field(
        description="the whole interval above 1; None: no interval"
    )
    slower_by_interval: int | None = Field(description="tasks whose whole interval is below 1")
    geometric_mean: float | None
    arithmetic_mean: float | None
    median: float | None
    arithmetic_mean_of_all: float = Field(description="a failure counts as 0")
    median_of_all: float = Field(description="a failure counts as 0")
    geometric_mean_of_all: float = Field(description="a failure counts as 1: the baseline is kept")


class Group(BaseModel):
    """`tasks` have an outcome, of which `correct` have a kernel; the rest are failures of one sort or the other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: Literal["all", "level", "kind"]
    name: str
    tasks: int
    correct: int
    without_kernel: int
    invalid: int
    failed: int
    eager: Speed | None
    torch_compile: Speed | None


class Section(BaseModel):
    """What one track under one precision came to, in one sitting or (several ids) in those of one model of GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    track: Track
    precision: Precision
    fidelity: Fidelity | None
    sittings: tuple[str, ...]
    groups: tuple[Group, ...]
    lock_s: float | None = Field(description="the device was held to time, all tasks together")
    lock_s_per_ten: float | None = Field(description="the same per ten tasks of which it is known")


class Sitting(BaseModel):
    """Where rows were run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    device: str
    fidelity: Fidelity | None
    rows: int
    environment: dict[str, Any]


def sittings(rows: Iterable[Row]) -> list[Sitting]:
    """The largest first."""
    by_id: dict[str, list[Row]] = {}
    for row in rows:
        if row.sitting:
            by_id.setdefault(row.sitting, []).append(row)
    found = [
        Sitting(
            id=name,
            device=next((row.device for row in members if row.device), ""),
            fidelity=next((row.fidelity for row in members if row.fidelity), None),
            rows=len(members),
            environment=members[0].environment,
        )
        for name, members in by_id.items()
    ]
    return sorted(found, key=lambda sitting: (-sitting.rows, sitting.id))


def sections(rows: Sequence[Row]) -> list[Section]:
    """One per track, precision and sitting, and one over all sittings on the same model of GPU where there are several."""
    counted = [row for row in rows if row.outcome is not Outcome.WAITING]
    found = []
    for _, members in _grouped(counted, arm_order):
        track, precision = members[0].track, members[0].precision
        by_gpu = _grouped(members, lambda row: str(row.environment.get("gpu") or ""))
        # What was measured comes first.
        for gpu, alike in sorted(by_gpu, key=lambda one: not one[0]):
            by_sitting = _grouped(alike, lambda row: row.sitting)
            parts = [(name,) for name, _ in by_sitting]
            if gpu and len(parts) > 1:
                found.append(_section(track, precision, tuple(n for (n,) in parts), alike))
            found += [_section(track, precision, (name,), own) for name, own in by_sitting]
    return found


def arm_order(row: Row) -> tuple[int, int]:
    """Sorts by track, then precision, as they are defined."""
    return list(Track).index(row.track), list(Precision).index(row.precision)


def groups(rows: Sequence[Row]) -> list[Group]:
    """All rows, then per level, then per kind; rows of one track, precision and fidelity."""
    return [
        _group("all", ALL, rows),
        *(_group("level", name, own) for name, own in _grouped(rows, lambda row: row.level)),
        *(_group("kind", name, own) for name, own in _grouped(rows, lambda row: row.kind)),
    ]


def speedup(row: Row, baseline: Baseline) -> Ratio | None:
    """Of the published kernel; None where there is none or it was not timed against this baseline."""
    return getattr(row.best.figures, f"over_{baseline}") if row.best else None


def _section(
    track: Track, precision: Precision, ids: tuple[str, ...], rows: Sequence[Row]
) -> Section:
    fidelity = next((row.fidelity for row in rows if row.fidelity), None)
    held_s = [row.lock_s for row in rows if row.lock_s is not None]
    return Section(
        track=track,
        precision=precision,
        fidelity=fidelity,
        sittings=tuple(filter(None, ids)),
        groups=tuple(groups(rows)),
        lock_s=sum(held_s) if held_s else None,
        lock_s_per_ten=10 * sum(held_s) / len(held_s) if held_s else None,
    )


def _group(by: Literal["all", "level", "kind"], name: str, rows: Sequence[Row]) -> Group:
    def count(outcome: Outcome) -> int:
        return sum(row.outcome is outcome for row in rows)

    correct = sum(row.best is not None for row in rows)
    return Group(
        by=by,
        name=name,
        tasks=len(rows),
        correct=correct,
        without_kernel=count(Outcome.DONE) - correct,
        invalid=count(Outcome.INVALID),
        failed=count(Outcome.FAILED),
        eager=_speed([speedup(row, "eager") for row in rows]),
        torch_compile=_speed([speedup(row, "torch_compile") for row in rows]),
    )


def _speed(ratios: Sequence[Ratio | None]) -> Speed | None:
    """None where nothing was timed against the baseline."""
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return None
    values = [ratio.ratio for ratio in known]
    lows = [ratio.low if ratio else None for ratio in ratios]
    has_intervals = any(low is not None for low in lows)
    failures = len(ratios) - len(known)
    return Speed(
        timed=len(known),
        fast_1=fast_p([ratio.ratio if ratio else None for ratio in ratios]),
        fast_1_by_interval=fast_p(lows) if has_intervals else None,
        slower_by_interval=_slower(known) if has_intervals else None,
        geometric_mean=geometric_mean(values),
        arithmetic_mean=arithmetic_mean(values),
        median=statistics.median(values),
        arithmetic_mean_of_all=sum(values) / len(ratios),
        median_of_all=statistics.median([*values, *[0.0] * failures]),
        geometric_mean_of_all=geometric_mean([*values, *[1.0] * failures]) or 1.0,
    )


def _slower(ratios: Iterable[Ratio]) -> int:
    return sum(ratio.high is not None and ratio.high < 1 for ratio in ratios)


def _grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> list[tuple[Any, list[Row]]]:
    return [(name, list(own)) for name, own in groupby(sorted(rows, key=key), key=key)]
