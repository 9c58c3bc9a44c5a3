"""One call of `bench`: plan, sit, and keep the report up to date with every result."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from gpu_runner.bench.plan import Arm, plan
from gpu_runner.bench.report import Report, as_html, report_of
from gpu_runner.bench.results import Results, rows_in
from gpu_runner.bench.rows import Row, place
from gpu_runner.bench.sitting import Sitting
from gpu_runner.bench.suite import SuiteTask
from gpu_runner.bench.watching import watching
from gpu_runner.core.entries import Entry
from gpu_runner.evaluation.devices import DeviceInfo
from gpu_runner.proposals.models import Models
from gpu_runner.sources import Pool, Sources


def bench(
    results: Results,
    tasks: Sequence[SuiteTask],
    arms: Sequence[Arm],
    pool: Pool,
    *,
    here: dict[str, Any],
    at_once: int,
    on_stop: Callable[[Callable[[], None]], None],
    models: Models | None = None,
    library: Sequence[Entry] = (),
    sources: Sources | None = None,
    quiet: bool = False,
) -> tuple[Report, str]:
    """Run what has no result yet.

    Args:
        here: the environment of this sitting, see `environment_of`.
        on_stop: given what puts the sitting down, for a signal handler.

    Returns:
        The report, written to the folder as well, and why the sitting gave up; empty where it did not.

    Raises:
        NoResults: the folder cannot be read or written, or holds results of other sources.
    """
    planned = plan(results, tasks, arms, pool.device.kind)

    def report() -> Report:
        return _written(results, planned.in_order)

    with watching(len(planned.rows), len(planned.rows) - len(planned.jobs), quiet=quiet) as watch:

        def take(row: Row) -> None:
            planned.rows[row.id] = row
            if row.is_final:
                results.save(row)
            report()
            watch.row(row)

        sitting = Sitting(
            planned.jobs,
            pool,
            at_once=at_once,
            here=here,
            on_row=take,
            models=models,
            library=library,
            sources=sources,
        )
        on_stop(sitting.stop)
        sitting.run(lambda: watch.look(sitting.under_way))
    return report(), sitting.trouble


def environment_of(device: DeviceInfo, target: str) -> dict[str, Any]:
    """What evaluations on this device say of where they were made."""
    return place({**device.fingerprint, "target": target})


def report_on(results: Results) -> Report:
    """Write the report on what a folder holds, and run nothing. Raises NoResults."""
    return _written(results, rows_in(results.directory))


def _written(results: Results, rows: Sequence[Row]) -> Report:
    report = report_of(results.settings, rows)
    results.write("report.json", json.dumps(report.model_dump(mode="json"), indent=1) + "\n")
    results.write("report.html", as_html(report))
    return report
