"""The runner's process with a scripted pool: what it claims, keeps and gives back, and what a kill costs."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.db.models import F
from django.utils import timezone

from evolution_app import services
from evolution_app.models import Candidate, Run, RunEvent, Runner, User
from gpu_runner.core.task import Budget, TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import RunState, State
from gpu_runner.driver import Driven, Driver
from gpu_runner.evaluation.errors import InvalidTask, RunnerError
from gpu_runner.settings import InvalidSetting, WorkerSettings
from gpu_runner.store import Store
from gpu_runner.worker import Begin, Beginning, ClosablePool, Worker
from tests.web import samples
from tests.web.scripted import ScriptedPool, begin

pytestmark = pytest.mark.django_db(transaction=True)

TOO_LATE_S = 60.0
PROJECT = Path(__file__).resolve().parents[1]


def wait_until(claim: Callable[[], bool], timeout_s: float = TOO_LATE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


class Hands:
    """A worker in a thread of the test."""

    def __init__(self) -> None:
        self.workers: list[tuple[Worker, threading.Thread]] = []

    def start(
        self,
        begin: Begin = begin,
        open_pool: Callable[[], ClosablePool] = ScriptedPool,
        **settings: Any,
    ) -> Worker:
        chosen = WorkerSettings(idle_s=0.05, grace_s=600, **settings)
        worker = Worker(chosen, open_pool, begin)

        def run() -> None:
            try:
                worker.run()
            finally:
                connections.close_all()

        thread = threading.Thread(target=run)
        thread.start()
        self.workers.append((worker, thread))
        return worker

    def end(self) -> None:
        for worker, _ in self.workers:
            worker.leave()
        for _, thread in self.workers:
            thread.join(TOO_LATE_S)
            assert not thread.is_alive()


@pytest.fixture
def hands() -> Iterator[Hands]:
    hands = Hands()
    yield hands
    hands.end()


def test_a_queued_run_is_worked_on_to_its_end(run: Run, hands: Hands) -> None:
    hands.start()
    wait_until(lambda: Run.objects.get().is_over)
    run.refresh_from_db()
    assert (run.state, run.runner, run.device) == (RunState.FINISHED, None, "scripted")
    assert run.candidates.correct().count() == 24
    assert run.task.__class__.objects.get().report is not None


@pytest.mark.rerun
def test_runners_side_by_side_share_the_queue(task: Any, owner: User, hands: Hands) -> None:
    few = Budget(evaluations=5)
    runs = [services.start_run(task=task, by=owner, budget=few) for _ in range(6)]
    for _ in range(3):
        hands.start()
    wait_until(lambda: not Run.objects.not_over().exists())
    for run in runs:
        numbers = list(run.candidates.values_list("number", flat=True))
        assert numbers == list(range(1, 6))
        run.refresh_from_db()
        assert run.fence == 1


def test_one_runner_works_on_many_runs_at_once_and_shares_its_slot(
    task: Any, owner: User, hands: Hands
) -> None:
    for _ in range(4):
        services.start_run(task=task, by=owner, budget=Budget(evaluations=200))
    hands.start(open_pool=lambda: ScriptedPool(pause_s=0.02))
    wait_until(lambda: Candidate.objects.correct().values("run").distinct().count() == 4)
    assert Run.objects.filter(state=RunState.RUNNING).count() == 4
    assert Runner.objects.count() == 1


def test_what_befalls_one_run_does_not_disturb_the_others(
    task: Any, owner: User, hands: Hands
) -> None:
    cancelled, taken, left = (
        services.start_run(task=task, by=owner, budget=Budget(evaluations=count))
        for count in (500, 500, 12)
    )
    hands.start(open_pool=lambda: ScriptedPool(pause_s=0.01))
    wait_until(lambda: Candidate.objects.correct().values("run").distinct().count() == 3)
    services.request_cancel(run=cancelled, by=owner)
    other = Runner.objects.get()
    other.pk = None
    other.save()
    Run.objects.filter(pk=taken.pk).update(runner=other, fence=F("fence") + 1)
    made = taken.candidates.count()
    wait_until(lambda: Run.objects.get(pk=left.pk).is_over)
    wait_until(lambda: Run.objects.get(pk=cancelled.pk).is_over)
    assert Run.objects.get(pk=cancelled.pk).state == RunState.CANCELLED
    assert left.candidates.correct().count() == 12
    assert Run.objects.get(pk=taken.pk).runner_id == other.pk
    assert taken.candidates.count() == made


@pytest.mark.rerun
def test_a_runner_that_leaves_gives_its_run_back(run: Run, hands: Hands) -> None:
    hands.start(open_pool=lambda: ScriptedPool(pause_s=0.1))
    wait_until(lambda: Candidate.objects.correct().count() >= 2)
    hands.end()
    run.refresh_from_db()
    assert (run.state, run.runner, run.lost_claims) == (RunState.QUEUED, None, 0)
    assert Runner.objects.get().stopped_at is not None


def test_people_stop_a_run_in_progress(run: Run, owner: User, hands: Hands) -> None:
    hands.start(open_pool=lambda: ScriptedPool(pause_s=0.1))
    wait_until(lambda: Candidate.objects.correct().count() >= 2)
    services.request_stop(run=run, by=owner)
    wait_until(lambda: Run.objects.get().is_over)
    assert Run.objects.get().state == RunState.FINISHED
    assert Candidate.objects.count() < 24


def test_a_failure_of_ours_gives_the_run_back_and_the_worker_lives(run: Run, hands: Hands) -> None:
    failures = [RuntimeError("a bug"), RunnerError("the device was lost")]

    def fail(driver: Driver, claim: Store) -> Driven:
        if failures:
            raise failures.pop()
        return begin(driver, claim)

    hands.start(fail)
    wait_until(lambda: Run.objects.get().is_over)
    run.refresh_from_db()
    assert (run.state, run.fence) == (RunState.FINISHED, 3)


def test_a_run_that_always_breaks_fails_with_the_reason(run: Run, hands: Hands) -> None:
    class Broken(ScriptedPool):
        def inspect(self, task: TaskSpec) -> TaskReport:
            raise RunnerError("the disk is full")

    hands.start(open_pool=Broken)
    wait_until(lambda: Run.objects.get().is_over)
    run.refresh_from_db()
    assert (run.state, run.stop_reason) == (RunState.FAILED, "the disk is full")


def test_an_unusable_task_does_not_disturb_the_worker(run: Run, owner: User, hands: Hands) -> None:
    class Picky(ScriptedPool):
        asked = 0

        def inspect(self, task: TaskSpec) -> TaskReport:
            self.asked += 1
            if self.asked == 1:
                raise InvalidTask("no such module", 3)
            return super().inspect(task)

    second = samples.run(run.task, owner)
    hands.start(open_pool=Picky, runs=1)
    wait_until(lambda: not Run.objects.not_over().exists())
    run.refresh_from_db()
    second.refresh_from_db()
    assert (run.state, run.stop_reason) == (RunState.FAILED, "line 3: no such module")
    assert second.state == RunState.FINISHED


def test_a_model_that_is_not_configured_fails_the_run_with_the_reason(
    task: Any, owner: User, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FOUNDRY_MODELS", raising=False)
    run = services.start_run(task=task, by=owner, model="gpt-nowhere")
    hands.start(Beginning())
    wait_until(lambda: Run.objects.get().is_over)
    run.refresh_from_db()
    assert run.state == RunState.FAILED
    assert "gpt-nowhere" in run.stop_reason


def test_a_pool_that_cannot_be_opened_is_told_on_the_pages(run: Run, hands: Hands) -> None:
    def no_pool() -> ClosablePool:
        raise RunnerError("bubblewrap is missing")

    hands.start(open_pool=no_pool)
    wait_until(lambda: Runner.objects.exclude(problem="").exists())
    runner = Runner.objects.get()
    assert (runner.problem, runner.is_alive) == ("bubblewrap is missing", True)
    assert Run.objects.get().state == RunState.QUEUED


@pytest.mark.rerun
def test_a_run_without_a_living_runner_is_taken_over(run: Run, hands: Hands) -> None:
    lost = samples.claim(run)
    lost.add(samples.proposal(1))
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    hands.start()
    wait_until(lambda: Run.objects.get().is_over)
    assert Candidate.objects.filter(number=1).get().state == State.FINISHED


class FullDisk:
    """What the database answers to writes while there is no room; wraps a connection's `execute`."""

    def __init__(self, writes: int) -> None:
        self.writes = writes

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if self.writes and sql.startswith(("INSERT", "UPDATE")):
            self.writes -= 1
            raise OperationalError("database or disk is full")
        return execute(sql, params, many, context)


def test_a_worker_outlives_a_full_disk(
    run: Run, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_runner.worker.RETRY_S", 0.05)
    disk = FullDisk(2)

    def fill_the_disk(driver: Driver, claim: Store) -> Driven:
        if disk.writes:
            connection.execute_wrappers.append(disk)
        return begin(driver, claim)

    hands.start(fill_the_disk)
    # Neither its candidate nor that it gives the run back could be written: the lease has to run out.
    wait_until(lambda: disk.writes == 0)
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    wait_until(lambda: Run.objects.get().is_over)
    assert Run.objects.get().state == RunState.FINISHED
    assert list(Run.objects.get().candidates.values_list("number", flat=True)) == [*range(1, 25)]
    assert Runner.objects.count() == 1


def test_a_worker_that_cannot_register_waits_for_room(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_runner.worker.RETRY_S", 0.05)
    disk = FullDisk(2)

    class Last(ScriptedPool):
        def inspect(self, task: TaskSpec) -> TaskReport:
            worker.leave()
            return super().inspect(task)

    worker = Worker(WorkerSettings(idle_s=0.05, grace_s=600), Last, begin)
    with connection.execute_wrapper(disk):
        worker.run()
    assert disk.writes == 0
    assert Run.objects.get().state == RunState.QUEUED


StartWorker = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start_worker() -> Iterator[StartWorker]:
    """Starts real worker processes on the database of this test, with the scripted pool; none outlives the test."""
    started: list[subprocess.Popen[bytes]] = []
    name = connection.settings_dict["NAME"]
    is_file = connection.vendor == "sqlite"
    url = f"sqlite:///{name}" if is_file else f"postgres://postgres@127.0.0.1:5432/{name}"

    def start(**options: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(PROJECT), **options}
        command = [sys.executable, "-m", "tests.web.scripted"]
        started.append(subprocess.Popen(command, env=environment, cwd=PROJECT))
        return started[-1]

    yield start
    for worker in started:
        worker.kill()
        worker.wait()


@pytest.mark.rerun
def test_killed_at_ten_random_moments_it_loses_and_doubles_nothing(
    run: Run, start_worker: StartWorker
) -> None:
    finished: dict[int, int] = {}
    for turn in range(10):
        worker = start_worker()
        before = Candidate.objects.correct().count()
        # Somewhere in the first moments of its work, or of its start.
        wait_until(
            lambda before=before, turn=turn: (
                Candidate.objects.correct().count() >= min(before + turn % 3, 24)
            )
        )
        time.sleep(0.013 * turn)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        now = dict(Candidate.objects.correct().values_list("number", "evaluations__id"))
        assert finished.items() <= now.items()
        finished = now
        if Run.objects.get().is_over:
            break
    started = Runner.objects.count()
    worker = start_worker()
    # Registered: from then on it knows what to do with the signal, even where nothing was left to do.
    wait_until(lambda: Runner.objects.count() > started)
    wait_until(lambda: Run.objects.get().is_over)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(TOO_LATE_S) == 0

    candidates = Candidate.objects.order_by("number")
    assert [candidate.number for candidate in candidates] == list(range(1, 25))
    assert all(candidate.evaluations.count() == 1 for candidate in candidates)
    assert len({candidate.source_id for candidate in candidates}) == 24
    seqs = list(RunEvent.objects.after(run.pk, 0).values_list("seq", flat=True))
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_runner_that_cannot_put_its_work_down_in_time_gives_the_run_back(
    run: Run, start_worker: StartWorker
) -> None:
    worker = start_worker(SCRIPTED_PAUSE_S="600", SCRIPTED_GRACE_S="0.5")
    wait_until(lambda: Candidate.objects.filter(state=State.EVALUATING).exists())
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(TOO_LATE_S) == 143
    run.refresh_from_db()
    assert (run.state, run.runner, run.lost_claims) == (RunState.QUEUED, None, 0)
    assert Runner.objects.get().stopped_at is not None


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"FOUNDRY_DEVICE": "tpu"}, "auto, cpu, cuda"),
        ({"FOUNDRY_SLOTS": "0"}, "1 to 64"),
        ({"FOUNDRY_SLOTS": "two"}, "1 to 64"),
        ({"FOUNDRY_SANDBOX": "docker"}, "bwrap or none"),
    ],
)
def test_settings_that_mean_nothing_are_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        WorkerSettings.from_environment(environment)


def test_the_report_is_of_the_pool(run: Run) -> None:
    assert isinstance(ScriptedPool().inspect(run.task.spec()), TaskReport)
