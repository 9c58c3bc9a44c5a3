"""Ask and tell, asynchronous and steady state: any number of candidates may be in flight between two answers.

`ask` decides on a request, `drafted` records what came of it, `told` takes an evaluated candidate in. What a step must never
lose is asserted in every state (`types.State`) and between two of them (`_checked`).
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.search import Idea, Method, StrategyText
from gpu_runner.core.source import fingerprint
from gpu_runner.core.verdicts import State as Life
from gpu_runner.evolution import archive, bandit, migration, plans, selection, texts
from gpu_runner.evolution.fitness import beats, earned, is_correct, rank_key, worth
from gpu_runner.evolution.strategies import strategy_of
from gpu_runner.evolution.types import (
    Credit,
    Island,
    Made,
    Operator,
    Request,
    Settings,
    State,
    Way,
    unique,
)

MAX_CORRECT = 10
MAX_FAILING = 4
TOLD_PER_MIGRATION = 3
"""Answers per island between two migrations."""
LEAD = 3.0
"""Requests for the leading island to one for each of the others."""
PLANNED = 0.5
"""Share of requests that the plan decides where it has an open idea for the island; the rest start from a parent."""
STALE = 15
"""Answers for an island without a better best of its own after which it begins afresh."""
FRESH_MEMBERS = 3
MODEL_PATIENCE = 3
SAMPLE_PATIENCE = 10
"""Times that a model may have nothing new for the same parents before it is not asked about them again."""

K = TypeVar("K")
V = TypeVar("V")


def begin(islands: int, settings: Settings = Settings()) -> State:  # noqa: B008
    started = tuple(Island(index, strategy_of(index)) for index in range(islands))
    return State(started, settings, texts=texts.first_texts(started))


def generator(seed: int, number: int) -> random.Random:
    """The generator for request `number`; a resumed run needs no generator's inner state."""
    return random.Random(f"{seed}:{number}")


def ask(state: State, rng: random.Random, ways: frozenset[Way]) -> Request | None:
    """What to try next: for the island that had least, what the plan says or selected parents, by a way that can still give.

    Returns:
        None where no island has a parent to which an available way may still be applied.
    """
    if state.settings.method is Method.SAMPLING:
        return _sample(state, rng, ways)
    for island in _hungriest_first(state):
        request = _planned(state, island, rng, ways)
        if request is not None:
            return request
        for parent in selection.parents_in_order(state, island, rng):
            request = _from_parent(state, island, parent, rng, ways)
            if request is not None:
                return request
    return None


def asked(state: State, request: Request) -> State:
    """A request is being drafted: the next one has another number and another idea."""
    idea = {request.idea.id} if request.idea else set()
    return replace(
        state, asked=max(state.asked, request.number + 1), reserved=state.reserved | idea
    )


def drafted(
    state: State,
    request: Request,
    candidates: Sequence[Candidate],
    *,
    is_dry: bool,
    cost: float = 1.0,
) -> State:
    """Record what a request led to: candidates in flight, and whether it can give nothing more (`is_dry`).

    Args:
        cost: of each candidate with its evaluation, see `bandit.price`.
    """
    idea = request.idea.id if request.idea else None
    text = request.text.id if request.text else None
    state = _queued(state, candidates, Made(request.way, cost, idea, text))
    dry = state.dry.get(request.key, 0) + 1 if is_dry else 0
    is_over = dry >= _patience(state, request)
    return replace(
        state,
        asked=max(state.asked, request.number + 1),
        dry=_with(state.dry, {request.key: dry}),
        exhausted=state.exhausted | {request.key} if is_over else state.exhausted,
        plan=plans.tried(state.plan, idea, candidates) if idea is not None else state.plan,
        reserved=state.reserved - {idea},
    )


def _patience(state: State, request: Request) -> int:
    """How many times in a row a request may give nothing; of a sample another one says little."""
    if not request.model:
        return 1
    return SAMPLE_PATIENCE if state.settings.method is Method.SAMPLING else MODEL_PATIENCE


def enqueued(state: State, candidates: Sequence[Candidate], operator: Operator) -> State:
    """Candidates that nobody asked for are in flight from now on."""
    return _queued(state, candidates, Made(Way(operator)))


def is_duplicate(state: State, source: str) -> bool:
    return fingerprint(source) in state.seen


def told(state: State, candidate: Candidate, *, may_migrate: bool = True) -> State:
    """Take an answer in: the candidate joins its island, the archive and perhaps the top; migration when it is due.

    A candidate that could not be evaluated, or on which we failed, only leaves the queue.
    """
    before = state
    pending = MappingProxyType({k: v for k, v in state.pending.items() if k != candidate.id})
    state = replace(state, pending=pending)
    made = state.made.get(candidate.id)
    if candidate.state is not Life.FINISHED:
        if made and made.idea is not None:
            return replace(state, plan=plans.forgotten(state.plan, made.idea))
        return state
    state = _planned_on(_credited(_joined(state, candidate), before, candidate), candidate)
    if state.settings.restarts:
        state = _refreshed(state, candidate.island)
    if may_migrate and _is_migration_due(state):
        state = _migrated(state)
    return _checked(before, state)


def wanted_text(state: State) -> texts.Wanted | None:
    """The strategy text that should be written next, if any; see `texts`."""
    return texts.wanted(state.texts, state.islands) if state.settings.texts else None


def text_written(state: State, want: texts.Wanted, text: str) -> State:
    return replace(state, texts=texts.born(state.texts, want, text))


def planned(
    state: State, ideas: Sequence[tuple[Candidate, plans.Suggestion]], dropped: Collection[int]
) -> State:
    """The plan as a planner edits it: open ideas withdrawn, new ones added for their bases."""
    plan = plans.withdrawn(state.plan, dropped)
    for base, suggestion in ideas:
        plan = plans.proposed(plan, base, [suggestion])
    return _checked(state, replace(state, plan=plan))


def shares(state: State, ways: frozenset[Way]) -> dict[Way, float]:
    """The chance of each way on an average island, where all of them apply."""
    mean: dict[Way, float] = {}
    for island in state.islands:
        weighted = _weights(state, island, ways)
        total = sum(weighted.values())
        for way, weight in weighted.items():
            mean[way] = mean.get(way, 0.0) + weight / total / len(state.islands)
    return mean


# Asking.


def _hungriest_first(state: State) -> list[Island]:
    """Islands by what they had so far, of which the leading one is due `LEAD` times as much as the others."""
    waiting = list(state.pending.values())
    leader = max(state.islands, key=lambda island: (island.worth, -island.index)).index

    def had(island: Island) -> float:
        count = island.told + waiting.count(island.index)
        return count / LEAD if island.index == leader else count

    return sorted(state.islands, key=lambda island: (had(island), island.index))


def _sample(state: State, rng: random.Random, ways: frozenset[Way]) -> Request | None:
    """The control arm: a first candidate from a model; without one a single step from a first candidate, drawn evenly."""
    island = _hungriest_first(state)[0]
    writers = sorted(way for way in ways if way.operator is Operator.SEED)
    if writers:
        request = _request(state, island, rng.choice(writers), (), rng)
        return request if request.key not in state.exhausted else None
    members = unique(m for home in state.islands for m in home.members if not m.parents)
    for parent in rng.sample(members, len(members)):
        suited = sorted(w for w in ways if selection.suits(w.operator, parent))
        for way in rng.sample(suited, len(suited)):
            request = _request(state, island, way, (parent,), rng)
            if request.key not in state.exhausted and not selection.needs_partner(way.operator):
                return request
    return None


def _planned(
    state: State, island: Island, rng: random.Random, ways: frozenset[Way]
) -> Request | None:
    """The most promising idea for the island's members, from its base or by repairing its code; None if not its turn."""
    if not state.settings.plans or rng.random() >= PLANNED:
        return None
    members = {member.id: member for member in island.members}
    for idea in plans.promising(state.plan, members, state.reserved):
        broken = members.get(idea.candidates[-1]) if idea.candidates else None
        options = [(Operator.IMPROVE, members[idea.base])]
        if broken is not None and not is_correct(broken):
            options.insert(0, (Operator.REPAIR, broken))
        for operator, parent in options:
            suited = [way for way in ways if way.operator is operator]
            for way in _ways_in_order(state, island, suited, rng):
                request = _request(state, island, way, (parent,), rng, idea)
                if request.key not in state.exhausted:
                    return request
    return None


def _from_parent(
    state: State, island: Island, parent: Candidate, rng: random.Random, ways: frozenset[Way]
) -> Request | None:
    if selection.is_given_up(state, parent):
        return None
    suited = [way for way in ways if selection.suits(way.operator, parent)]
    for way in _ways_in_order(state, island, suited, rng):
        parents: tuple[Candidate, ...] = (parent,)
        if selection.needs_partner(way.operator):
            pool = [*island.correct, *state.archive.values()]
            other = selection.partner(parent, unique(pool), rng)
            if other is None:
                continue
            parents = (parent, other)
        idea = _idea_for(state, way, parent)
        request = _request(state, island, way, parents, rng, idea)
        if request.key not in state.exhausted:
            return request
    return None


def _idea_for(state: State, way: Way, parent: Candidate) -> Idea | None:
    """What the plan has for a parent that was selected without it: its best idea, or the one whose code broke."""
    if way.operator is Operator.IMPROVE:
        return next(iter(plans.promising(state.plan, {parent.id}, state.reserved)), None)
    made = state.made.get(parent.id)
    if way.operator is Operator.REPAIR and made is not None and made.idea is not None:
        return state.plan.ideas[made.idea]
    return None


def _ways_in_order(
    state: State, island: Island, ways: Collection[Way], rng: random.Random
) -> Iterator[Way]:
    return bandit.in_order(_weights(state, island, ways), rng)


def _weights(state: State, island: Island, ways: Collection[Way]) -> dict[Way, float]:
    return bandit.weights(
        island.strategy.shares,
        state.credit,
        ways,
        learns=state.settings.bandit,
        home=state.settings.model_of(island.index),
    )


def _request(
    state: State,
    island: Island,
    way: Way,
    parents: tuple[Candidate, ...],
    rng: random.Random,
    idea: Idea | None = None,
) -> Request:
    return Request(
        number=state.asked,
        island=island.index,
        operator=way.operator,
        parents=parents,
        examples=_examples(state, parents),
        model=way.model,
        idea=idea,
        text=_text(state, island, way, rng),
    )


def _text(state: State, island: Island, way: Way, rng: random.Random) -> StrategyText | None:
    return texts.choose(state.texts, island.index, rng) if way.model else None


def _examples(state: State, parents: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """A good and a different kernel to learn from: the best of all, and the best of another cell."""
    if state.settings.method is Method.SAMPLING:
        return ()
    known = {parent.id for parent in parents}
    others = sorted((e for e in state.archive.values() if e.id not in known), key=rank_key)
    return tuple(others[:2])


# Telling.


def _queued(state: State, candidates: Sequence[Candidate], made: Made) -> State:
    children = dict(state.children)
    for candidate in candidates:
        for parent in candidate.parents:
            children[parent] = children.get(parent, 0) + 1
    return replace(
        state,
        seen=state.seen | {fingerprint(candidate.source) for candidate in candidates},
        pending=_with(state.pending, {c.id: c.island for c in candidates}),
        made=_with(state.made, {c.id: made for c in candidates}),
        children=MappingProxyType(children),
    )


def _joined(state: State, candidate: Candidate) -> State:
    """The candidate in its island, in the archive and perhaps at the top."""
    best = candidate if beats(candidate, state.best) else state.best
    count = state.told + 1
    old = state.islands[candidate.island]
    members = _culled((*old.members, candidate), best)
    is_better = worth(candidate) > old.worth
    joined = replace(
        old,
        members=members,
        told=old.told + 1,
        improved_at=old.told + 1 if is_better else old.improved_at,
    )
    kept = archive.admit(state.archive, candidate) if state.settings.archive else state.archive
    return replace(
        state,
        islands=_replaced(state.islands, joined),
        archive=kept,
        best=best,
        told=count,
        last_best_at=count if best is not state.best else state.last_best_at,
    )


def _credited(state: State, before: State, candidate: Candidate) -> State:
    """What the candidate gained over its parents, to the way and to the text that it was made by."""
    made = before.made.get(candidate.id)
    if made is None or not candidate.parents:
        return state
    parents = tuple(p for p in map(before.find, candidate.parents) if p is not None)
    gain = earned(candidate, parents)
    credit = bandit.earned(state.credit.get(made.way, Credit()), gain, made.cost)
    state = replace(state, credit=_with(state.credit, {made.way: credit}))
    if made.text is None:
        return state
    return replace(state, texts=texts.credited(state.texts, made.text, gain))


def _planned_on(state: State, candidate: Candidate) -> State:
    """The plan after a result: the idea's fate, and what the diagnosis suggests next."""
    if not state.settings.plans:
        return state
    plan, made = state.plan, state.made.get(candidate.id)
    if made is not None and made.idea is not None:
        plan = plans.judged(plan, made.idea, candidate)
    return replace(state, plan=plans.proposed(plan, candidate, plans.from_findings(candidate)))


def _refreshed(state: State, index: int) -> State:
    """An island that stagnates begins afresh from elites of the archive that were rarely used; never the home of the best."""
    island = state.islands[index]
    is_home = state.best is not None and state.best.island == index
    if is_home or island.told - island.improved_at < STALE:
        return state
    held = {member.id for member in island.members}
    elites = [e for e in selection.rarely_used(state.archive, state.children) if e.id not in held]
    if not elites:
        return state
    fresh = replace(
        island,
        members=tuple(elites[:FRESH_MEMBERS]),
        improved_at=island.told,
        restarts=island.restarts + 1,
    )
    return replace(state, islands=_replaced(state.islands, fresh))


def _is_migration_due(state: State) -> bool:
    count = len(state.islands)
    is_time = state.told % (TOLD_PER_MIGRATION * count) == 0
    return state.settings.migration and count > 1 and is_time


def _migrated(state: State) -> State:
    moved = migration.migrate(state.islands)
    for old, new in zip(state.islands, moved, strict=True):
        assert new.members[: len(old.members)] == old.members, "a migrant left its home"
    islands = tuple(replace(i, members=_culled(i.members, state.best)) for i in moved)
    if not all(island.members for island in islands):
        return state
    return replace(state, islands=islands, migrations=state.migrations + 1)


def _culled(members: tuple[Candidate, ...], best: Candidate | None) -> tuple[Candidate, ...]:
    """The fittest correct members and the latest failures; the best of the run always stays."""
    correct = sorted((m for m in members if is_correct(m)), key=rank_key)[:MAX_CORRECT]
    failing = [m for m in members if not is_correct(m)][-MAX_FAILING:]
    kept = {m.id for m in (*correct, *failing)} | ({best.id} if best else set())
    return tuple(member for member in members if member.id in kept)


def _checked(before: State, after: State) -> State:
    """What no step may do, whatever the answer was."""
    for old, new in zip(before.islands, after.islands, strict=True):
        assert new.members or not old.members, f"island {new.index} was emptied"
    assert before.best is None or after.best is not None, "the best was forgotten"
    assert before.best is after.best or beats(after.best, before.best)  # type: ignore[arg-type]
    for cell, elite in before.archive.items():
        assert worth(after.archive[cell]) >= worth(elite), f"an elite of {cell} was lost"
    assert before.plan.ideas.keys() <= after.plan.ideas.keys(), "an idea was forgotten"
    return after


def _replaced(islands: tuple[Island, ...], new: Island) -> tuple[Island, ...]:
    return tuple(new if old.index == new.index else old for old in islands)


def _with(old: Mapping[K, V], new: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType({**old, **new})
