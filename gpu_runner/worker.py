"""The runner's process: claims runs and works on them, on many at once, until it is told to go.

The main thread drives all of them (`driver`); a second one keeps the heartbeat and the leases. SIGTERM and SIGINT let the
candidates in progress end; a kill loses at most their evaluations, and whoever claims the runs next goes on from there.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, cast

from gpu_runner.core.ledger import LeaseLost
from gpu_runner.core.verdicts import RunState
from gpu_runner.evaluation.errors import InvalidTask, RunnerError
from gpu_runner.settings import InvalidSetting, WorkerSettings
from gpu_runner.sources import Pool

if TYPE_CHECKING:
    from django.db import DatabaseError

    from gpu_runner.driver import Driven, Driver
    from gpu_runner.store import Store

BEAT_S = 3.0
RETRY_S = 15.0
WATCH_S = 0.4
"""How old what is known of people's wishes may be."""


class ClosablePool(Pool, Protocol):
    """A pool as the worker needs it; see `evaluation.pool`."""

    @property
    def device(self) -> Any: ...

    def close(self) -> None: ...


Begin = Callable[["Driver", "Store"], "Driven | None"]


class Worker:
    """One runner: a row of its own, one pool, many runs at a time.

    Args:
        open_pool: opens the evaluation pool; raises RunnerError where that cannot be.
        begin: hands a claimed run to the driver; None where that run is over before it began.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        open_pool: Callable[[], ClosablePool],
        begin: Begin,
    ) -> None:
        from gpu_runner.store import Watch

        self._settings = settings
        self._open_pool = open_pool
        self._begin = begin
        self._leaving = threading.Event()
        self._gone = threading.Event()
        self._deadline = threading.Timer(settings.grace_s, self._leave_now)
        self._deadline.daemon = True
        self._watch = Watch(WATCH_S)
        self._claims: dict[int, Store] = {}
        self._looked_at = -math.inf
        self._pool: ClosablePool | None = None
        self._driver: Driver | None = None

    def leave(self) -> None:
        """Put the work down and end. Not to be called in a signal handler: it takes locks that the main thread may hold."""
        if self._leaving.is_set():
            return
        self._leaving.set()
        for claim in tuple(self._claims.values()):
            claim.rest()
        self._deadline.start()

    def _leave_now(self) -> None:
        """What is in progress takes too long: its children die with this process, its runs go back to the queue."""
        from django.db import DatabaseError

        for claim in tuple(self._claims.values()):
            try:
                claim.set_state(RunState.PAUSED, "the runner was told to go")
            except (LeaseLost, DatabaseError) as error:
                log().warning("not given back", run=claim.run_id, error=str(error))
        self._say_goodbye()
        os._exit(143)

    def run(self) -> None:
        if not self._register():
            return
        heart = threading.Thread(target=self._keep_beating, name="heartbeat", daemon=True)
        heart.start()
        try:
            while self._claims or not self._leaving.is_set():
                self._turn()
        finally:
            self._gone.set()
            heart.join(timeout=2 * BEAT_S)
            if self._driver is not None:
                self._driver.close()
            self._say_goodbye()
            self._deadline.cancel()

    def _say_goodbye(self) -> None:
        from django.db import DatabaseError

        from gpu_runner import store

        try:
            store.say_goodbye(self._runner)
        except DatabaseError as error:
            log().warning("left without a word", error=str(error))
        if self._pool is not None:
            self._pool.close()

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
        """All runs wait: none can be written to."""
        from django.db import connection

        from foundry_web.database import explained

        log().error("cannot work", problem=explained(error))
        connection.close()
        self._leaving.wait(RETRY_S)

    def _turn(self) -> None:
        """One turn of the loop; a failure of ours costs a run its turn, not the worker its life."""
        from django.db import OperationalError

        try:
            if not self._ready():
                return
            assert self._driver is not None
            if time.monotonic() - self._looked_at >= self._settings.idle_s:
                self._look_for_work(self._driver)
            if not self._claims:
                if not self._work_on_library():
                    self._leaving.wait(self._settings.idle_s)
                return
            for driven in self._driver.turn():
                self._forget(driven.ledger)
        except OperationalError as error:
            self._wait_for_database(error)
        except Exception as error:  # noqa: BLE001
            log().exception("the turn failed", error=str(error))
            self._leaving.wait(self._settings.idle_s)

    def _ready(self) -> bool:
        """Whether the pool is open; where it cannot be opened the pages say why, and it is tried again."""
        from gpu_runner import store
        from gpu_runner.driver import Driver

        if self._driver is not None:
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
        self._driver = Driver(self._pool, self._failed)
        return True

    def _look_for_work(self, driver: "Driver") -> None:
        """Claim one more run if there is room: one a time, so that runners side by side share the queue."""
        from django.db import close_old_connections

        from gpu_runner import store

        self._looked_at = time.monotonic()
        close_old_connections()
        if self._leaving.is_set() or len(self._claims) >= self._settings.runs:
            return
        claim = store.claim_next(self._runner, self._watch)
        if claim is None:
            return
        self._claims[claim.run_id] = claim
        if self._leaving.is_set():
            claim.rest()
        log().info("claimed", run=claim.run_id, fence=claim.fence)
        try:
            if self._begin(driver, claim) is None:
                self._forget(claim)
        except Exception as error:  # noqa: BLE001
            self._fail(claim, error)

    def _work_on_library(self) -> bool:
        """While no run is worked on; a run that comes ends it after the evaluation in progress."""
        from gpu_runner import store
        from gpu_runner.verifying import work_on_library

        assert self._pool is not None
        return work_on_library(
            self._pool, lambda: self._leaving.is_set() or store.is_work_waiting()
        )

    def _failed(self, driven: "Driven", error: BaseException) -> None:
        self._fail(cast("Store", driven.ledger), error)

    def _fail(self, claim: "Store", error: BaseException) -> None:
        """Work on one run cannot go on here."""
        from django.db import OperationalError

        from foundry_web.database import explained

        self._forget(claim)
        if isinstance(error, InvalidTask):
            log().info("unusable task", run=claim.run_id, reason=str(error))
        elif isinstance(error, LeaseLost):
            log().warning("lost the lease", run=claim.run_id)
        elif isinstance(error, OperationalError):
            self._give_back(claim, explained(error))
            self._wait_for_database(error)
        elif isinstance(error, RunnerError):
            log().error("the evaluator failed", run=claim.run_id, error=str(error))
            self._give_back(claim, str(error))
        else:
            log().error("the run failed", run=claim.run_id, exc_info=error)
            self._give_back(claim, f"{type(error).__name__}: {error}")

    def _forget(self, claim: Any) -> None:
        self._claims.pop(claim.run_id, None)
        self._watch.forget(claim.run_id)

    def _give_back(self, claim: "Store", reason: str) -> None:
        """Back to the queue; where that cannot be written the lease runs out, and whoever claims the run then goes on."""
        from django.db import DatabaseError

        try:
            claim.release(reason)
        except DatabaseError as error:
            log().warning("not given back", run=claim.run_id, error=str(error))

    def _keep_beating(self) -> None:
        from django.db import DatabaseError, connection

        from gpu_runner import store

        while not self._gone.wait(BEAT_S):
            try:
                for run_id in store.beat(self._runner.pk, tuple(self._claims)):
                    log().warning("the lease was taken over", run=run_id)
            except DatabaseError as error:
                log().error("no heartbeat", error=str(error))
                connection.close()
        connection.close()


def log() -> Any:
    import structlog

    return structlog.get_logger("worker")


class Beginning:
    """Hands claimed runs to a driver with the operator's models and the library their starters may see.

    The operator's file is read again for each, so that a model can be added without a restart.
    """

    def __init__(self) -> None:
        from gpu_runner.proposals.models import Models, Profiles

        self._models = Models(Profiles())

    def __call__(self, driver: "Driver", claim: "Store") -> "Driven | None":
        from gpu_runner import store
        from gpu_runner.proposals.models import ProfileError, load_models

        try:
            self._models = load_models().keeping(self._models)
        except ProfileError as error:
            if claim.spec.model is not None:
                claim.set_state(RunState.FAILED, str(error))
                return None
        return driver.add(claim, models=self._models, library=store.shelf_for(claim.run_id))


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
    worker = Worker(chosen, lambda: open_pool(evaluation), Beginning())

    def leave(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=worker.leave, name="leaving").start()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    worker.run()
    return 0
