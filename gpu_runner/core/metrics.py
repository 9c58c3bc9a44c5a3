"""Figures over many tasks, as the field reports them; failures are counted, never left out."""

import math
from collections.abc import Sequence


def geometric_mean(values: Sequence[float]) -> float | None:
    """Of positive values; None of an empty sequence."""
    if not values:
        return None
    return math.exp(sum(math.log(value) for value in values) / len(values))


def arithmetic_mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def fast_p(speedups: Sequence[float | None], p: float = 1.0) -> float:
    """Share of all tasks whose best candidate is correct and faster than p (strictly).

    Args:
        speedups: one per task; None where no candidate was correct.

    Returns:
        Between 0 and 1; 0 of an empty sequence.

    Source: KernelBench, Ouyang et al. (2025), section 3.
    """
    if not speedups:
        return 0.0
    return sum(speedup is not None and speedup > p for speedup in speedups) / len(speedups)
