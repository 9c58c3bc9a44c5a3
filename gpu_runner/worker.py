"""The runner's process: claims runs and works on them until it is told to go.

The main thread works; a second one keeps the heartbeat and the lease. SIGTERM and SIGINT let the candidate in
progress go back to the queue; a kill loses at most that candidate's evaluation, and whoever claims the run next
goes on from what is stored.
"""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.ledger import LeaseLost
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import RunState, Stage
from gpu_runner.evaluation.errors import InvalidTask, RunnerError
from gpu_runner.settings import InvalidSetting, WorkerSettings

if TYPE_CHECKING:
    from django.db import DatabaseError

    from gpu_runner.store import Store

BEAT_S = 3.0
RETRY_S = 15.0


class ClosablePool(Protocol):
    """A pool as the worker needs it; see `evaluation.pool`."""

    @property
    def slots(self) -> int: ...

    @property
    def device(self) -> Any: ...

    def inspect(self, task: TaskSpec) -> TaskReport: ...

    def evaluate(
        self, task: TaskSpec, source: str, *, on_stage: Callable[[Stage], None] | None = None
    ) -> Evaluation: ...

    def call(
        self,
        entry: str,
        request: dict[str, Any],
        *,
        nursery: str = "compile",
        timeout_s: float = 60,
    ) -> dict[str, Any]: ...

    def close(self) -> None: ...


class Reporting:
    """A pool that also keeps what it finds out about the task, so that the pages can show it."""

    def __init__(self, pool: ClosablePool, claim: "Store") -> None:
        self._pool = pool
        self._claim = claim
        self.call = pool.call
        self.evaluate = pool.evaluate

    @property
    def slots(self) -> int:
        return self._pool.slots

    @property
    def device(self) -> Any:
        return self._pool.device

    def inspect(self, task: TaskSpec) -> TaskReport:
        report = self._pool.inspect(task)
        self._claim.report(report)
        return report


class Worker:
    """One runner: a row of its own, one pool, one run at a time.

    Args:
        open_pool: opens the evaluation pool; raises RunnerError where that cannot be.
        work_on: works on a claimed run until it is over or rests.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        open_pool: Callable[[], ClosablePool],
        work_on: "Callable[[Store, ClosablePool], None]",
    ) -> None:
        self._settings = settings
        self._open_pool = open_pool
        self._work_on = work_on
        self._leaving = threading.Event()
        self._gone = threading.Event()
        self._deadline = threading.Timer(settings.grace_s, self._leave_now)
        self._deadline.daemon = True
        self._claim: Store | None = None
        self._pool: ClosablePool | None = None

    def leave(self) -> None:
        """Put the work down and end. Not to be called in a signal handler: it takes locks that the main thread may hold."""
        if self._leaving.is_set():
            return
        self._leaving.set()
        if self._claim is not None:
            self._claim.rest()
        self._deadline.start()

    def _leave_now(self) -> None:
        """The candidate in progress takes too long: its children die with this process, its run goes back to the queue."""
        from django.db import DatabaseError

        from gpu_runner import store

        try:
            if self._claim is not None:
                self._claim.set_state(RunState.PAUSED, "the runner was told to go")
            store.say_goodbye(self._runner)
        except (LeaseLost, DatabaseError) as error:
            log().warning("left without a word", error=str(error))
        if self._pool is not None:
            self._pool.close()
        os._exit(143)

    def run(self) -> None:
        from django.db import DatabaseError

        from gpu_runner import store

        if not self._register():
            return
        heart = threading.Thread(target=self._keep_beating, name="heartbeat", daemon=True)
        heart.start()
        try:
            while not self._leaving.is_set():
                self._turn()
        finally:
            self._gone.set()
            heart.join(timeout=2 * BEAT_S)
            try:
                store.say_goodbye(self._runner)
            except DatabaseError as error:
                log().warning("left without a word", error=str(error))
            if self._pool is not None:
                self._pool.close()
            self._deadline.cancel()

    def _register(self) -> bool:
        """Have a row, as soon as the database takes one; False if told to go before."""
        from django.db import DatabaseError

        from gpu_runner import store

        while not self._leaving.is_set():
            try:
                self._runner = store.register(
                    sandbox=self._settings.sandbox, slots=self._settings.slots
                )
            except DatabaseError as error:
                self._wait_for_database(error)
            else:
                return True
        return False

    def _wait_for_database(self, error: "DatabaseError") -> None:
        from django.db import connection

        from foundry_web.database import explained

        log().error("cannot work", problem=explained(error))
        connection.close()
        self._leaving.wait(RETRY_S)

    def _turn(self) -> None:
        """One turn of the loop; a failure of ours costs the run its turn, not the worker its life."""
        from django.db import OperationalError, close_old_connections

        from foundry_web.database import explained

        close_old_connections()
        try:
            if self._ready() and not self._work():
                self._leaving.wait(self._settings.idle_s)
        except OperationalError as error:
            self._give_back(explained(error))
            self._wait_for_database(error)
        except Exception as error:  # noqa: BLE001
            log().exception("the turn failed", error=str(error))
            self._give_back(f"{type(error).__name__}: {error}")
            self._leaving.wait(self._settings.idle_s)

    def _ready(self) -> bool:
        """Whether the pool is open; where it cannot be opened the pages say why, and it is tried again."""
        from gpu_runner import store

        if self._pool is not None:
            return True
        try:
            self._pool = self._open_pool()
        except RunnerError as error:
            log().error("cannot work", problem=str(error))
            store.complain(self._runner, str(error))
            self._leaving.wait(RETRY_S)
            return False
        device = self._pool.device
        store.describe(
            self._runner, device=device.name, kind=device.kind, fingerprint=device.fingerprint
        )
        return True

    def _work(self) -> bool:
        """Claim a run and work on it; False if there was none."""
        from gpu_runner import store

        claim = store.claim_next(self._runner)
        if claim is None:
            return False
        assert self._pool is not None
        self._claim = claim
        if self._leaving.is_set():
            claim.rest()
        log().info("claimed", run=claim.run_id, fence=claim.fence)
        try:
            self._work_on(claim, self._pool)
        except InvalidTask as error:
            log().info("unusable task", run=claim.run_id, reason=str(error))
        except LeaseLost:
            log().warning("lost the lease", run=claim.run_id)
        except RunnerError as error:
            log().error("the evaluator failed", run=claim.run_id, error=str(error))
            self._give_back(str(error))
            self._leaving.wait(self._settings.idle_s)
        self._claim = None
        return True

    def _give_back(self, reason: str) -> None:
        """Back to the queue; where that cannot be written the lease runs out, and whoever claims the run then goes on."""
        from django.db import DatabaseError

        claim, self._claim = self._claim, None
        if claim is None:
            return
        try:
            claim.release(reason)
        except DatabaseError as error:
            log().warning("not given back", run=claim.run_id, error=str(error))

    def _keep_beating(self) -> None:
        from django.db import DatabaseError, connection

        from gpu_runner import store

        while not self._gone.wait(BEAT_S):
            try:
                if not store.beat(self._runner.pk, self._claim):
                    log().warning(
                        "the lease was taken over", run=getattr(self._claim, "run_id", None)
                    )
            except DatabaseError as error:
                log().error("no heartbeat", error=str(error))
                connection.close()
        connection.close()


def log() -> Any:
    import structlog

    return structlog.get_logger("worker")


def work_on(claim: "Store", pool: ClosablePool) -> None:
    """Let the driver work on a claimed run with the operator's models and the library its starter may see.

    A model that is not configured, or not any more, fails the run with the reason; nobody else is disturbed.
    """
    from gpu_runner import driver, store
    from gpu_runner.proposals.models import ProfileError, load_models

    try:
        models = load_models()
        if claim.spec.model is not None:
            models.writer(claim.spec.model)
    except ProfileError as error:
        claim.set_state(RunState.FAILED, str(error))
        return
    library = store.library_for(claim.run_id)
    driver.run(claim, Reporting(pool, claim), models=models, library=library)


def _check_database() -> None:
    """Refuse a database of another version; one that does not answer is waited for later."""
    from django.db import DatabaseError, connection

    from foundry_web.database import readiness_problem

    try:
        problem = readiness_problem()
    except DatabaseError:
        connection.close()
        return
    if problem:
        raise InvalidSetting(problem)


def main(settings: WorkerSettings | None = None) -> int:
    """Work until told to go; the exit code.

    Raises:
        InvalidSetting: the environment, or the database that it names, cannot be worked with.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "foundry_web.settings")
    import django
    from django.core.exceptions import ImproperlyConfigured

    try:
        django.setup()
    except ImproperlyConfigured as error:
        raise InvalidSetting(str(error)) from error
    from foundry_web import logs
    from gpu_runner.evaluation.pool import open_pool
    from gpu_runner.evaluation.settings import EvaluationSettings

    logs.configure()
    _check_database()
    chosen = settings or WorkerSettings.from_environment()
    evaluation = EvaluationSettings(
        device=chosen.device,
        slots=chosen.slots,
        sandbox=chosen.sandbox,
        max_autotune=chosen.max_autotune,
    )
    worker = Worker(chosen, lambda: open_pool(evaluation), work_on)

    def leave(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=worker.leave, name="leaving").start()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    worker.run()
    return 0
