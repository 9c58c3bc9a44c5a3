"""The steps of a run for training: prompt, answer, the parts of its reward, the gain over its parent (docs/trajectories.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.ledger import ModelCall
from gpu_runner.evolution.fitness import gain, is_correct, worth
from gpu_runner.journal import history

SCHEMA = 1


def steps_of(folder: Path) -> list[dict[str, Any]]:
    """One object per evaluated candidate and per request that led to none, in the order of the run.

    Raises:
        JournalError: the folder holds no run.
    """
    run = history(folder)
    asked = {call.candidate_id: call for call in run.calls if call.candidate_id is not None}
    task = {
        "run": f"{run.spec.task.key}-{run.spec.seed}",
        "task": run.spec.task.name,
        "task_key": run.spec.task.key,
        "reference": run.spec.task.source,
        "track": str(run.spec.task.track),
        "precision": str(run.spec.task.precision),
    }
    steps = [
        {**task, **_step(candidate, run.candidates, asked.get(candidate.id))}
        for candidate in run.candidates.values()
        if candidate.evaluation is not None
    ]
    lost = [call for call in run.calls if call.candidate_id is None]
    return steps + [{**task, **_lost(call)} for call in lost]


def is_wanted(step: Mapping[str, Any], min_gain: float | None, *, prompts_only: bool) -> bool:
    """`min_gain` asks for steps from a correct parent to a correct child that is so much faster."""
    if prompts_only and step["prompt"] is None:
        return False
    return min_gain is None or (step["gain"] is not None and step["gain"] >= min_gain)


def _step(
    candidate: Candidate, known: Mapping[int, Candidate], call: ModelCall | None
) -> dict[str, Any]:
    evaluation = candidate.evaluation
    assert evaluation is not None
    parents = [known[number] for number in candidate.parents if number in known]
    parent = max(parents, key=worth, default=None)
    return {
        "schema": SCHEMA,
        "candidate": candidate.id,
        "parents": list(candidate.parents),
        "island": candidate.island,
        "generation": candidate.generation,
        "origin": candidate.origin,
        "move": candidate.move,
        "role": call.role if call else None,
        "outcome": call.outcome if call else None,
        "prompt": call.prompt if call else None,
        "answer": call.reply if call else None,
        "source": candidate.source,
        "parent_source": parent.source if parent else None,
        "verdict": str(evaluation.verdict) if evaluation.verdict else None,
        "kind": evaluation.kind,
        "is_correct": is_correct(candidate),
        "fidelity": str(evaluation.fidelity) if evaluation.fidelity else None,
        "speedup": candidate.fitness or None,
        "parent_speedup": parent.fitness or None if parent else None,
        "gain": gain(candidate, parent) if parent else None,
        "lead": evaluation.lead.title if evaluation.lead else None,
        "tokens_in": call.tokens_in if call else None,
        "tokens_out": call.tokens_out if call else None,
    }


def _lost(call: ModelCall) -> dict[str, Any]:
    """A request whose answer could not be used: an example of what not to write."""
    nothing = dict.fromkeys(
        "candidate generation move source parent_source verdict kind fidelity speedup parent_speedup gain lead".split()
    )
    return nothing | {
        "schema": SCHEMA,
        "parents": [],
        "island": call.island,
        "origin": f"model:{call.model}",
        "role": call.role,
        "outcome": call.outcome,
        "prompt": call.prompt,
        "answer": call.reply,
        "is_correct": False,
        "tokens_in": call.tokens_in,
        "tokens_out": call.tokens_out,
    }
