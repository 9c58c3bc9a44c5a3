"""Which parents reproduce, and which operators suit them."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.search import IdeaState
from gpu_runner.core.verdicts import Verdict
from gpu_runner.evolution.fitness import is_correct, rank_key, worth
from gpu_runner.evolution.types import Cell, Island, Operator, State


class Mode(StrEnum):
    """Exploit the island's best, explore rarely used cells of the archive, or take any member."""

    EXPLOIT = "exploit"
    EXPLORE = "explore"
    RANDOM = "random"


MODE_SHARES: Mapping[Mode, float] = {Mode.EXPLOIT: 0.75, Mode.EXPLORE: 0.1, Mode.RANDOM: 0.15}
PROMISING = 0.5
"""Share of the best elite's speedup below which an elite of another cell is explored last."""

_FAILING_PARENT = frozenset({Operator.REPAIR})
_TWO_PARENTS = frozenset({Operator.CROSSOVER})


def choose_mode(rng: random.Random) -> Mode:
    """By their shares; without an archive to explore, explore draws nobody and exploit follows."""
    return rng.choices(list(MODE_SHARES), list(MODE_SHARES.values()))[0]


def parents_in_order(state: State, island: Island, rng: random.Random) -> Iterator[Candidate]:
    """Every possible parent of an island once; the mode that was drawn decides who comes first."""
    mode = choose_mode(rng)
    first: dict[Mode, Callable[[], Iterable[Candidate]]] = {
        Mode.EXPLOIT: lambda: by_rank(island.correct, rng),
        Mode.EXPLORE: lambda: rarely_used(state.archive, state.children),
        Mode.RANDOM: lambda: rng.sample(island.members, len(island.members)),
    }
    founders = (m for other in state.islands for m in sorted(other.members, key=rank_key))
    stages = [first[mode], *(draw for other, draw in first.items() if other is not mode)]
    known: set[int] = set()
    for parent in chain(chain.from_iterable(stage() for stage in stages), founders):
        if parent.id not in known:
            known.add(parent.id)
            yield parent


def suits(operator: Operator, parent: Candidate) -> bool:
    """Whether an operator can start from this parent: repairs need a failure, all others a correct kernel."""
    if parent.evaluation is None or parent.evaluation.verdict is Verdict.CHEATING:
        return False
    return (operator in _FAILING_PARENT) != is_correct(parent)


def is_given_up(state: State, candidate: Candidate) -> bool:
    """Whether a failing candidate's idea is over, so that nobody repairs it any more."""
    made = state.made.get(candidate.id)
    if made is None or made.idea is None or is_correct(candidate):
        return False
    return state.plan.ideas[made.idea].state is not IdeaState.OPEN


def partner(
    parent: Candidate, candidates: Sequence[Candidate], rng: random.Random
) -> Candidate | None:
    """A second parent for a crossover, the fitter the likelier; None where there is nobody else."""
    others = [c for c in candidates if is_correct(c) and c.id != parent.id]
    return next(by_rank(others, rng), None)


def needs_partner(operator: Operator) -> bool:
    return operator in _TWO_PARENTS


def by_rank(candidates: Sequence[Candidate], rng: random.Random) -> Iterator[Candidate]:
    """A random order in which rank r comes first with weight 1 / r squared."""
    left = sorted(candidates, key=rank_key)
    while left:
        weights = [1 / rank**2 for rank in range(1, len(left) + 1)]
        chosen = rng.choices(left, weights)[0]
        left.remove(chosen)
        yield chosen


def rarely_used(archive: Mapping[Cell, Candidate], children: Mapping[int, int]) -> list[Candidate]:
    """Elites that are not far behind first, of those the ones with the fewest children, then the fittest."""
    elites = sorted(archive.values(), key=rank_key)
    floor = PROMISING * max(map(worth, elites), default=0.0)
    return sorted(elites, key=lambda elite: (worth(elite) < floor, children.get(elite.id, 0)))
