"""Two folders of results side by side: what one arm gains over the other, on the tasks that both have run."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import fmean, stdev
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpu_runner.bench import figures
from gpu_runner.bench.figures import Group, Sitting
from gpu_runner.bench.report import differing
from gpu_runner.bench.results import Settings
from gpu_runner.bench.rows import Row
from gpu_runner.core.evaluation import Ratio
from gpu_runner.core.intervals import t_quantile
from gpu_runner.core.verdicts import Precision, Track


class Incomparable(ValueError):
    """The two cannot be compared; the message says why and what to do."""


class Pair(BaseModel):
    """One task in both arms. `gain` is the ratio of the speedups over eager, b / a, None unless both are known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    a: Row
    b: Row
    gain: float | None
    outcome: Literal["gained", "lost", "level"] = Field(
        description="gained or lost where the intervals do not touch, or only one has a correct kernel"
    )


class Arms(BaseModel):
    """What one track under one precision came to in both arms, over the tasks that both have run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    track: Track
    precision: Precision
    pairs: tuple[Pair, ...]
    a: tuple[Group, ...]
    b: tuple[Group, ...]
    gained: int
    lost: int
    gain: Ratio | None = Field(
        description="geometric mean of the gains; the interval is over tasks, of which these are a sample"
    )


class Comparison(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: dict[str, tuple[Any, Any]] = Field(description="those in which the arms differ")
    differing: tuple[str, ...] = Field(description="what is not equal in all sittings")
    sittings: tuple[Sitting, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    changed: tuple[str, ...] = Field(description="tasks whose source is not the same in both")
    arms: tuple[Arms, ...]


def compare(
    a: tuple[Settings, Sequence[Row]],
    b: tuple[Settings, Sequence[Row]],
    *,
    across_devices: bool,
) -> Comparison:
    """Set two arms side by side.

    Raises:
        Incomparable: they have no task in common, or were not run on one device with the same versions and `across_devices`
            is not given. Measured and modelled figures are never compared.
    """
    of_a, of_b = ({row.id: row for row in rows} for _, rows in (a, b))
    common = [(of_a[name], of_b[name]) for name in of_a if name in of_b]
    alike = [(one, other) for one, other in common if one.key == other.key]
    for folder, found in (("first", of_a), ("second", of_b)):
        if not found:
            raise Incomparable(f"the {folder} has no results yet")
    if not alike:
        raise Incomparable("they have no task, track and precision in common")
    sittings = figures.sittings(row for pair in alike for row in pair)
    _check_alike(sittings, across_devices=across_devices)
    return Comparison(
        settings=_differences(a[0], b[0]),
        differing=tuple(differing(sittings)),
        sittings=tuple(sittings),
        only_a=_names(of_a[name] for name in of_a.keys() - of_b.keys()),
        only_b=_names(of_b[name] for name in of_b.keys() - of_a.keys()),
        changed=_names(one for one, other in common if one.key != other.key),
        arms=tuple(_arms(alike)),
    )


def _check_alike(sittings: Sequence[Sitting], *, across_devices: bool) -> None:
    if len({sitting.fidelity for sitting in sittings if sitting.fidelity}) > 1:
        raise Incomparable(
            "one holds measured figures and the other modelled ones, which nothing compares"
        )
    if len(sittings) > 1 and not across_devices:
        raise Incomparable(
            f"their results are of {len(sittings)} sittings that differ in {', '.join(differing(sittings))};"
            " give --across-devices to compare them all the same"
        )


def _differences(a: Settings, b: Settings) -> dict[str, tuple[Any, Any]]:
    one, other = a.model_dump(mode="json"), b.model_dump(mode="json")
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}


def _names(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(sorted(f"{row.task} ({row.track}, {row.precision})" for row in rows))


def _arms(alike: Sequence[tuple[Row, Row]]) -> Iterable[Arms]:
    def arm(pair: tuple[Row, Row]) -> tuple[int, int]:
        return figures.arm_order(pair[0])

    for _, own in groupby(sorted(alike, key=arm), key=arm):
        pairs = [_pair(a, b) for a, b in own]
        gains = [pair.gain for pair in pairs if pair.gain is not None]
        yield Arms(
            track=pairs[0].a.track,
            precision=pairs[0].a.precision,
            pairs=tuple(pairs),
            a=tuple(figures.groups([pair.a for pair in pairs])),
            b=tuple(figures.groups([pair.b for pair in pairs])),
            gained=sum(pair.outcome == "gained" for pair in pairs),
            lost=sum(pair.outcome == "lost" for pair in pairs),
            gain=mean_gain(gains),
        )


def _pair(a: Row, b: Row) -> Pair:
    one, other = figures.speedup(a, "eager"), figures.speedup(b, "eager")
    gain = other.ratio / one.ratio if one and other else None
    return Pair(a=a, b=b, gain=gain, outcome=_outcome(a, b, one, other))


def _outcome(
    a: Row, b: Row, one: Ratio | None, other: Ratio | None
) -> Literal["gained", "lost", "level"]:
    if (a.best is None) != (b.best is None):
        return "gained" if a.best is None else "lost"
    if one is None or other is None:
        return "level"
    if (other.low or other.ratio) > (one.high or one.ratio):
        return "gained"
    return "lost" if (other.high or other.ratio) < (one.low or one.ratio) else "level"


def mean_gain(gains: Sequence[float]) -> Ratio | None:
    """The geometric mean with Student's interval on the logarithms, tasks being what varies; None of no gains."""
    if not gains:
        return None
    logs = [math.log(gain) for gain in gains]
    centre = fmean(logs)
    if len(logs) == 1:
        return Ratio(ratio=math.exp(centre))
    half = t_quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Ratio(ratio=math.exp(centre), low=math.exp(centre - half), high=math.exp(centre + half))
