"""A run again from its answers: the fold over what the ledger's notes `answer` say, in their order."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.verdicts import State as Life
from gpu_runner.evolution import engine
from gpu_runner.evolution.plans import Suggestion
from gpu_runner.evolution.texts import Wanted
from gpu_runner.evolution.types import Operator, Request, Settings, State


def seeded_answer(candidates: Iterable[Candidate]) -> dict[str, Any]:
    """The first generation is in the queue."""
    return {"event": "seeded", "candidates": [candidate.id for candidate in candidates]}


def joined_answer(candidate: Candidate, operator: Operator) -> dict[str, Any]:
    """A candidate that nobody asked for is in the queue."""
    return {"event": "joined", "operator": operator.value, "candidates": [candidate.id]}


def asked_answer(
    request: Request, candidates: Iterable[Candidate], *, is_dry: bool, cost: float = 1.0
) -> dict[str, Any]:
    """What came of a request; `cost` of each candidate, see `bandit.price`."""
    return {
        "event": "asked",
        "number": request.number,
        "island": request.island,
        "operator": request.operator.value,
        "model": request.model,
        "parents": [parent.id for parent in request.parents],
        "idea": request.idea.id if request.idea else None,
        "text": request.text.id if request.text else None,
        "candidates": [candidate.id for candidate in candidates],
        "dry": is_dry,
        "cost": cost,
    }


def planned_answer(
    ideas: Iterable[tuple[Candidate, Suggestion]], dropped: Iterable[int]
) -> dict[str, Any]:
    """A planner edited the plan."""
    told = [{"base": base.id, **asdict(suggestion)} for base, suggestion in ideas]
    return {"event": "planned", "ideas": told, "dropped": list(dropped)}


def text_answer(want: Wanted, text: str) -> dict[str, Any]:
    """A strategy's text was written."""
    return {
        "event": "text",
        "island": want.island,
        "parents": [parent.id for parent in want.parents],
        "text": text,
    }


def told_answer(candidate: Candidate) -> dict[str, Any]:
    return {"event": "told", "candidate": candidate.id}


def replay(
    islands: int,
    candidates: Mapping[int, Candidate],
    answers: Iterable[Mapping[str, Any]],
    settings: Settings = Settings(),  # noqa: B008
) -> State:
    """The search's state after these answers; `candidates` are as they are now, by id."""
    state = engine.begin(islands, settings)
    for answer in answers:
        state = _applied(state, candidates, answer)
    return state


def _applied(state: State, candidates: Mapping[int, Candidate], answer: Mapping[str, Any]) -> State:
    if answer["event"] == "told":
        candidate = candidates[answer["candidate"]]
        # Told but not finished is impossible unless lines were lost; it is evaluated and told again.
        is_over = candidate.state not in (Life.QUEUED, Life.EVALUATING)
        return engine.told(state, candidate) if is_over else state
    if answer["event"] == "text":
        parents = tuple(state.texts[number] for number in answer["parents"])
        return engine.text_written(state, Wanted(answer["island"], parents), answer["text"])
    if answer["event"] == "planned":
        ideas = [
            (candidates[told["base"]], Suggestion(**{k: v for k, v in told.items() if k != "base"}))
            for told in answer["ideas"]
        ]
        return engine.planned(state, ideas, answer["dropped"])
    made = [candidates[number] for number in answer["candidates"]]
    if answer["event"] == "seeded":
        return engine.enqueued(state, made, Operator.SEED)
    if answer["event"] == "joined":
        return engine.enqueued(state, made, Operator(answer["operator"]))
    request = _request(state, candidates, answer)
    # Journals of earlier versions know neither models nor costs.
    cost = answer.get("cost", 1.0)
    return engine.drafted(state, request, made, is_dry=answer["dry"], cost=cost)


def _request(
    state: State, candidates: Mapping[int, Candidate], answer: Mapping[str, Any]
) -> Request:
    idea, text = answer.get("idea"), answer.get("text")
    return Request(
        number=answer["number"],
        island=answer["island"],
        operator=Operator(answer["operator"]),
        parents=tuple(candidates[number] for number in answer["parents"]),
        model=answer.get("model", ""),
        idea=state.plan.ideas[idea] if idea is not None else None,
        text=state.texts[text] if text is not None else None,
    )
