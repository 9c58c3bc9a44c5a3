"""Learning from an expert's kernel with a real pool: simplify in a child, evaluate, diagnose, and turn the steps around."""

import json
from dataclasses import dataclass
from pathlib import Path

from gpu_runner.core.entries import Entry, EntryContent, EntryState
from gpu_runner.core.entry_lines import written
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.starting_entries import uid_of
from gpu_runner.core.task import TaskSpec
from gpu_runner.diagnosis import diagnose
from gpu_runner.experience.lineage import (
    SIMPLIFICATIONS,
    Lineage,
    Step,
    lessons,
    steps_of,
    trace,
)
from gpu_runner.sources import Pool


@dataclass(frozen=True)
class Learned:
    lineage: Lineage
    entries: tuple[EntryContent, ...]


def learn(pool: Pool, task: TaskSpec, kernel: str, *, evaluations: int) -> Learned:
    """Walk a kernel back on its task.

    Raises:
        UnfitExpert: the kernel does not pass.
        InvalidTask, RunnerError: as the pool does.
    """
    report = pool.inspect(task)

    def evaluate(source: str) -> Evaluation:
        return diagnose(pool.evaluate(task, source), source)

    def simplify(source: str) -> tuple[Step, ...]:
        return steps_of(pool.call(SIMPLIFICATIONS, {"source": source}))

    lineage = trace(kernel, evaluate, simplify, evaluations=evaluations)
    return Learned(lineage, lessons(lineage, task, report))


def write(learned: Learned, folder: Path) -> None:
    """`entries.jsonl`, nominated and ready to be imported, and `lineage.json` with every step and its effect."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = [
        Entry(
            id=uid_of(f"{e.provenance.task_key} {e.provenance.origin}"),
            state=EntryState.NOMINATED,
            content=e,
        )
        for e in learned.entries
    ]
    (folder / "entries.jsonl").write_text("".join(written(entries)))
    content = learned.lineage.model_dump(mode="json")
    (folder / "lineage.json").write_text(json.dumps(content, indent=1) + "\n")
