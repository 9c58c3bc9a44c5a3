"""The values that the search works on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from gpu_runner.core.candidate import Candidate
from gpu_runner.evolution.fitness import is_correct


def unique(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Each candidate once, by id, where it first stands."""
    return tuple({candidate.id: candidate for candidate in candidates}.values())


class Operator(StrEnum):
    """How a new candidate is made; `seed` and `person` need no parent."""

    SEED = "seed"
    PERSON = "person"
    IMPROVE = "improve"
    REPAIR = "repair"
    REWRITE = "rewrite"
    TUNE = "tune"
    CROSSOVER = "crossover"
    SIMPLIFY = "simplify"


class Cell(NamedTuple):
    """A cell of the archive: what kind of kernel a candidate is, whatever its speed."""

    launches: str
    memory: str
    parallel: str
    numeric: str


@dataclass(frozen=True)
class Strategy:
    """What one island looks for.

    Args:
        lens: one sentence that a model is given.
        shares: relative weight of each operator, before the bandit's credit.
        words: drafts whose origin or move contains one of them come first on this island.
        seeds: prefixes of origins, the preferred first candidates, best first.
    """

    name: str
    lens: str
    shares: Mapping[Operator, float]
    words: tuple[str, ...]
    seeds: tuple[str, ...]
    temperature: float = 0.7


@dataclass(frozen=True)
class Island:
    """A population that evolves alone. Members are evaluated candidates, correct or failing, in the order of arrival."""

    index: int
    strategy: Strategy
    members: tuple[Candidate, ...] = ()
    told: int = 0

    @property
    def correct(self) -> tuple[Candidate, ...]:
        return tuple(member for member in self.members if is_correct(member))


@dataclass(frozen=True)
class Credit:
    """What an operator has earned: the sum of the logarithms of its gains (losses count 0) over its tries."""

    tries: int = 0
    gain: float = 0.0


@dataclass(frozen=True)
class Request:
    """What the search wants next: one new candidate for an island, made from these parents by this operator.

    `number` counts requests from 0; the generator for request n is seeded with the run's seed and n.
    """

    number: int
    island: int
    operator: Operator
    parents: tuple[Candidate, ...]
    examples: tuple[Candidate, ...] = ()

    @property
    def key(self) -> tuple[Operator, tuple[int, ...]]:
        return self.operator, tuple(parent.id for parent in self.parents)


@dataclass(frozen=True)
class State:
    """Everything the search knows; replaced, never changed."""

    islands: tuple[Island, ...]
    archive: Mapping[Cell, Candidate] = field(default_factory=lambda: MappingProxyType({}))
    best: Candidate | None = None
    asked: int = 0
    told: int = 0
    last_best_at: int = 0
    migrations: int = 0
    seen: frozenset[str] = frozenset()
    pending: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    exhausted: frozenset[tuple[Operator, tuple[int, ...]]] = frozenset()
    operators: Mapping[int, Operator] = field(default_factory=lambda: MappingProxyType({}))
    credit: Mapping[Operator, Credit] = field(default_factory=lambda: MappingProxyType({}))
    children: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        assert [island.index for island in self.islands] == list(range(len(self.islands)))
        if self.best is None:
            assert not any(island.correct for island in self.islands), "a best was not noticed"
            return
        assert is_correct(self.best)
        home = self.islands[self.best.island]
        assert any(self.best is member for member in home.members), (
            "the best candidate was lost from its island"
        )
        if self.migrations:
            assert all(island.members for island in self.islands), "an island is empty"

    def find(self, candidate_id: int) -> Candidate | None:
        """A member of any island or of the archive."""
        for members in (*(island.members for island in self.islands), self.archive.values()):
            for member in members:
                if member.id == candidate_id:
                    return member
        return None
