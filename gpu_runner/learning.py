"""Learning from an expert's kernel with a real pool: simplify in a child, evaluate, turn what costs around, run it again.

A lesson becomes an entry only where a second run of its code before and after shows the gain as well: on fresh seeds, and
interleaved on a GPU. The effect that the entry states is that of the second run.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from gpu_runner.core.entries import Effect, Entry, EntryContent, EntryState
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
from gpu_runner.experience.verification import Trial, Verification, verify
from gpu_runner.sources import Pool


@dataclass(frozen=True)
class Lesson:
    """A step that cost time, turned around, and what running it again found."""

    entry: EntryContent
    verification: Verification


@dataclass(frozen=True)
class Learned:
    lineage: Lineage
    lessons: tuple[Lesson, ...]

    @property
    def entries(self) -> tuple[EntryContent, ...]:
        """The lessons that held when they were run again."""
        return tuple(lesson.entry for lesson in self.lessons if lesson.verification.accepted)


def learn(
    pool: Pool,
    task: TaskSpec,
    kernel: str,
    *,
    evaluations: int,
    others: Iterable[TaskSpec] = (),
    told: Callable[[str], None] = lambda line: None,
) -> Learned:
    """Walk a kernel back on its task.

    Args:
        evaluations: the budget of the walk; each lesson is evaluated twice more on its own task, and on others that it fits.
        told: gets a line for people about each thing done.

    Raises:
        UnfitExpert: the kernel does not pass.
        InvalidTask, RunnerError: as the pool does.
    """
    report = pool.inspect(task)
    others = tuple(others)
    numbers = count(1)

    def evaluate(source: str) -> Evaluation:
        evaluation = diagnose(pool.evaluate(task, source), source)
        told(f"evaluation {next(numbers)} of at most {evaluations}: {_in_words(evaluation)}")
        return evaluation

    def simplify(source: str) -> tuple[Step, ...]:
        return steps_of(pool.call(SIMPLIFICATIONS, {"source": source}))

    lineage = trace(kernel, evaluate, simplify, evaluations=evaluations)
    found = []
    for entry in lessons(lineage, task, report):
        told(f"running again on fresh seeds: {entry.title}")
        verification = verify(entry, pool, task, others)
        found.append(Lesson(_with_effects(entry, verification.trials, task), verification))
    return Learned(lineage, tuple(found))


def _in_words(evaluation: Evaluation) -> str:
    verdict = str(evaluation.verdict or evaluation.state)
    if evaluation.candidate is None:
        return verdict
    return f"{verdict}, {evaluation.candidate.device_us:.1f} us {evaluation.fidelity}"


def _with_effects(entry: EntryContent, trials: tuple[Trial, ...], task: TaskSpec) -> EntryContent:
    """The entry with the effect of its second run instead of the first one's, where it has one."""
    effects = tuple(
        Effect(
            device=effect.device,
            fidelity=trial.fidelity or effect.fidelity,
            track=task.track,
            precision=task.precision,
            ratio=trial.ratio,
            low=trial.low,
            high=trial.high,
        )
        for trial in trials[:1]
        for effect in entry.effects
        if trial.ratio is not None
    )
    return entry.model_copy(update={"effects": effects or entry.effects})


def write(learned: Learned, folder: Path) -> None:
    """What was learned, in a folder.

    `entries.jsonl` is ready to be imported, nominated; `lineage.json` has every step with its effect; `lessons.json` has each
    lesson's second run, also of those that did not hold.
    """
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
    seconds = [
        {"title": lesson.entry.title, **lesson.verification.model_dump(mode="json")}
        for lesson in learned.lessons
    ]
    (folder / "lessons.json").write_text(json.dumps(seconds, indent=1) + "\n")
