"""What is left to be run of a suite, and the rows that stand already."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpu_runner.bench.results import NoResults, Results, rows_in
from gpu_runner.bench.rows import Outcome, Row
from gpu_runner.bench.sitting import Job
from gpu_runner.bench.suite import SuiteTask
from gpu_runner.core.verdicts import Precision, Track

Arm = tuple[Track, Precision]
Id = tuple[str, Track, Precision]


@dataclass
class Plan:
    """Attributes:
    jobs: what has no result yet, arm by arm.
    rows: one for every result, with those that are waited for.
    """

    jobs: list[Job] = field(default_factory=list)
    rows: dict[Id, Row] = field(default_factory=dict)

    @property
    def in_order(self) -> list[Row]:
        return list(self.rows.values())


def plan(
    results: Results, tasks: Sequence[SuiteTask], arms: Sequence[Arm], device_kind: str
) -> Plan:
    """Go through a suite and what its folder of results holds.

    A task that was unusable is run again once its file has changed; rows of tasks that are not asked for now stay.

    Raises:
        NoResults: a task with a result has another source now.
    """
    jobs = [
        Job(
            name=task.name,
            level=task.level,
            spec=results.settings.run_spec(task, track, precision, device_kind),
            folder=results.folder(task.name, track, precision),
            problem=task.problem,
        )
        for track, precision in arms
        for task in tasks
    ]
    for job in jobs:
        results.drop_unreadable(*_id(job))
    held = {row.id: row for row in rows_in(results.directory)}
    made = Plan()
    for job in jobs:
        row = held.pop(_id(job), None)
        if row is not None and row.key != job.spec.task.key:
            _let_go(results, row)
            row = None
        if row is None:
            made.jobs.append(job)
            row = job.row(Outcome.WAITING, "", {})
        made.rows[row.id] = row
    made.rows |= held
    return made


def _id(job: Job) -> Id:
    return job.name, job.spec.task.track, job.spec.task.precision


def _let_go(results: Results, row: Row) -> None:
    if row.outcome is not Outcome.INVALID:
        raise NoResults(
            f"{row.task} has another source than the one that {results.directory} holds a result of;"
            " choose another --out"
        )
    results.forget(row)
