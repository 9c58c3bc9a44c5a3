"""What a run came to: its best candidate, counts by verdict, islands, and which moves gained how much."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.task import RunSpec
from gpu_runner.core.verdicts import RunState
from gpu_runner.core.verdicts import State as Life
from gpu_runner.evolution.fitness import gain, is_correct, rank_key, worth
from gpu_runner.evolution.types import State


class Move(BaseModel):
    """One step from a correct parent to a correct child."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    candidate_id: int
    parent_id: int
    island: int
    generation: int
    origin: str
    move: str
    gain: float = Field(description="speedup of the child / speedup of its parent")
    in_best: bool = Field(description="whether the best candidate descends from this step")


class IslandResult(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    strategy: str
    candidates: int = Field(description="made for this island; migrants are not counted")
    correct: int
    best_id: int | None = None
    best_speedup: float | None = None


class RunResult(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    seed: int
    state: RunState
    stop_reason: str
    best: Candidate | None
    counts: dict[str, int]
    islands: tuple[IslandResult, ...]
    moves: tuple[Move, ...]
    spent: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """The content of `result.json`: `best` is the evaluation object with where the candidate came from."""
        payload = self.model_dump(mode="json", exclude={"best"})
        payload["best"] = best_json(self.best) if self.best else None
        return payload


def best_json(best: Candidate) -> dict[str, Any]:
    evaluation = best.evaluation.model_dump(mode="json") if best.evaluation else {}
    return evaluation | {
        "candidate_id": best.id,
        "island": best.island,
        "generation": best.generation,
        "origin": best.origin,
        "move": best.move,
        "parents": list(best.parents),
    }


def summarise(
    spec: RunSpec,
    state: State,
    candidates: Sequence[Candidate],
    spent: Mapping[str, float],
    *,
    run_state: RunState,
    stop_reason: str,
    best: Candidate | None,
) -> RunResult:
    """`best` is given apart from the state's, since what is published is timed once more."""
    return RunResult(
        task=spec.task.name,
        seed=spec.seed,
        state=run_state,
        stop_reason=stop_reason,
        best=best,
        counts=counts(candidates),
        islands=tuple(_island_results(state, candidates)),
        moves=tuple(moves(candidates, best)),
        spent=dict(spent),
    )


def counts(candidates: Sequence[Candidate]) -> dict[str, int]:
    """By verdict; candidates without one by their state, unless they never left the queue."""
    words: list[str] = []
    for candidate in candidates:
        if candidate.evaluation and candidate.evaluation.verdict:
            words.append(candidate.evaluation.verdict.value)
        elif candidate.state in (Life.UNEVALUATED, Life.ABANDONED):
            words.append(candidate.state.value)
    return dict(sorted(Counter(words).items()))


def moves(candidates: Sequence[Candidate], best: Candidate | None) -> list[Move]:
    """In the order of candidates; of two parents the fitter one is compared with."""
    by_id = {candidate.id: candidate for candidate in candidates}
    ancestors = lineage(by_id, best)
    found = []
    for child in candidates:
        parents = [by_id[p] for p in child.parents if p in by_id]
        if not parents:
            continue
        parent = max(parents, key=worth)
        ratio = gain(child, parent)
        if ratio is not None:
            found.append(
                Move(
                    candidate_id=child.id,
                    parent_id=parent.id,
                    island=child.island,
                    generation=child.generation,
                    origin=child.origin,
                    move=child.move,
                    gain=ratio,
                    in_best=child.id in ancestors,
                )
            )
    return found


def lineage(by_id: Mapping[int, Candidate], best: Candidate | None) -> set[int]:
    """The ids of a candidate and of all its ancestors."""
    known: set[int] = set()
    pending = [best.id] if best else []
    while pending:
        here = pending.pop()
        if here in by_id and here not in known:
            known.add(here)
            pending += by_id[here].parents
    return known


def _island_results(state: State, candidates: Sequence[Candidate]) -> list[IslandResult]:
    results = []
    for island in state.islands:
        made = [candidate for candidate in candidates if candidate.island == island.index]
        correct = [candidate for candidate in made if is_correct(candidate)]
        best = min(correct, key=rank_key, default=None)
        results.append(
            IslandResult(
                index=island.index,
                strategy=island.strategy.name,
                candidates=len(made),
                correct=len(correct),
                best_id=best.id if best else None,
                best_speedup=best.fitness if best and best.fitness > 0 else None,
            )
        )
    return results
