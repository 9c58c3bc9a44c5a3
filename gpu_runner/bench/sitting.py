"""One sitting: the tasks that have no result yet, several at a time through one driver and one pool."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu_runner.bench.rows import Outcome, Row, finished_row
from gpu_runner.core.entries import Entry
from gpu_runner.core.ledger import Ledger
from gpu_runner.core.task import RunSpec
from gpu_runner.core.verdicts import RunState, State
from gpu_runner.driver import Driven, Driver
from gpu_runner.evaluation.errors import InvalidTask
from gpu_runner.experience import Shelf
from gpu_runner.journal import Journal, JournalError
from gpu_runner.proposals.models import Models
from gpu_runner.sources import Pool, Sources

MAX_TROUBLES: Final = 3
"""Tasks in a row that we fail on before the evaluator is believed not to work here."""


@dataclass(frozen=True)
class Job:
    """One task to be run; `problem` says why it cannot be."""

    name: str
    level: str
    spec: RunSpec
    folder: Path
    problem: str = ""

    def row(self, outcome: Outcome, reason: str, here: Mapping[str, Any]) -> Row:
        task = self.spec.task
        return Row(
            task=self.name,
            level=self.level,
            track=task.track,
            precision=task.precision,
            key=task.key,
            outcome=outcome,
            reason=reason,
            environment=dict(here),
        )


class Sitting:
    """Runs jobs in their order.

    Args:
        at_once: how many tasks are worked on at the same time; each gets an equal part of the pool's slots.
        here: the environment that rows without any evaluation are told to be of.
        on_row: told of every job that has an outcome.

    Attributes:
        trouble: why it gave up before all jobs had an outcome; empty while it has not.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        pool: Pool,
        *,
        at_once: int,
        here: Mapping[str, Any],
        on_row: Callable[[Row], None],
        models: Models | None = None,
        library: Sequence[Entry] = (),
        sources: Sources | None = None,
    ) -> None:
        self.trouble = ""
        self._waiting = deque(jobs)
        self._at_once = at_once
        self._here = here
        self._on_row = on_row
        self._models = models
        self._shelf = Shelf.of(library) if library else None
        self._sources = sources
        self._active: dict[Ledger, tuple[Job, Journal]] = {}
        self._is_stopping = False
        self._troubles = 0
        each = max(1, pool.slots // at_once)
        self._driver = Driver(pool, self._failed, slots_each=each)

    def run(self, watch: Callable[[], None] = lambda: None) -> None:
        """Until every job has an outcome, or `stop` was called and what was being evaluated has ended.

        Args:
            watch: called about twice a second.
        """
        try:
            self._begin()
            while self._active:
                watch()
                for driven in self._driver.turn():
                    self._ended(driven)
                self._begin()
        finally:
            self._driver.close()
            for _, journal in self._active.values():
                journal.close()

    def stop(self) -> None:
        """Begin no further task, and put down those that are being worked on; from a signal handler too."""
        self._is_stopping = True
        for _, journal in list(self._active.values()):
            journal.want(RunState.PAUSING)

    @property
    def under_way(self) -> list[Ledger]:
        """The ledgers of the tasks that are being worked on."""
        return [journal for _, journal in self._active.values()]

    def _begin(self) -> None:
        while self._waiting and len(self._active) < self._at_once and not self._is_stopping:
            job = self._waiting.popleft()
            if job.problem:
                self._on_row(job.row(Outcome.INVALID, job.problem, self._here))
                continue
            try:
                journal = Journal(job.folder, job.spec)
            except JournalError as error:
                self._take_trouble(job, str(error))
                continue
            self._take_up(job, journal)

    def _take_up(self, job: Job, journal: Journal) -> None:
        result = _result_of(journal)
        if result is not None:
            # Killed between the end of the run and its row.
            self._finished(job, journal, result)
            return
        # Known before it is started, which may fail at once.
        self._active[journal] = job, journal
        if self._is_stopping:
            journal.want(RunState.PAUSING)
        self._driver.add(journal, models=self._models, library=self._shelf, sources=self._sources)

    def _ended(self, driven: Driven) -> None:
        job, journal = self._active.pop(driven.ledger)
        result = _result_of(journal)
        if result is not None:
            self._finished(job, journal, result)
            return
        journal.close()
        run = driven.course.result
        if run is not None and run.state is RunState.FAILED:
            self._take_trouble(job, run.stop_reason)

    def _finished(self, job: Job, journal: Journal, result: Mapping[str, Any]) -> None:
        row = finished_row(job.name, job.level, journal, result, self._here)
        journal.close()
        if row.counts.keys() == {State.ABANDONED.value}:
            # Not one candidate was judged, so nothing is known of the task; the next sitting begins it anew.
            (job.folder / "journal.jsonl").unlink()
            reasons = [str(note["reason"]) for note in journal.notes("failure")]
            why = reasons[-1] if reasons else "the runner was killed again and again meanwhile"
            self._take_trouble(job, f"no candidate could be evaluated: {why}")
            return
        self._troubles = 0
        self._on_row(row)

    def _failed(self, driven: Driven, error: BaseException) -> None:
        """The driver gives up one run: the task is unusable, or we failed on it."""
        job, journal = self._active.pop(driven.ledger)
        journal.close()
        if isinstance(error, InvalidTask):
            self._troubles = 0
            self._on_row(job.row(Outcome.INVALID, str(error), self._here))
        else:
            self._take_trouble(job, f"{type(error).__name__}: {error}")

    def _take_trouble(self, job: Job, reason: str) -> None:
        self._on_row(job.row(Outcome.FAILED, reason, self._here))
        self._troubles += 1
        if self._troubles >= MAX_TROUBLES:
            self.trouble = (
                f"{self._troubles} tasks in a row could not be run, the last one: {reason}"
            )
            self.stop()


def _result_of(journal: Journal) -> dict[str, Any] | None:
    """The result of a run that is over; None for one that is to be gone on with."""
    results = journal.notes("result")
    return results[-1] if results and results[-1]["state"] == RunState.FINISHED else None
