"""Which of two candidates is the better one, and what a step gained."""

import math

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.evaluation import Ratio


def rank_key(candidate: Candidate) -> tuple[float, int]:
    """Sorts the fittest first, the older one first among equals."""
    return -candidate.fitness, candidate.id


def beats(challenger: Candidate, champion: Candidate | None) -> bool:
    """Whether a new best may be promoted.

    Measured ratios carry intervals: the challenger's must lie above the champion's ratio as a whole. Modelled ratios have
    none and are compared as they are.
    """
    if challenger.fitness <= 0:
        return False
    if champion is None or champion.fitness <= 0:
        return True
    return _lower(_ratio(challenger)) > champion.fitness and challenger.fitness > champion.fitness


def gain(child: Candidate, parent: Candidate) -> float | None:
    """Ratio of the child's speedup to its parent's; None unless both are correct."""
    if child.fitness <= 0 or parent.fitness <= 0:
        return None
    return child.fitness / parent.fitness


def earned(child: Candidate, parents: tuple[Candidate, ...]) -> float:
    """What an operator is credited with, at least 0: log gain over the better parent; a mended child earns a constant."""
    if child.fitness <= 0:
        return 0.0
    best = max((parent.fitness for parent in parents), default=0.0)
    return max(0.0, math.log(child.fitness / best)) if best > 0 else 0.2


def _ratio(candidate: Candidate) -> Ratio | None:
    return candidate.evaluation.speedup.eager if candidate.evaluation else None


def _lower(ratio: Ratio | None) -> float:
    if ratio is None:
        return 0.0
    return ratio.ratio if ratio.low is None else ratio.low
