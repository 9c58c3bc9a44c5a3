"""Ring migration: elites are copied to the next island and stay where they were."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from gpu_runner.core.candidate import Candidate
from gpu_runner.evolution.fitness import rank_key
from gpu_runner.evolution.types import Island, unique


def elites(island: Island, count: int) -> tuple[Candidate, ...]:
    """The fittest correct members, or the fittest of any kind where none is correct."""
    return tuple(sorted(island.correct or island.members, key=rank_key)[:count])


def migrate(islands: Sequence[Island], migrants: int = 1) -> tuple[Island, ...]:
    """Copy each island's elites to the next island on the ring.

    Args:
        islands: at least one, in ring order.
        migrants: how many elites leave each island, at least 1.

    Returns:
        The islands after migration, in the same order. All migrants are chosen before any arrives, except that an empty
        island passes on what it received; an island that already holds a migrant does not grow.

    Source: island model, Whitley, Rana and Heckendorn (1999); the ring is our choice.
    """
    leaving = _leaving(islands, migrants)
    return tuple(
        replace(target, members=unique(target.members + arriving))
        for arriving, target in zip([leaving[-1], *leaving[:-1]], islands, strict=True)
    )


def moved(before: Sequence[Island], after: Sequence[Island]) -> list[tuple[int, int]]:
    """Pairs of candidate id and the island that it was copied to."""
    pairs = []
    for old, new in zip(before, after, strict=True):
        had = {member.id for member in old.members}
        pairs += [(member.id, new.index) for member in new.members if member.id not in had]
    return pairs


def _leaving(islands: Sequence[Island], migrants: int) -> list[tuple[Candidate, ...]]:
    leaving = [elites(island, migrants) for island in islands]
    # Twice round, so that an empty island is reached from any one that is not.
    for here, there in pairwise([*range(len(islands)), *range(len(islands))]):
        leaving[there] = leaving[there] or leaving[here]
    return leaving
