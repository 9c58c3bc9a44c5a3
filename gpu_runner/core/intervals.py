"""The interval of a speedup. The unit of noise is the block in a fresh placement, not the sample within it.

Within one placement of its buffers a kernel's times agree to a fraction of a per cent; between placements they differ by
up to a few per cent. An interval from samples is therefore far too narrow, and each pair of blocks gives one ratio.
"""

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import Final

from gpu_runner.core.evaluation import Ratio

_T_975: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t at 97.5 % for 1 to 30 degrees of freedom."""


PROCESS_SPREAD_US: Final = 0.07
PROCESS_SPREAD: Final = 0.0014
"""How the times of one kernel differ between two processes in all their placements: standard deviations, measured on an H200
(`benchmarks/timing_evaluations.py`: between two processes 0.05 to 0.14 us for kernels of 3 to 40 us, up to 0.26 % for a
product of 0.7 ms, whose clocks differ with heat). Blocks of one process cannot see it: the interval carries it beside them."""


def ratio_interval(
    reference_us: Sequence[Sequence[float]], candidate_us: Sequence[Sequence[float]]
) -> Ratio:
    """Reference time over candidate time with its 95 % interval.

    Args:
        reference_us: one sequence of samples per block, in the order in which the blocks were run.
        candidate_us: the same number of blocks; block i ran beside block i of the reference.

    Returns:
        The geometric mean of the blocks' ratios of medians, with Student's interval on their logarithms. It is preferred to
        the percentile bootstrap, which covers too rarely with ten blocks or fewer, and widened by what two processes differ
        by. With one block the bounds are None.
    """
    if len(reference_us) != len(candidate_us) or not reference_us:
        raise ValueError(
            f"blocks must pair: {len(reference_us)} of the reference, {len(candidate_us)}"
        )
    logs = [
        math.log(median(reference) / median(candidate))
        for reference, candidate in zip(reference_us, candidate_us, strict=True)
    ]
    centre = fmean(logs)
    if len(logs) == 1:
        return Ratio(ratio=math.exp(centre))
    within = t_quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    between = 1.96 * math.hypot(_process_spread(reference_us), _process_spread(candidate_us))
    half = math.hypot(within, between)
    return Ratio(ratio=math.exp(centre), low=math.exp(centre - half), high=math.exp(centre + half))


def _process_spread(blocks_us: Sequence[Sequence[float]]) -> float:
    time_us = median(median(block) for block in blocks_us)
    return math.hypot(PROCESS_SPREAD, PROCESS_SPREAD_US / time_us)


def t_quantile(degrees: int) -> float:
    """Student's t at 97.5 %; beyond 30 degrees of freedom by the first term of the expansion around the normal."""
    if degrees < 1:
        raise ValueError(f"degrees of freedom must be at least 1, not {degrees}")
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees)


def is_faster(speedup: Ratio | None) -> bool:
    """Whether a ratio is above 1 beyond its interval; a modelled ratio (no interval) by its value alone."""
    if speedup is None:
        return False
    return (speedup.ratio if speedup.low is None else speedup.low) > 1.0
