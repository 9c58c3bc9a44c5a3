"""The loop of a run over a scripted pool: budgets, islands, failures of ours, people's wishes, kills and replay."""

import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpu_runner import course
from gpu_runner.core.candidate import Candidate, Proposal
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.ledger import LeaseLost
from gpu_runner.core.task import Budget, RunSpec, TaskSpec
from gpu_runner.core.task_report import TaskReport, TensorSpec
from gpu_runner.core.verdicts import RunState, Stage, State, Verdict
from gpu_runner.driver import run
from gpu_runner.evaluation.errors import ChildFailed, DeviceLost, InvalidTask
from gpu_runner.evolution.replay import replay
from gpu_runner.evolution.types import Operator, Request
from gpu_runner.journal import Journal
from gpu_runner.proposals.types import Draft
from gpu_runner.sources import Sources
from tests.evolution.making import evaluation, source

TASK = TaskSpec(name="softmax", source="class Model: ...")
MARK = re.compile(r"MARK = (\d+)")


@dataclass
class FakeDevice:
    kind: str = "cpu"
    name: str = "cpu"


@dataclass
class FakePool:
    """Answers by the mark in a source; `script` may raise or wait."""

    script: Callable[[int], Evaluation] = lambda mark: evaluation(len(str(mark)) + mark % 7 / 10)
    slots: int = 1
    device: FakeDevice = field(default_factory=FakeDevice)
    evaluated: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    invalid: str = ""

    def inspect(self, task: TaskSpec) -> TaskReport:
        if self.invalid:
            raise InvalidTask(self.invalid, 3)
        spec = TensorSpec(shape=(8,), dtype="float32")
        return TaskReport(inputs=(spec,), outputs=(spec,), probe=None)

    def evaluate(
        self, task: TaskSpec, source: str, *, on_stage: Callable[[Stage], None] | None = None
    ) -> Evaluation:
        mark = mark_of(source)
        with self.lock:
            self.evaluated.append(mark)
        if on_stage:
            on_stage(Stage.COMPILE)
        return self.script(mark)

    def call(self, entry: str, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        raise ChildFailed("no children here")


def mark_of(text: str) -> int:
    found = MARK.search(text)
    assert found
    return int(found.group(1))


def from_marks(origin: str, *marks: int) -> Callable[..., list[Draft]]:
    return lambda *_: [Draft(source=source(m), origin=origin, move=f"mark {m}") for m in marks]


def rewriting(
    pool: Any, task: TaskSpec, report: TaskReport, request: Request, rng: random.Random
) -> list[Draft]:
    parent = mark_of(request.parents[0].source)
    return [
        Draft(source=source(parent * 10 + n), origin="rewrite:fuse", move=f"fuse {n}")
        for n in (1, 2)
    ]


def tuning(
    pool: Any, task: TaskSpec, report: TaskReport, request: Request, rng: random.Random
) -> list[Draft]:
    mark = mark_of(request.parents[0].source)
    return [Draft(source=source(mark, block=2 ** rng.randint(4, 14)), origin="tune", move="block")]


SOURCES = Sources(
    initialisers={
        "compiler": from_marks("compiler:default", 1, 2, 3),
        "catalogue": from_marks("catalogue:row", 4, 5),
    },
    steps={Operator.REWRITE: rewriting, Operator.TUNE: tuning},
)
FIRST_ONLY = Sources(SOURCES.initialisers, steps={})


def spec(evaluations: int = 24, **more: Any) -> RunSpec:
    fields = {"task": TASK, "seed": 1, "budget": Budget(evaluations=evaluations)}
    return RunSpec(**(fields | more))


def test_a_run_ends_with_its_budget_and_a_best_found_by_a_move(tmp_path: Path) -> None:
    pool = FakePool()
    with Journal(tmp_path, spec()) as journal:
        result = run(journal, pool, sources=SOURCES)
        candidates = journal.candidates()
    assert result.state is RunState.FINISHED
    assert result.stop_reason == "budget: 24 evaluations"
    assert len(pool.evaluated) == result.spent["evaluations"] == len(candidates) == 24
    assert result.best is not None
    assert result.best.fitness == max(c.fitness for c in candidates)
    assert result.best.generation > 0
    assert result.counts == {"correct": 24}
    assert any(move.in_best and move.gain > 1 for move in result.moves)


def test_three_islands_receive_the_first_three_candidates(tmp_path: Path) -> None:
    with Journal(tmp_path, spec()) as journal:
        result = run(journal, FakePool(), sources=SOURCES)
        candidates = journal.candidates()
    assert [candidate.island for candidate in candidates[:3]] == [0, 1, 2]
    assert all(island.candidates >= 4 for island in result.islands)
    assert len({island.strategy for island in result.islands}) == 3


def test_duplicates_are_never_evaluated_twice(tmp_path: Path) -> None:
    twice = Sources(
        initialisers={
            "compiler": from_marks("compiler:default", 1, 1, 2),
            "catalogue": from_marks("catalogue:row", 1, 2),
        },
        steps={Operator.TUNE: from_marks("tune", 1, 2)},
    )
    pool = FakePool()
    with Journal(tmp_path, spec()) as journal:
        result = run(journal, pool, sources=twice)
    assert sorted(pool.evaluated) == [1, 2]
    assert result.stop_reason == course.NOTHING_LEFT


def test_generations_count_steps_from_a_first_candidate(tmp_path: Path) -> None:
    with Journal(tmp_path, spec()) as journal:
        run(journal, FakePool(), sources=SOURCES)
        by_id = {candidate.id: candidate for candidate in journal.candidates()}
    for child in by_id.values():
        parents = [by_id[parent].generation for parent in child.parents]
        assert child.generation == (max(parents) + 1 if parents else 0)
    assert max(candidate.generation for candidate in by_id.values()) >= 2


def test_the_users_kernel_is_the_first_candidate(tmp_path: Path) -> None:
    task = TASK.model_copy(update={"baseline_source": source(77)})
    with Journal(tmp_path, spec(task=task)) as journal:
        run(journal, FakePool(), sources=SOURCES)
        first = journal.candidates()[0]
    assert (mark_of(first.source), first.origin, first.island) == (77, "person:baseline", 0)


def test_without_initialisers_and_model_nothing_is_tried(tmp_path: Path) -> None:
    with Journal(tmp_path, spec(use_initialisers=False)) as journal:
        result = run(journal, FakePool(), sources=SOURCES)
        log = journal.notes("log")
    assert (result.best, result.counts, result.stop_reason) == (None, {}, course.NOTHING_LEFT)
    assert "no source has a first candidate" in log[0]["text"]


def test_an_unusable_task_fails_the_run_with_the_reason(tmp_path: Path) -> None:
    with Journal(tmp_path, spec()) as journal, pytest.raises(InvalidTask, match="no Model"):
        run(journal, FakePool(invalid="no Model"), sources=SOURCES)
    assert (
        '"state": "failed", "reason": "line 3: no Model"'
        in (tmp_path / "journal.jsonl").read_text()
    )


def test_an_initialiser_that_fails_leaves_the_others(tmp_path: Path) -> None:
    def broken(*_: Any) -> list[Draft]:
        raise ChildFailed("inductor has no Triton path for this operator")

    sources = Sources({"compiler": broken, "catalogue": from_marks("catalogue:row", 4)}, {})
    with Journal(tmp_path, spec()) as journal:
        result = run(journal, FakePool(), sources=sources)
        assert "no Triton path" in journal.notes("log")[0]["text"]
    assert result.counts == {"correct": 1}


def test_our_failures_queue_a_candidate_again_and_leave_its_fitness(tmp_path: Path) -> None:
    failures: Counter[int] = Counter()

    def script(mark: int) -> Evaluation:
        failures[mark] += 1
        if mark == 2 and failures[mark] < 3:
            raise DeviceLost("the device stopped answering")
        return evaluation(1.5)

    with Journal(tmp_path, spec()) as journal:
        result = run(journal, FakePool(script), sources=FIRST_ONLY)
        again = next(c for c in journal.candidates() if mark_of(c.source) == 2)
    assert failures[2] == 3
    assert again.fitness == 1.5
    assert result.spent["evaluations"] == 5


def test_a_candidate_is_abandoned_after_three_failures_of_ours(tmp_path: Path) -> None:
    def script(mark: int) -> Evaluation:
        if mark == 2:
            raise DeviceLost("the device stopped answering")
        return evaluation(1.5)

    pool = FakePool(script)
    with Journal(tmp_path, spec()) as journal:
        result = run(journal, pool, sources=FIRST_ONLY)
        lost = next(c for c in journal.candidates() if mark_of(c.source) == 2)
    assert pool.evaluated.count(2) == 3
    assert (lost.state, lost.evaluation) == (State.ABANDONED, None)
    assert result.counts == {"abandoned": 1, "correct": 4}


def test_failing_candidates_count_by_verdict_and_have_no_children(tmp_path: Path) -> None:
    def script(mark: int) -> Evaluation:
        if mark == 4:
            return evaluation(verdict=Verdict.INCORRECT, kind="values")
        return evaluation(1.0 + mark / 10)

    with Journal(tmp_path, spec()) as journal:
        result = run(journal, FakePool(script), sources=SOURCES)
        wrong = next(c for c in journal.candidates() if mark_of(c.source) == 4)
        assert not any(wrong.id in c.parents for c in journal.candidates())
    assert result.counts["incorrect"] == 1


def test_several_slots_evaluate_at_the_same_time(tmp_path: Path) -> None:
    together = threading.Barrier(3, timeout=20)
    first = set()

    def script(mark: int) -> Evaluation:
        if len(first) < 3:
            first.add(mark)
            together.wait()
        return evaluation(1.0 + mark / 100)

    with Journal(tmp_path, spec(6)) as journal:
        result = run(journal, FakePool(script, slots=3), sources=SOURCES)
    assert result.spent["evaluations"] == 6
    assert not together.broken


@pytest.mark.parametrize(
    ("wish", "state", "reason"),
    [
        (RunState.STOPPING, RunState.FINISHED, course.BY_PERSON),
        (RunState.PAUSING, RunState.PAUSED, "paused by a person"),
        (RunState.CANCELLED, RunState.CANCELLED, "cancelled by a person"),
    ],
)
def test_a_wish_is_honoured_after_the_current_evaluation(
    tmp_path: Path, wish: RunState, state: RunState, reason: str
) -> None:
    with Journal(tmp_path, spec()) as journal:

        def script(mark: int) -> Evaluation:
            if len(pool.evaluated) == 4:
                journal.want(wish)
            return evaluation(1.0 + mark / 100)

        pool = FakePool(script)
        result = run(journal, pool, sources=SOURCES)
        finished = [c for c in journal.candidates() if c.state is State.FINISHED]
    assert (result.state, result.stop_reason) == (state, reason)
    assert len(pool.evaluated) == len(finished) == 4
    assert result.best is not None


def test_a_paused_run_goes_on_where_it_was(tmp_path: Path) -> None:
    with Journal(tmp_path, spec()) as journal:
        pool = FakePool(lambda mark: journal.want(RunState.PAUSING) or evaluation(1 + mark / 100))
        run(journal, pool, sources=SOURCES)
    with Journal(tmp_path, spec()) as journal:
        later = FakePool()
        result = run(journal, later, sources=SOURCES)
    assert result.stop_reason == "budget: 24 evaluations"
    assert len(pool.evaluated) + len(later.evaluated) == 24


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


class KilledJournal(Journal):
    """Dies before or after its n-th write."""

    writes_left = 10**9
    torn = False

    def _write(self, record: str, content: dict[str, Any], **more: Any) -> None:
        type(self).writes_left -= 1
        if type(self).writes_left == 0:
            if self.torn:
                self._file.write(b'{"record": "candi')
            raise Killed
        super()._write(record, content, **more)


@pytest.mark.parametrize("torn", [False, True])
def test_a_killed_run_resumes_without_losing_or_repeating_a_finished_candidate(
    tmp_path: Path, torn: bool
) -> None:
    rng = random.Random(5)
    KilledJournal.torn = torn
    evaluated: list[int] = []
    result = None
    kills = 0
    while result is None:
        KilledJournal.writes_left = rng.randint(3, 40) if kills < 12 else 10**9
        pool = FakePool()
        try:
            with KilledJournal(tmp_path, spec()) as journal:
                result = run(journal, pool, sources=SOURCES)
        except Killed:
            kills += 1
        evaluated += pool.evaluated
    with Journal(tmp_path, spec()) as journal:
        candidates = journal.candidates()
        ends = [
            line
            for line in (tmp_path / "journal.jsonl").read_text().splitlines()
            if '"record": "finished"' in line
        ]
        answers = journal.notes("answer")
    assert kills == 12
    assert len(ends) == 24 == sum(c.state is State.FINISHED for c in candidates)
    assert len({c.source for c in candidates}) == len(candidates)
    told = [answer["candidate"] for answer in answers if answer["event"] == "told"]
    assert len(told) == len(set(told))
    assert result.best is not None
    assert result.best.fitness == max(c.fitness for c in candidates)


def test_the_seed_replays_a_run_exactly(tmp_path: Path) -> None:
    def play(name: str, seed: int) -> list[tuple[Any, ...]]:
        with Journal(tmp_path / name, spec(seed=seed)) as journal:
            run(journal, FakePool(), sources=SOURCES)
            return [(c.source, c.island, c.parents, c.origin) for c in journal.candidates()]

    assert play("a", 1) == play("b", 1)
    assert play("a2", 2) != play("b", 1)


def test_the_answers_replay_the_searchs_state(tmp_path: Path) -> None:
    with Journal(tmp_path, spec()) as journal:
        result = run(journal, FakePool(slots=2), sources=SOURCES)
        by_id = {c.id: c for c in journal.candidates()}
        state = replay(3, by_id, journal.notes("answer"))
    assert state.best is not None
    assert result.best is not None
    assert (state.best.id, state.told) == (result.best.id, 24)
    assert not state.pending


def test_a_lost_lease_ends_the_run_without_another_write(tmp_path: Path) -> None:
    class Lost(Journal):
        def finish(self, candidate_id: int, evaluation: Evaluation) -> None:
            raise LeaseLost("another runner has the run")

    with Lost(tmp_path, spec()) as journal, pytest.raises(LeaseLost):
        run(journal, FakePool(), sources=SOURCES)
    assert '"state": "finished"' not in (tmp_path / "journal.jsonl").read_text()


def test_measured_times_are_taken_once_more_before_they_are_published(tmp_path: Path) -> None:
    again = Counter[int]()

    def script(mark: int) -> Evaluation:
        again[mark] += 1
        lucky = {1: 3.0, 2: 1.5}.get(mark, 1.0)
        honest = 2.0 if again[mark] > 1 else lucky
        return evaluation(honest, interval=(honest * 0.99, honest * 1.01))

    sources = Sources({"compiler": from_marks("compiler:default", 1, 2)}, {})
    with Journal(tmp_path, spec()) as journal:
        result = run(journal, FakePool(script), sources=sources)
    assert result.best is not None
    assert (mark_of(result.best.source), result.best.fitness) == (1, 2.0)
    assert "2.00 times as fast as PyTorch eager" in (tmp_path / "best.py").read_text()


def test_wall_time_ends_a_run(tmp_path: Path) -> None:
    now = [0.0]

    def script(mark: int) -> Evaluation:
        now[0] += 10
        return evaluation(1.0)

    limited = RunSpec(task=TASK, budget=Budget(evaluations=None, wall_s=35))
    with Journal(tmp_path, limited) as journal:
        result = run(journal, FakePool(script), sources=SOURCES, clock=lambda: now[0])
        left = [c for c in journal.candidates() if c.state is State.ABANDONED]
    assert result.stop_reason == "budget: 35 seconds"
    assert result.spent["wall_s"] == 40
    assert result.counts["correct"] == 4
    assert len(left) == 1


def test_people_inject_kernels_that_go_first(tmp_path: Path) -> None:
    class Injecting(Journal):
        asked = 0

        def has_injected(self) -> bool:
            return True

        def injected(self) -> list[Any]:
            self.asked += 1
            if self.asked != 2:
                return []
            return [Proposal(source=source(99), island=7, origin="person", move="mine")]

    with Injecting(tmp_path, spec(6)) as journal:
        run(journal, (pool := FakePool()), sources=SOURCES)
        mine = next(c for c in journal.candidates() if mark_of(c.source) == 99)
    assert mine.island == 2
    assert pool.evaluated.index(99) <= 2
    assert isinstance(mine, Candidate)
