"""A sitting over a scripted pool: several tasks at once, failures of ours and of tasks, stops, kills and what is kept."""

import json
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_runner.bench import sitting
from gpu_runner.bench.report import Report
from gpu_runner.bench.results import Results
from gpu_runner.bench.rows import Outcome, place, sitting_of
from gpu_runner.bench.running import bench, environment_of
from gpu_runner.bench.suite import read_suite
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Precision, Stage, Track, Verdict
from gpu_runner.evaluation.devices import DeviceInfo, Gpu, fingerprint
from gpu_runner.evaluation.errors import ChildFailed, DeviceLost
from gpu_runner.journal import read_records
from gpu_runner.sources import Sources
from tests.bench.making import SETTINGS, WITHOUT_GPU, suite
from tests.evolution import making
from tests.test_driver import FIRST_ONLY, SOURCES, FakePool, from_marks, mark_of

ONE = Sources(initialisers={"compiler": from_marks("compiler:default", 1)}, steps={})
SHORT = SETTINGS.model_copy(update={"evaluations": 4, "islands": 2})


def evaluation(speedup: float | None = None, **more: Any) -> Evaluation:
    return making.evaluation(speedup, **({"environment": WITHOUT_GPU} | more))


class Pool(FakePool):
    """Answers for any task, and remembers which were evaluated side by side."""

    def __init__(
        self,
        script: Callable[[TaskSpec, int], Evaluation] = lambda task, mark: evaluation(1.0 + mark),
        slots: int = 1,
        invalid: Callable[[TaskSpec], str] = lambda task: "",
    ) -> None:
        super().__init__(slots=slots)
        self._by_task = script
        self._is_invalid = invalid
        self.running: Counter[str] = Counter()
        self.seen: set[frozenset[str]] = set()
        self.most_of_one = 0

    def inspect(self, task: TaskSpec) -> TaskReport:
        self.invalid = self._is_invalid(task)
        return super().inspect(task)

    def evaluate(
        self, task: TaskSpec, source: str, *, on_stage: Callable[[Stage], None] | None = None
    ) -> Evaluation:
        with self.lock:
            self.running[task.name] += 1
            self.seen.add(frozenset(self.running))
            self.most_of_one = max(self.most_of_one, *self.running.values())
            self.evaluated.append(mark_of(source))
        try:
            return self._by_task(task, mark_of(source))
        finally:
            with self.lock:
                self.running -= Counter([task.name])


def sit(
    folder: Path,
    pool: Pool,
    *,
    at_once: int = 1,
    on_stop: Callable[[Callable[[], None]], None] = lambda stop: None,
    **more: Any,
) -> tuple[Report, str]:
    with Results(folder / "out", SHORT) as results:
        return bench(
            results,
            read_suite(folder / "suite"),
            [(Track.OWN_KERNELS, Precision.REFERENCE)],
            pool,
            here=WITHOUT_GPU,
            at_once=at_once,
            on_stop=on_stop,
            sources=more.pop("sources", SOURCES),
            quiet=True,
        )


def outcomes(report: Report) -> dict[str, Outcome]:
    return {row.task: row.outcome for row in report.rows}


def test_every_task_gets_a_row_and_the_report_is_written(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a", "level1/b", "level2/c")
    report, trouble = sit(tmp_path, Pool())
    assert trouble == ""
    assert list(outcomes(report).values()) == [Outcome.DONE] * 3
    assert {row.evaluations for row in report.rows} == {4}
    best = report.rows[0].best
    assert best is not None
    assert best.figures.over_eager is not None
    assert best.figures.over_eager.ratio == report.rows[0].curve[-1][1]
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written == report.model_dump(mode="json")
    assert "level2/c" in (tmp_path / "out" / "report.html").read_text()


def test_two_tasks_at_once_share_the_pool_and_none_takes_more_than_its_part(tmp_path: Path) -> None:
    suite(tmp_path / "suite", *(f"level1/{name}" for name in "abcde"))

    def slow(task: TaskSpec, mark: int) -> Evaluation:
        time.sleep(0.03)
        return evaluation(1.0 + mark)

    pool = Pool(slow, slots=2)
    report, _ = sit(tmp_path, pool, at_once=2)
    assert set(outcomes(report).values()) == {Outcome.DONE}
    assert max(map(len, pool.seen)) == 2
    assert pool.most_of_one == 1


def test_one_task_alone_has_all_slots(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a")
    together = threading.Barrier(2, timeout=20)

    def meet(task: TaskSpec, mark: int) -> Evaluation:
        if mark in (1, 4):
            together.wait()
        return evaluation(1.0 + mark)

    pool = Pool(meet, slots=2)
    sit(tmp_path, pool, sources=FIRST_ONLY)
    assert pool.most_of_one == 2


def test_an_unusable_task_is_a_row_that_says_why_and_no_stop(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a", "level1/b", "level1/c")
    (tmp_path / "suite" / "level1" / "a.py").write_text("def x(:")
    pool = Pool(invalid=lambda task: "no Model" if task.name == "level1/b" else "")
    report, _ = sit(tmp_path, pool)
    told = {row.task: (row.outcome, row.reason) for row in report.rows}
    assert told["level1/a"] == (Outcome.INVALID, "line 1: invalid syntax")
    assert told["level1/b"] == (Outcome.INVALID, "line 3: no Model")
    assert told["level1/c"][0] is Outcome.DONE
    (section,) = report.sections
    assert (section.groups[0].tasks, section.groups[0].correct, section.groups[0].invalid) == (
        3,
        1,
        2,
    )
    again = Pool()
    assert outcomes(sit(tmp_path, again)[0]) == outcomes(report)
    assert again.evaluated == []


def test_a_task_without_a_correct_kernel_is_a_failure_that_counts(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a")
    wrong = Pool(lambda task, mark: evaluation(verdict=Verdict.INCORRECT, kind="values"))
    report, _ = sit(tmp_path, wrong, sources=FIRST_ONLY)
    (row,) = report.rows
    assert (row.outcome, row.best, row.counts) == (Outcome.DONE, None, {"incorrect": 2})
    assert report.sections[0].groups[0].without_kernel == 1


def test_where_nothing_was_tried_the_row_says_why(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a")

    def no_path(*_: Any) -> Any:
        raise ChildFailed("inductor has no path for this")

    sources = Sources(initialisers={"compiler": no_path}, steps={})
    (row,) = sit(tmp_path, Pool(), sources=sources)[0].rows
    assert (row.outcome, row.counts) == (Outcome.DONE, {})
    assert row.reason.startswith("the compiler initialiser failed: inductor has no path for this; ")
    assert "no source has a first candidate" in row.reason


def test_a_failure_of_ours_is_no_result_and_is_tried_again(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a", "level1/b")
    is_broken = True

    def lost(task: TaskSpec, mark: int) -> Evaluation:
        if is_broken and task.name == "level1/a":
            raise DeviceLost("the GPU fell off the bus")
        return evaluation(1.0 + mark)

    report, trouble = sit(tmp_path, Pool(lost))
    assert (outcomes(report), trouble) == (
        {"level1/a": Outcome.FAILED, "level1/b": Outcome.DONE},
        "",
    )
    assert "the GPU fell off the bus" in report.rows[0].reason
    is_broken = False
    assert set(outcomes(sit(tmp_path, Pool(lost))[0]).values()) == {Outcome.DONE}


def test_where_nothing_works_the_sitting_gives_up_and_leaves_the_rest(tmp_path: Path) -> None:
    suite(tmp_path / "suite", *(f"level1/{name}" for name in "abcde"))

    def lost(task: TaskSpec, mark: int) -> Evaluation:
        raise DeviceLost("the GPU fell off the bus")

    report, trouble = sit(tmp_path, Pool(lost))
    assert "3 tasks in a row could not be run" in trouble
    assert "the GPU fell off the bus" in trouble
    assert [row.outcome.value for row in report.rows] == ["failed"] * 3 + ["waiting"] * 2


def test_a_stop_puts_tasks_down_and_the_next_sitting_goes_on_with_them(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a", "level1/b", "level1/c")
    stops: list[Callable[[], None]] = []
    pool = Pool()

    def until_third(task: TaskSpec, mark: int) -> Evaluation:
        if len(pool.evaluated) == 6:
            stops[0]()
        return evaluation(1.0 + mark)

    pool._by_task = until_third
    report, _ = sit(tmp_path, pool, on_stop=stops.append)
    assert list(outcomes(report).values()) == [Outcome.DONE, Outcome.WAITING, Outcome.WAITING]
    assert len(pool.evaluated) == 6
    rest = Pool()
    report, _ = sit(tmp_path, rest)
    assert set(outcomes(report).values()) == {Outcome.DONE}
    assert len(rest.evaluated) == 6
    assert [row.evaluations for row in report.rows] == [4, 4, 4]


def test_a_candidate_that_the_runner_died_of_ten_times_is_no_result(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a")
    stops: list[Callable[[], None]] = []
    pool = Pool()
    pool._by_task = lambda task, mark: (stops[0](), evaluation(2.0))[1]  # type: ignore[func-returns-value]
    sit(tmp_path, pool, on_stop=stops.append, sources=ONE)
    journal = tmp_path / "out" / "own_kernels-reference" / "level1" / "a" / "journal.jsonl"
    lines = journal.read_text().splitlines()
    begun = next(n for n, line in enumerate(lines) if '"record": "changed"' in line)
    note = {"record": "note", "kind": "interruption", "payload": {"candidate_id": 1}}
    died = [json.dumps(note)] * 10
    journal.write_text("\n".join([*lines[: begun + 1], *died]) + "\n")
    (row,) = sit(tmp_path, Pool(), sources=ONE)[0].rows
    assert (row.outcome, journal.exists()) == (Outcome.FAILED, False)
    assert "no candidate could be evaluated" in row.reason


def test_a_stop_while_a_task_is_begun_puts_that_one_down_too(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a", "level1/b")
    stops: list[Callable[[], None]] = []
    pool = Pool()

    class Stopped(sitting.Journal):
        def __init__(self, *given: Any) -> None:
            stops[0]()
            super().__init__(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sitting, "Journal", Stopped)
        report, _ = sit(tmp_path, pool, on_stop=stops.append)
    assert set(outcomes(report).values()) == {Outcome.WAITING}
    assert pool.evaluated == []


def test_a_measured_best_is_timed_again_and_both_figures_are_kept(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a")
    again: list[int] = []

    def lucky(task: TaskSpec, mark: int) -> Evaluation:
        again.append(mark)
        speed = 2.0 if again.count(mark) == 1 else 1.5
        where = {"gpu": "NVIDIA H200", "target": "h200", "probe": {"n": 3}}
        held = {"held_s": 0.25}
        return evaluation(
            speed, interval=(speed - 0.1, speed + 0.1), environment=where, profile=held
        )

    report, _ = sit(tmp_path, Pool(lucky), sources=FIRST_ONLY)
    (row,) = report.rows
    assert row.best is not None
    assert row.best.selected is not None
    published, selected = row.best.figures.over_eager, row.best.selected.over_eager
    assert (published and published.ratio, selected and selected.ratio) == (1.5, 2.0)
    assert row.environment == {"gpu": "NVIDIA H200"}
    # Two candidates and the best once more.
    assert (row.evaluations, row.lock_s) == (2, 0.75)


@pytest.mark.parametrize("text", ["", '{"task": "level1/a", "of": "another version"}'])
def test_a_row_that_cannot_be_read_is_made_again_from_the_journal(
    tmp_path: Path, text: str
) -> None:
    suite(tmp_path / "suite", "level1/a")
    report, _ = sit(tmp_path, Pool())
    (tmp_path / "out" / "own_kernels-reference" / "level1" / "a" / "row.json").write_text(text)
    pool = Pool()
    assert sit(tmp_path, pool)[0].rows == report.rows
    assert pool.evaluated == []


def test_a_run_that_ended_before_its_row_was_written_is_not_run_again(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a")
    report, _ = sit(tmp_path, Pool())
    row_file = tmp_path / "out" / "own_kernels-reference" / "level1" / "a" / "row.json"
    row_file.unlink()
    pool = Pool()
    again, _ = sit(tmp_path, pool)
    assert pool.evaluated == []
    assert again.rows == report.rows


def test_a_half_finished_run_of_another_kind_of_device_is_not_gone_on_with(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a")
    stops: list[Callable[[], None]] = []
    pool = Pool(slots=1)
    pool._by_task = lambda task, mark: (stops[0](), evaluation(2.0))[1]  # type: ignore[func-returns-value]
    pool.device.kind = "cuda"
    sit(tmp_path, pool, on_stop=stops.append)
    (row,) = sit(tmp_path, Pool())[0].rows
    assert row.outcome is Outcome.FAILED
    assert "holds a run with device cuda, not cpu" in row.reason


def test_the_environment_of_a_sitting_has_all_of_a_devices_fingerprint() -> None:
    gpu = Gpu(0, "NVIDIA H200", driver="580", memory="143771 MiB")
    for found in (fingerprint(None, "bwrap"), fingerprint(gpu, "bwrap")):
        assert place({**found, "probe": {"n": 3}, "seconds": 1.5}) == found
    device = DeviceInfo("cpu", "cpu", fingerprint=fingerprint(None, "bwrap"))
    here = environment_of(device, "h200")
    assert here == fingerprint(None, "bwrap") | {"target": "h200"}
    assert sitting_of(here) == sitting_of(dict(reversed(here.items())))


def test_a_run_brought_from_another_machine_goes_on_and_says_so(tmp_path: Path) -> None:
    suite(tmp_path / "suite", "level1/a", "level1/b")
    stops: list[Callable[[], None]] = []

    def on(driver: str, stop_at: int = 0) -> Pool:
        pool = Pool()

        def measured(task: TaskSpec, mark: int) -> Evaluation:
            if len(pool.evaluated) == stop_at:
                stops[0]()
            where = {"gpu": "NVIDIA H200", "driver": driver}
            return evaluation(1.0 + mark, interval=(0.9 + mark, 1.1 + mark), environment=where)

        pool._by_task = measured
        pool.device.kind = "cuda"
        return pool

    # Five evaluations of the first task, the best once more included, and one of the second.
    sit(tmp_path, on("580", stop_at=6), on_stop=stops.append)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for part in ("suite", "out"):
        (tmp_path / part).rename(moved / part)
    report, _ = sit(moved, on("590"))
    old, new = (row.sitting for row in report.rows)
    assert [row.searched_in for row in report.rows] == [(old,), (old, new)]
    assert [row.environment["driver"] for row in report.rows] == ["580", "590"]
    # Each alone, and both together, since the GPU is of one model.
    assert report.sections[0].sittings == tuple(sorted((old, new)))
    page = (moved / "out" / "report.html").read_text()
    assert f"searched in the sittings {old}, {new}, timed for publication in {new}" in page


def sit_slowly(folder: Path) -> None:
    def slow(task: TaskSpec, mark: int) -> Evaluation:
        time.sleep(0.1)
        return evaluation(1.0 + mark)

    sit(folder, Pool(slow, slots=2), at_once=2)


def evaluated(folder: Path) -> Counter[tuple[str, int]]:
    """How often each candidate of each task was finished."""
    return Counter(
        (path.parent.name, record["candidate_id"])
        for path in folder.glob("out/*/*/*/journal.jsonl")
        for record in read_records(path)
        if record["record"] == "finished"
    )


def test_a_suite_killed_and_gone_on_with_evaluates_every_candidate_once(tmp_path: Path) -> None:
    suite(tmp_path / "suite", *(f"level1/{name}" for name in "abcdef"))
    process = multiprocessing.get_context("fork").Process(target=sit_slowly, args=(tmp_path,))
    process.start()
    while len(evaluated(tmp_path)) < 9:
        assert process.is_alive()
        time.sleep(0.02)
    process.kill()
    process.join()
    before = evaluated(tmp_path)
    assert len(before) < 24
    report, _ = sit(tmp_path, Pool())
    assert set(outcomes(report).values()) == {Outcome.DONE}
    after = evaluated(tmp_path)
    assert after >= before
    assert (len(after), set(after.values())) == (24, {1})
