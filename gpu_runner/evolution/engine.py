"""Ask and tell, asynchronous and steady state: any number of candidates may be in flight between two answers."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.source import fingerprint
from gpu_runner.core.verdicts import State as Life
from gpu_runner.evolution import archive, migration, selection
from gpu_runner.evolution.fitness import beats, earned, is_correct, rank_key
from gpu_runner.evolution.strategies import strategy_of
from gpu_runner.evolution.types import Credit, Island, Operator, Request, State, unique

MAX_CORRECT = 10
MAX_FAILING = 4
TOLD_PER_MIGRATION = 3
"""Answers per island between two migrations."""

K = TypeVar("K")
V = TypeVar("V")


def begin(islands: int) -> State:
    return State(tuple(Island(index, strategy_of(index)) for index in range(islands)))


def generator(seed: int, number: int) -> random.Random:
    """The generator for request `number`; a resumed run needs no generator's inner state."""
    return random.Random(f"{seed}:{number}")


def ask(state: State, rng: random.Random, available: frozenset[Operator]) -> Request | None:
    """What to try next: for the island that had least, from selected parents, by an operator that can still give something.

    Returns:
        None where no island has a parent to which an available operator may still be applied.
    """
    for island in _hungriest_first(state):
        for parent in selection.parents_in_order(state, island, rng):
            request = _request(state, island, parent, rng, available)
            if request is not None:
                return request
    return None


def drafted(
    state: State, request: Request, candidates: Sequence[Candidate], *, is_dry: bool
) -> State:
    """Record what a request led to: candidates in flight, and whether it can give nothing more (`is_dry`)."""
    state = enqueued(state, candidates, request.operator)
    return replace(
        state,
        asked=max(state.asked, request.number + 1),
        exhausted=state.exhausted | {request.key} if is_dry else state.exhausted,
    )


def enqueued(state: State, candidates: Sequence[Candidate], operator: Operator) -> State:
    """Candidates that are in flight from now on."""
    children = dict(state.children)
    for candidate in candidates:
        for parent in candidate.parents:
            children[parent] = children.get(parent, 0) + 1
    return replace(
        state,
        seen=state.seen | {fingerprint(candidate.source) for candidate in candidates},
        pending=_with(state.pending, {c.id: c.island for c in candidates}),
        operators=_with(state.operators, {c.id: operator for c in candidates}),
        children=MappingProxyType(children),
    )


def is_duplicate(state: State, source: str) -> bool:
    return fingerprint(source) in state.seen


def told(state: State, candidate: Candidate, *, may_migrate: bool = True) -> State:
    """Take an answer in: the candidate joins its island, the archive and perhaps the top; migration when it is due.

    A candidate that could not be evaluated, or on which we failed, only leaves the queue.
    """
    pending = MappingProxyType({k: v for k, v in state.pending.items() if k != candidate.id})
    if candidate.state is not Life.FINISHED:
        return replace(state, pending=pending)
    best = candidate if beats(candidate, state.best) else state.best
    island = state.islands[candidate.island]
    joined = replace(
        island, members=_culled((*island.members, candidate), best), told=island.told + 1
    )
    islands = tuple(joined if old.index == joined.index else old for old in state.islands)
    count = state.told + 1
    state = replace(
        state,
        islands=islands,
        archive=archive.admit(state.archive, candidate),
        best=best,
        told=count,
        last_best_at=count if best is not state.best else state.last_best_at,
        pending=pending,
        credit=_credited(state, candidate),
    )
    is_due = may_migrate and len(islands) > 1 and count % (TOLD_PER_MIGRATION * len(islands)) == 0
    return _migrated(state) if is_due else state


def _hungriest_first(state: State) -> list[Island]:
    waiting = list(state.pending.values())
    return sorted(state.islands, key=lambda i: (i.told + waiting.count(i.index), i.index))


def _request(
    state: State,
    island: Island,
    parent: Candidate,
    rng: random.Random,
    available: frozenset[Operator],
) -> Request | None:
    suited = frozenset(op for op in available if selection.suits(op, parent))
    for operator in selection.operators_in_order(island.strategy.shares, state.credit, suited, rng):
        parents: tuple[Candidate, ...] = (parent,)
        if selection.needs_partner(operator):
            pool = [*island.correct, *state.archive.values()]
            other = selection.partner(parent, unique(pool), rng)
            if other is None:
                continue
            parents = (parent, other)
        request = Request(state.asked, island.index, operator, parents, _examples(state, parents))
        if request.key not in state.exhausted:
            return request
    return None


def _examples(state: State, parents: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """A good and a different kernel to learn from: the best of all, and the best of another cell."""
    known = {parent.id for parent in parents}
    others = sorted((e for e in state.archive.values() if e.id not in known), key=rank_key)
    return tuple(others[:2])


def _culled(members: tuple[Candidate, ...], best: Candidate | None) -> tuple[Candidate, ...]:
    """The fittest correct members and the latest failures; the best of the run always stays."""
    correct = sorted((m for m in members if is_correct(m)), key=rank_key)[:MAX_CORRECT]
    failing = [m for m in members if not is_correct(m)][-MAX_FAILING:]
    kept = {m.id for m in (*correct, *failing)} | ({best.id} if best else set())
    return tuple(member for member in members if member.id in kept)


def _credited(state: State, candidate: Candidate) -> Mapping[Operator, Credit]:
    operator = state.operators.get(candidate.id)
    if operator is None or not candidate.parents:
        return state.credit
    parents = tuple(p for p in map(state.find, candidate.parents) if p is not None)
    old = state.credit.get(operator, Credit())
    new = Credit(old.tries + 1, old.gain + earned(candidate, parents))
    return _with(state.credit, {operator: new})


def _migrated(state: State) -> State:
    islands = tuple(
        replace(island, members=_culled(island.members, state.best))
        for island in migration.migrate(state.islands)
    )
    if not all(island.members for island in islands):
        return state
    return replace(state, islands=islands, migrations=state.migrations + 1)


def _with(old: Mapping[K, V], new: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType({**old, **new})
