"""Dealing first candidates to islands: each takes what its strategy prefers, in turns, so that all start early."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from gpu_runner.evolution.types import Island

T = TypeVar("T")


def deal(
    offers: Mapping[str, Sequence[T]], islands: Sequence[Island], limit: int
) -> list[tuple[int, T]]:
    """Deal offers to islands in rounds.

    Args:
        offers: by kind of origin (compiler, catalogue, retrieval, model, person), the best of each kind first.
        limit: how many are dealt at most.

    Returns:
        Pairs of an island's index and its offer in the order of the deal: of any n neighbouring pairs each goes to another
        of n islands while offers last.
    """
    left = {kind: list(offered) for kind, offered in offers.items()}
    dealt: list[tuple[int, T]] = []
    while len(dealt) < limit and any(left.values()):
        island = islands[len(dealt) % len(islands)]
        kind = _preferred(island.strategy.seeds, left)
        dealt.append((island.index, left[kind].pop(0)))
    return dealt


def seed_limit(budget_evaluations: int | None, islands: int) -> int:
    """How many evaluations go to first candidates: a third of the budget, at least one an island if it allows that."""
    if budget_evaluations is None:
        return 4 * islands
    return min(budget_evaluations, max(islands, budget_evaluations // 3))


def _preferred(preference: Sequence[str], left: Mapping[str, list[T]]) -> str:
    for kind in (*preference, *left):
        if left.get(kind):
            return kind
    raise ValueError("nothing is left to deal")
