"""Drives any number of runs in one process: one thread, the caller's, owns all searches and ledgers.

Drafting and evaluating happen in worker threads that report through one queue. Slots of the pool are shared fairly among the
runs (`shares`); a model may write for all of them at the same time.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from gpu_runner.core.entries import Entry
from gpu_runner.core.ledger import Ledger
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.course import Course, Job, Message
from gpu_runner.evolution.results import RunResult
from gpu_runner.experience import Shelf
from gpu_runner.proposals.models import Models, Profiles
from gpu_runner.shares import Shares
from gpu_runner.sources import Pool, Sources, standard_sources

TICK_S: Final = 0.5
"""How often wishes of people are looked at while nothing happens."""
STAGES_S: Final = 0.5
"""How often the gates that candidates reach are written down."""
MAX_THREADS: Final = 2000

Failure = Callable[["Driven", BaseException], None]


@dataclass(frozen=True)
class Arrived:
    """What a thread reports: a message, or the error that ended its job; `slot_s` where it held a slot."""

    driven: "Driven"
    message: Message | BaseException
    slot_s: float | None = None


class Driver:
    """Turns of the loop over all runs; `turn` and `add` are called from one thread.

    Args:
        failed: told of an error that ends the driver's work on one run; the others go on.
        slots_each: that one run may hold at the same time; None: all of them.
    """

    def __init__(
        self,
        pool: Pool,
        failed: Failure,
        clock: Callable[[], float] = time.monotonic,
        *,
        slots_each: int | None = None,
    ) -> None:
        self._slots = pool.slots
        self._pool = _Throttled(pool, min(pool.slots, slots_each or pool.slots))
        self._failed = failed
        self._clock = clock
        self._inbox: queue.SimpleQueue[Arrived] = queue.SimpleQueue()
        self._shares: Shares[Driven] = Shares()
        self._runs: list[Driven] = []
        self._busy = 0
        self._ticked = self._staged = clock()
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="run")

    @property
    def runs(self) -> "Sequence[Driven]":
        return tuple(self._runs)

    def add(
        self,
        ledger: Ledger,
        *,
        models: Models | None = None,
        library: Shelf | None = None,
        sources: Sources | None = None,
        batch: int = 0,
    ) -> "Driven":
        """Begin to work on a run, or go on where an earlier process was killed.

        Args:
            models: the operator's profiles; needed where the run names one.
            library: the approved entries that the run's owner may see, as they are at each moment.
        """
        driven = Driven(self, ledger)
        driven.course = Course(
            ledger,
            self._pool,
            driven,
            models=models or Models(Profiles()),
            library=library,
            sources=sources or standard_sources(),
            clock=self._clock,
            batch=batch,
        )
        self._runs.append(driven)
        self._shares.join(driven)
        self._guarded(driven, driven.course.start)
        return driven

    def turn(self) -> list["Driven"]:
        """Wait for something to happen, at most a tick, and let every run that it concerns go on.

        Returns:
            The runs that are over or rest since the last turn.
        """
        self._deal_slots()
        last = self._receive()
        now = self._clock()
        if now - self._staged >= STAGES_S:
            self._staged = now
            for driven in self._runs:
                self._guarded(driven, driven.course.write_stages)
        if now - self._ticked >= TICK_S:
            self._ticked = now
            self._advance(self.runs)
        self._deal_slots(last)
        over = [driven for driven in self._runs if driven.course.result is not None]
        for driven in over:
            self.drop(driven)
        return over

    def drop(self, driven: "Driven") -> None:
        """Do nothing more for a run; what its threads still report is thrown away."""
        if driven in self._runs:
            self._runs.remove(driven)
            self._shares.leave(driven)

    def close(self) -> None:
        self._runs.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # Messages.

    def put(self, arrived: Arrived) -> None:
        """From any thread."""
        self._inbox.put(arrived)

    def start(self, driven: "Driven", job: Job, *, holds_slot: bool = False) -> None:
        """Run a job in a thread."""

        def work() -> None:
            began = self._clock()
            message: Message | BaseException
            try:
                message = job()
            except BaseException as error:  # noqa: BLE001
                message = error
            slot_s = self._clock() - began if holds_slot else None
            self._inbox.put(Arrived(driven, message, slot_s))

        self._threads.submit(work)

    def _receive(self) -> "Driven | None":
        """Take in all that has arrived; who gave a slot back last."""
        last = None
        concerned: dict[Driven, None] = {}
        try:
            arrived = self._inbox.get(timeout=self._pause_s())
            while True:
                if arrived.slot_s is not None:
                    self._busy -= 1
                    arrived.driven.busy -= 1
                    self._shares.charge(arrived.driven, arrived.slot_s)
                    last = arrived.driven
                self._take(arrived)
                concerned[arrived.driven] = None
                arrived = self._inbox.get_nowait()
        except queue.Empty:
            self._advance(tuple(concerned))
        return last

    def _pause_s(self) -> float:
        return min(TICK_S, max(0.0, self._ticked + TICK_S - self._clock()))

    def _take(self, arrived: Arrived) -> None:
        driven, message = arrived.driven, arrived.message
        if driven not in self._runs:
            return
        if isinstance(message, BaseException):
            self._guarded(driven, lambda: driven.course.fail(message))
        else:
            self._guarded(driven, lambda: driven.course.take(message))

    def _advance(self, concerned: "Sequence[Driven]") -> None:
        for driven in concerned:
            if driven in self._runs and driven.course.result is None:
                self._guarded(driven, driven.course.advance)

    def _guarded(self, driven: "Driven", step: Callable[[], Any]) -> Any:
        """A failure of ours costs one run this driver, not the others theirs."""
        try:
            return step()
        except Exception as error:  # noqa: BLE001
            self.drop(driven)
            self._failed(driven, error)
            return None

    # Slots.

    def _deal_slots(self, last: "Driven | None" = None) -> None:
        """Give free slots to the runs that have something for them."""
        if self._busy >= self._slots:
            return
        # Serving one run makes no other hungry or full.
        hungry = [driven for driven in self.runs if self._is_hungry(driven)]
        while hungry and self._busy < self._slots:
            first = self._shares.in_order(hungry, last)[0]
            last = None
            job = self._guarded(first, first.course.slot_job)
            if job is not None:
                self._busy += 1
                first.busy += 1
                self.start(first, job, holds_slot=True)
            if not self._is_hungry(first):
                hungry.remove(first)

    def _is_hungry(self, driven: "Driven") -> bool:
        has_room = driven in self._runs and driven.busy < self._pool.slots
        return has_room and bool(self._guarded(driven, driven.hunger))


class Driven:
    """A run in the driver's hands, and the desk of its course."""

    course: Course

    def __init__(self, driver: Driver, ledger: Ledger) -> None:
        self.ledger = ledger
        self.busy = 0
        self._driver = driver

    def hunger(self) -> bool:
        return self.course.is_hungry

    def think(self, job: Job) -> None:
        self._driver.start(self, job)

    def tell(self, message: Message) -> None:
        self._driver.put(Arrived(self, message))


class _Throttled:
    """A pool as one run sees it, with its part of the slots.

    It starts at most as many other children at a time as the whole pool has slots, however many runs draft.
    """

    def __init__(self, pool: Pool, slots: int) -> None:
        self._pool = pool
        self.slots = slots
        self._calls = threading.BoundedSemaphore(max(2, pool.slots))
        self.inspect: Callable[[TaskSpec], TaskReport] = pool.inspect
        self.evaluate = pool.evaluate

    @property
    def device(self) -> Any:
        return self._pool.device

    def call(self, entry: str, request: dict[str, Any], **more: Any) -> dict[str, Any]:
        with self._calls:
            return self._pool.call(entry, request, **more)


def run(
    ledger: Ledger,
    pool: Pool,
    *,
    models: Models | None = None,
    library: Sequence[Entry] = (),
    clock: Callable[[], float] = time.monotonic,
    sources: Sources | None = None,
    batch: int = 0,
) -> RunResult:
    """Work on one run until it is over or people want it to rest; goes on where an earlier call was killed.

    Returns:
        The result, also written as the note `result`; its state is PAUSED when the run is to be gone on with later, and
        FAILED where the run names a model that the operator has not configured.

    Raises:
        InvalidTask: the reference cannot be used; the run is FAILED with the reason.
        LeaseLost: another runner has the run.
        RunnerError: the evaluator itself does not work; the run can be resumed.
    """

    def failed(driven: Driven, error: BaseException) -> None:
        raise error

    driver = Driver(pool, failed, clock)
    try:
        shelf = Shelf.of(library) if library else None
        driven = driver.add(ledger, models=models, library=shelf, sources=sources, batch=batch)
        while driven.course.result is None:
            driver.turn()
        return driven.course.result
    finally:
        driver.close()
