"""What the library, and each entry of it, is worth: the gain of a proposal over its parent with it and without it.

A random share of proposals goes without the library, another without one of the entries that were found; the estimand is the
immediate gain over the same parent, as the logarithm of a ratio, 0 where the child is incorrect or no faster. Runs are the
clusters: proposals of one run resemble each other, so arms are compared within a run and the interval is over runs.

Source: the variance correction and degrees of freedom of Bell and McCaffrey (2002), for the weighted mean of the runs'
differences; the working model is equal variance of proposals.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Final

from gpu_runner.core.intervals import t_quantile

WITH: Final = "with"
WITHOUT: Final = "without"
UNPAIRED: Final = "unpaired"
"""The arm of a proposal from which an entry was to be withheld at a rank where none was found: it is in no comparison."""

_WITHOUT_ONE: Final = f"{WITHOUT}:"

LEAST_RUNS: Final = 8
"""Fewer runs with both arms say nothing about an entry, whatever their interval."""


def arm_without(uid: str) -> str:
    """The arm of a proposal that was shown everything found but this entry."""
    return _WITHOUT_ONE + uid


@dataclass(frozen=True)
class Use:
    """One finished proposal of a run.

    Args:
        entries: uids of the entries that it was shown.
        gain: the natural logarithm of time before / time after, at least 0; 0 for a child that is incorrect or no faster.
    """

    run: int
    arm: str
    entries: tuple[str, ...] = ()
    gain: float = 0.0


def gain_of(parent_fitness: float, child_fitness: float) -> float:
    """The gain of a step; repairing what had no fitness gains nothing that could be compared."""
    if parent_fitness <= 0 or child_fitness <= parent_fitness:
        return 0.0
    return math.log(child_fitness / parent_fitness)


@dataclass(frozen=True)
class Uplift:
    """What showing gained: `ratio` above 1 says that proposals gain more with than without.

    Args:
        ratio: of the geometric mean gains; None where no run has both arms.
        low, high: 95 % interval; None with fewer than two such runs.
        runs: with both arms; `shown` and `withheld` count their proposals.
        wins: of all proposals that were shown it, also in runs without the other arm, those that gained; `uses` counts those.
        p_gain: of the one-sided test against no gain.
    """

    ratio: float | None
    low: float | None
    high: float | None
    runs: int
    shown: int
    withheld: int
    uses: int
    wins: int
    p_gain: float | None = None
    p_harm: float | None = None


class Standing(StrEnum):
    """What an uplift says about an entry; ranking prefers what helps and people are asked about what harms."""

    HELPS = "helps"
    UNDECIDED = "undecided"
    RETIRE = "retire"


def library_uplift(uses: Iterable[Use]) -> Uplift:
    """The library as a whole: proposals that were shown what was found, against those that were shown nothing."""
    uses = list(uses)
    return _uplift(
        [use for use in uses if use.arm == WITH], [use for use in uses if use.arm == WITHOUT]
    )


def entry_uplifts(uses: Iterable[Use]) -> dict[str, Uplift]:
    """Every entry that was shown or withheld, in one pass over the uses, however many entries there are."""
    shown: dict[str, list[Use]] = defaultdict(list)
    withheld: dict[str, list[Use]] = defaultdict(list)
    for use in uses:
        if use.arm == WITH:
            for uid in use.entries:
                shown[uid].append(use)
        elif use.arm.startswith(_WITHOUT_ONE):
            withheld[use.arm.removeprefix(_WITHOUT_ONE)].append(use)
    return {
        uid: _uplift(shown.get(uid, ()), withheld.get(uid, ())) for uid in {**shown, **withheld}
    }


def entry_uplift(uid: str, uses: Iterable[Use]) -> Uplift:
    """One entry: proposals for which it was found and shown, against those from which it alone was withheld."""
    uses = list(uses)
    return _uplift(
        [use for use in uses if use.arm == WITH and uid in use.entries],
        [use for use in uses if use.arm == arm_without(uid)],
    )


def standings(uplifts: dict[str, Uplift], *, error_rate: float = 0.05) -> dict[str, Standing]:
    """What is to be done with entries, with the chance of promoting any that does nothing bounded by `error_rate`.

    Holm's procedure over the entries, one-sided; so is that of suggesting to retire any that does no harm.
    """
    helps = _holm({uid: uplift.p_gain for uid, uplift in _judged(uplifts)}, error_rate)
    harms = _holm({uid: uplift.p_harm for uid, uplift in _judged(uplifts)}, error_rate)
    return {
        uid: Standing.HELPS
        if uid in helps
        else Standing.RETIRE
        if uid in harms
        else Standing.UNDECIDED
        for uid in uplifts
    }


def _judged(uplifts: dict[str, Uplift]) -> list[tuple[str, Uplift]]:
    return [(uid, uplift) for uid, uplift in uplifts.items() if uplift.runs >= LEAST_RUNS]


def _holm(p_values: dict[str, float | None], error_rate: float) -> set[str]:
    known = sorted((p, uid) for uid, p in p_values.items() if p is not None)
    rejected: set[str] = set()
    for rank, (p, uid) in enumerate(known):
        if p > error_rate / (len(known) - rank):
            break
        rejected.add(uid)
    return rejected


def _uplift(shown: Sequence[Use], withheld: Sequence[Use]) -> Uplift:
    pairs = _pairs(shown, withheld)
    counts = {
        "runs": len(pairs),
        "shown": sum(pair.shown for pair in pairs),
        "withheld": sum(pair.withheld for pair in pairs),
        "uses": len(shown),
        "wins": sum(use.gain > 0 for use in shown),
    }
    if not pairs:
        return Uplift(None, None, None, **counts)
    total = sum(pair.weight for pair in pairs)
    mean = sum(pair.weight * pair.difference for pair in pairs) / total
    if len(pairs) == 1:
        return Uplift(math.exp(mean), None, None, **counts)
    error, degrees = _spread(pairs, mean, total)
    half = _t_quantile(degrees) * error
    t = mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0
    above = _t_above(t, degrees)
    return Uplift(
        math.exp(mean),
        math.exp(mean - half),
        math.exp(mean + half),
        **counts,
        p_gain=above,
        p_harm=1 - above,
    )


@dataclass(frozen=True)
class _Pair:
    """A run with both arms; its weight is the precision of its difference under equal variance."""

    difference: float
    shown: int
    withheld: int

    @property
    def weight(self) -> float:
        return self.shown * self.withheld / (self.shown + self.withheld)


def _pairs(shown: Sequence[Use], withheld: Sequence[Use]) -> list[_Pair]:
    with_it, without_it = _by_run(shown), _by_run(withheld)
    return [
        _Pair(fmean(with_it[run]) - fmean(without_it[run]), len(with_it[run]), len(without_it[run]))
        for run in sorted(with_it.keys() & without_it.keys())
    ]


def _by_run(uses: Sequence[Use]) -> dict[int, list[float]]:
    gains: dict[int, list[float]] = defaultdict(list)
    for use in uses:
        gains[use.run].append(use.gain)
    return gains


def _spread(pairs: Sequence[_Pair], mean: float, total: float) -> tuple[float, float]:
    """Standard error of the weighted mean over runs, and its degrees of freedom."""
    scales = [pair.weight**2 / (1 - pair.weight / total) / total**2 for pair in pairs]
    variance = sum(
        scale * (pair.difference - mean) ** 2 for scale, pair in zip(scales, pairs, strict=True)
    )
    diagonal = sum((pair.weight / total**2) ** 2 for pair in pairs)
    beside = (sum(scales) ** 2 - sum(scale**2 for scale in scales)) / total**2
    # Two runs have exactly one; a rounding below it would be no distribution.
    return math.sqrt(variance), max(1.0, (1 / total) ** 2 / (diagonal + beside))


def _t_quantile(degrees: float) -> float:
    """Between whole degrees of freedom, linear in their reciprocal."""
    below = max(1, math.floor(degrees))
    if degrees <= below:
        return t_quantile(below)
    share = (1 / below - 1 / degrees) / (1 / below - 1 / (below + 1))
    return t_quantile(below) + share * (t_quantile(below + 1) - t_quantile(below))


def _t_above(t: float, degrees: float) -> float:
    """The probability that Student's t exceeds `t`, by Simpson's rule over the angle whose tangent is t / sqrt(degrees)."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    steps = 400
    begin, end = math.atan(t / math.sqrt(degrees)), math.pi / 2
    width = (end - begin) / steps
    # The last angle may lie a rounding beyond the right angle, where the cosine is negative.
    cosines = [max(0.0, math.cos(begin + step * width)) for step in range(steps + 1)]
    heights: list[float] = [math.pow(cosine, degrees - 1) for cosine in cosines]
    area = (
        width / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2]))
    )
    log_scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    return min(1.0, area * math.exp(log_scale) / math.sqrt(math.pi))
