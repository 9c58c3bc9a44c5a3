"""Which of two candidates is the better one, and what a step gained."""

import math
from typing import Final

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.evaluation import Ratio

UNTIMED: Final = 1e-9
"""What a correct candidate is worth whose speed is unknown: more than a failing one, less than any that was timed."""
MENDED: Final = 0.2
"""What mending a failing parent is credited with, on the scale of logarithms of gains."""


def is_correct(candidate: Candidate) -> bool:
    return candidate.evaluation is not None and candidate.evaluation.is_correct


def worth(candidate: Candidate) -> float:
    """The speedup that selection compares; 0 unless correct."""
    evaluation = candidate.evaluation
    if evaluation is None or not evaluation.is_correct:
        return 0.0
    return max(evaluation.fitness, UNTIMED)


def rank_key(candidate: Candidate) -> tuple[float, int]:
    """Sorts the fittest first, the older one first among equals."""
    return -worth(candidate), candidate.id


def beats(challenger: Candidate, champion: Candidate | None) -> bool:
    """Whether a new best may be promoted.

    Measured ratios carry intervals: the challenger's must lie above the champion's ratio as a whole. Modelled ratios have
    none and are compared as they are.
    """
    if not is_correct(challenger):
        return False
    if champion is None or not is_correct(champion):
        return True
    return _lower(_ratio(challenger)) > worth(champion) and worth(challenger) > worth(champion)


def gain(child: Candidate, parent: Candidate) -> float | None:
    """Ratio of the child's speedup to its parent's; None unless both are correct and timed."""
    if child.fitness <= 0 or parent.fitness <= 0:
        return None
    return child.fitness / parent.fitness


def earned(child: Candidate, parents: tuple[Candidate, ...]) -> float:
    """What an operator is credited with, at least 0: log gain over the better parent; a mended child earns a constant."""
    best = max(parents, key=worth, default=None)
    if not is_correct(child) or best is None:
        return 0.0
    if not is_correct(best):
        return MENDED
    ratio = gain(child, best)
    return max(0.0, math.log(ratio)) if ratio is not None else 0.0


def _ratio(candidate: Candidate) -> Ratio | None:
    return candidate.evaluation.speedup.eager if candidate.evaluation else None


def _lower(ratio: Ratio | None) -> float:
    if ratio is None:
        return UNTIMED
    return ratio.ratio if ratio.low is None else ratio.low
