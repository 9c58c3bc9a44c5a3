"""A run again from its answers: the fold over what the ledger's notes `answer` say, in their order."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.verdicts import State as Life
from gpu_runner.evolution import engine
from gpu_runner.evolution.types import Operator, Request, State


def seeded_answer(candidates: Iterable[Candidate]) -> dict[str, Any]:
    """The first generation is in the queue."""
    return {"event": "seeded", "candidates": [candidate.id for candidate in candidates]}


def joined_answer(candidate: Candidate, operator: Operator) -> dict[str, Any]:
    """A candidate that nobody asked for is in the queue."""
    return {"event": "joined", "operator": operator.value, "candidates": [candidate.id]}


def asked_answer(
    request: Request, candidates: Iterable[Candidate], *, is_dry: bool
) -> dict[str, Any]:
    """What came of a request."""
    return {
        "event": "asked",
        "number": request.number,
        "island": request.island,
        "operator": request.operator.value,
        "parents": [parent.id for parent in request.parents],
        "candidates": [candidate.id for candidate in candidates],
        "dry": is_dry,
    }


def told_answer(candidate: Candidate) -> dict[str, Any]:
    return {"event": "told", "candidate": candidate.id}


def replay(
    islands: int, candidates: Mapping[int, Candidate], answers: Iterable[Mapping[str, Any]]
) -> State:
    """The search's state after these answers; `candidates` are as they are now, by id."""
    state = engine.begin(islands)
    for answer in answers:
        state = _applied(state, candidates, answer)
    return state


def _applied(state: State, candidates: Mapping[int, Candidate], answer: Mapping[str, Any]) -> State:
    if answer["event"] == "told":
        candidate = candidates[answer["candidate"]]
        # Told but not finished is impossible unless lines were lost; it is evaluated and told again.
        is_over = candidate.state not in (Life.QUEUED, Life.EVALUATING)
        return engine.told(state, candidate) if is_over else state
    made = [candidates[number] for number in answer["candidates"]]
    if answer["event"] == "seeded":
        return engine.enqueued(state, made, Operator.SEED)
    operator = Operator(answer["operator"])
    if answer["event"] == "joined":
        return engine.enqueued(state, made, operator)
    parents = tuple(candidates[number] for number in answer["parents"])
    request = Request(answer["number"], answer["island"], operator, parents)
    return engine.drafted(state, request, made, is_dry=answer["dry"])
