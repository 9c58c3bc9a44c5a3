"""The values that the search works on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.search import Idea, Method, StrategyText
from gpu_runner.evolution.fitness import is_correct, worth


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


class Way(NamedTuple):
    """How a candidate can be made: an operator, and the profile of the model that writes; "" where none is needed."""

    operator: Operator
    model: str = ""


@dataclass(frozen=True)
class Settings:
    """Parts of the search that can be switched off, to see what each is worth (`docs/search.md`).

    Args:
        models: that write; islands take turns with them.
    """

    method: Method = Method.EVOLUTION
    migration: bool = True
    archive: bool = True
    plans: bool = True
    bandit: bool = True
    texts: bool = True
    restarts: bool = True
    models: tuple[str, ...] = ()

    def model_of(self, island: int) -> str:
        """The island's own model; "" where none takes part."""
        return self.models[island % len(self.models)] if self.models else ""


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
    """A population that evolves alone. Members are evaluated candidates, correct or failing, in the order of arrival.

    Args:
        told: answers for this island; `improved_at` is what it was when its best last improved or it began afresh.
    """

    index: int
    strategy: Strategy
    members: tuple[Candidate, ...] = ()
    told: int = 0
    improved_at: int = 0
    restarts: int = 0

    @property
    def correct(self) -> tuple[Candidate, ...]:
        return tuple(member for member in self.members if is_correct(member))

    @property
    def worth(self) -> float:
        return max(map(worth, self.members), default=0.0)


@dataclass(frozen=True)
class Credit:
    """What a way has earned: the sum of the logarithms of its gains (losses count 0), over its tries and what they cost."""

    tries: float = 0.0
    gain: float = 0.0
    cost: float = 0.0


@dataclass(frozen=True)
class Lesson:
    """What attempts at one kind of idea came to, wherever made: how many broke, and the others' gain in logarithms."""

    tries: int = 0
    broke: int = 0
    gain: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The tree of ideas by id, and what was learnt of each kind by its key."""

    ideas: Mapping[int, Idea] = field(default_factory=lambda: MappingProxyType({}))
    lessons: Mapping[str, Lesson] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Request:
    """What the search wants next: one new candidate for an island, made from these parents by this way.

    `number` counts requests from 0; the generator for request n is seeded with the run's seed and n.

    Args:
        idea: what to try, where the plan says so; a repair goes on with the idea of the code that broke.
        text: the strategy that a model is told; None where no model writes.
    """

    number: int
    island: int
    operator: Operator
    parents: tuple[Candidate, ...]
    examples: tuple[Candidate, ...] = ()
    model: str = ""
    idea: Idea | None = None
    text: StrategyText | None = None

    @property
    def way(self) -> Way:
        return Way(self.operator, self.model)

    @property
    def key(self) -> "Key":
        return self.operator, self.model, tuple(parent.id for parent in self.parents)


Key = tuple[Operator, str, tuple[int, ...]]


@dataclass(frozen=True)
class Made:
    """How a candidate was made, to credit what it gains; `cost` in units of one evaluation."""

    way: Way
    cost: float = 1.0
    idea: int | None = None
    text: int | None = None


@dataclass(frozen=True)
class State:
    """Everything the search knows; replaced, never changed.

    Args:
        reserved: ideas of requests that are being drafted.
    """

    islands: tuple[Island, ...]
    settings: Settings = Settings()
    archive: Mapping[Cell, Candidate] = field(default_factory=lambda: MappingProxyType({}))
    best: Candidate | None = None
    asked: int = 0
    told: int = 0
    last_best_at: int = 0
    migrations: int = 0
    seen: frozenset[str] = frozenset()
    pending: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    dry: Mapping[Key, int] = field(default_factory=lambda: MappingProxyType({}))
    exhausted: frozenset[Key] = frozenset()
    made: Mapping[int, Made] = field(default_factory=lambda: MappingProxyType({}))
    credit: Mapping[Way, Credit] = field(default_factory=lambda: MappingProxyType({}))
    children: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    plan: Plan = Plan()
    reserved: frozenset[int] = frozenset()
    texts: Mapping[int, StrategyText] = field(default_factory=lambda: MappingProxyType({}))

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
