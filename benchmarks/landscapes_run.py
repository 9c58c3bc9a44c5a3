"""Plays the search's real engine on a landscape as the driver does: ask, draft, evaluate, tell, four candidates in flight."""

import random
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Final

from benchmarks.landscapes import Instance, kernel_of
from benchmarks.landscapes_operators import (
    CHEAP,
    MODELS,
    SCRIPT_PRICE,
    STRONG,
    Makers,
    focus_of,
    next_to,
)
from gpu_runner.core.candidate import Candidate
from gpu_runner.core.search import Method
from gpu_runner.core.task import Budget
from gpu_runner.core.verdicts import State as Life
from gpu_runner.evolution import archive, bandit, engine
from gpu_runner.evolution.fitness import beats
from gpu_runner.evolution.types import Cell, Operator, Request, Settings, State, Way
from gpu_runner.proposals.types import Draft

# Pure functions that the engine calls, remembered: a kernel here has one text, and its cell follows from its choices.
_cells: dict[tuple[int, ...], Cell] = {}
_cell_of = archive.cell_of


def _remembered_cell(candidate: Candidate) -> Cell:
    choices = kernel_of(candidate.source).choices
    if choices not in _cells:
        _cells[choices] = _cell_of(candidate)
    return _cells[choices]


engine.fingerprint = str  # type: ignore[assignment]
archive.cell_of = _remembered_cell

FIRST: Final = 8
"""First candidates of every arm but those that sample or restart."""
IN_FLIGHT: Final = 4
TRIED: Final = 6
"""What a model is told of earlier attempts on a parent."""
MAX_DRAFTS: Final = 20
"""Drafts per evaluation, after which a run that finds duplicates alone is over."""

WRITTEN: Final = (Operator.SEED, Operator.IMPROVE, Operator.REPAIR, Operator.CROSSOVER)
WAYS: Final = frozenset(
    [Way(operator, model) for operator in WRITTEN for model in MODELS]
    + [Way(Operator.REWRITE), Way(Operator.TUNE), Way(Operator.CROSSOVER)]
)


@dataclass(frozen=True)
class Arm:
    """A search to compare.

    Args:
        restart_after: answers without a new best after which everything is begun again; None: never.
        is_priced: the budget is in money too, so that the bandit sees what models cost.
    """

    name: str
    islands: int = 4
    settings: Settings = Settings()  # noqa: RUF009
    restart_after: int | None = None
    is_priced: bool = False


@dataclass(frozen=True)
class Played:
    """The true worth of the best so far after each evaluation, and what has been paid by then (draft and evaluation)."""

    curve: tuple[float, ...]
    paid: tuple[float, ...]


class Game:
    """One arm on one instance; everything random follows from the seed."""

    def __init__(self, arm: Arm, here: Instance, seed: int, evaluations: int) -> None:
        self._arm = arm
        self._here = here
        self._seed = seed
        self._evaluations = evaluations
        self._makers = Makers(here)
        self._rng = random.Random(f"play:{seed}")
        self._noise = random.Random(f"noise:{seed}")
        self._state = engine.begin(arm.islands, arm.settings)
        self._best: Candidate | None = None
        self._count = 0
        self._drafts = 0
        self._waiting: deque[tuple[Candidate, float]] = deque()
        self._offers: dict[object, list[Draft]] = {}
        self._tried: dict[int, list[str]] = defaultdict(list)
        self._curve: list[float] = []
        self._paid: list[float] = []

    def play(self) -> Played:
        if self._arm.settings.method is Method.EVOLUTION:
            self._begin(2 if self._arm.restart_after else FIRST)
        while len(self._curve) < self._evaluations:
            self._fill()
            if not self._waiting:
                break
            self._answer()
            if self._is_stuck:
                self._begin(2)
        left = self._evaluations - len(self._curve)
        last_paid = self._paid[-1] if self._paid else 0.0
        return Played((*self._curve, *[self._worth] * left), (*self._paid, *[last_paid] * left))

    def _begin(self, count: int) -> None:
        """First candidates on fresh islands; what is in flight is answered to nobody."""
        self._waiting.clear()
        self._offers.clear()
        self._state = engine.begin(self._arm.islands, self._arm.settings)
        for number in range(count):
            model = (CHEAP, STRONG)[number % 2]
            draft = self._makers.first(model, self._rng)
            candidate = self._candidate(draft, number % self._arm.islands)
            self._state = engine.enqueued(self._state, [candidate], Operator.SEED)
            self._waiting.append((candidate, model.price))

    @property
    def _is_stuck(self) -> bool:
        after = self._arm.restart_after
        return after is not None and self._state.told - self._state.last_best_at >= after

    def _fill(self) -> None:
        while len(self._waiting) < IN_FLIGHT and self._drafts < MAX_DRAFTS * self._evaluations:
            self._drafts += 1
            rng = engine.generator(self._seed, self._state.asked)
            request = engine.ask(self._state, rng, WAYS)
            if request is None:
                return
            self._draft(request)

    def _draft(self, request: Request) -> None:
        drafts = self._offers.pop(request.key, None) or self._make(request)
        fresh = [d for d in drafts if not engine.is_duplicate(self._state, d.source)]
        fresh = list({draft.source: draft for draft in fresh}.values())
        chosen = max(fresh, key=lambda draft: draft.predicted_gain or 1.0, default=None)
        left = [draft for draft in fresh if draft is not chosen]
        self._offers[request.key] = left
        price = MODELS[request.model].price if request.model else SCRIPT_PRICE
        made = []
        if chosen is not None:
            made = [self._candidate(chosen, request.island, request)]
            self._waiting.append((made[0], price))
        has_ended = not left and request.operator is Operator.REWRITE
        self._state = engine.drafted(
            self._state,
            request,
            made,
            is_dry=chosen is None or has_ended,
            cost=self._cost(price),
        )

    def _cost(self, price: float) -> float:
        if not self._arm.is_priced:
            return 1.0
        budget = Budget(evaluations=self._evaluations, money_usd=self._evaluations)
        return bandit.price({"evaluations": 1, "money_usd": 1 + price}, budget)

    def _make(self, request: Request) -> list[Draft]:
        rng, makers = self._rng, self._makers
        model = MODELS.get(request.model)
        match request.operator, request.parents:
            case Operator.TUNE, (parent,):
                return makers.tune(parent, rng)
            case Operator.REWRITE, (parent,):
                return makers.rewrite(parent, rng)
            case Operator.CROSSOVER, (parent, other):
                return [makers.cross(parent, other, model, rng)]
        assert model is not None, request.operator
        match request.operator, request.parents:
            case Operator.SEED, ():
                return [makers.first(model, rng)]
            case Operator.REPAIR, (parent,):
                return [makers.repair(parent, model, rng)]
        parent = request.parents[0]
        draft = makers.improve(
            parent,
            model,
            rng,
            wanted=request.idea.key if request.idea else "",
            tried=self._tried[parent.id][-TRIED:],
            focus=focus_of(request.text.text) if request.text else (),
        )
        self._tried[parent.id].append(draft.move)
        return [draft]

    def _candidate(self, draft: Draft, island: int, request: Request | None = None) -> Candidate:
        self._count += 1
        parents = request.parents if request else ()
        return Candidate(
            id=self._count,
            source=draft.source,
            island=island,
            parents=tuple(parent.id for parent in parents),
            generation=max((parent.generation + 1 for parent in parents), default=0),
            origin=draft.origin,
            move=draft.move,
            plan=str(request.idea.id) if request and request.idea else None,
        )

    def _answer(self) -> None:
        candidate, price = self._waiting.popleft()
        evaluation = self._here.evaluate(kernel_of(candidate.source), self._noise)
        done = candidate.model_copy(update={"state": Life.FINISHED, "evaluation": evaluation})
        self._state = engine.told(self._state, done)
        if (want := engine.wanted_text(self._state)) is not None:
            text = next_to(want.parents[0].text, self._rng)
            self._state = engine.text_written(self._state, want, text)
        if self._state.best is not None and beats(self._state.best, self._best):
            self._best = self._state.best
        self._curve.append(self._worth)
        self._paid.append((self._paid[-1] if self._paid else 0.0) + 1 + price)

    @property
    def _worth(self) -> float:
        """What is published is timed once more, so that the true worth counts; slower than the reference is worth nothing."""
        if self._best is None:
            return 0.0
        return max(0.0, self._here.worth(kernel_of(self._best.source)) or 0.0)

    @property
    def state(self) -> State:
        return self._state
