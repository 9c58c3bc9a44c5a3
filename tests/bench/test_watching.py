import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from gpu_runner.bench.rows import Outcome
from gpu_runner.bench.watching import Watch, duration, remaining_s
from gpu_runner.core.task import Budget, RunSpec, TaskSpec
from gpu_runner.journal import Journal
from tests.bench.making import row


def test_the_rest_takes_as_long_as_what_was_done() -> None:
    assert remaining_s(2.0, 8.0, 60.0) == 180.0
    assert remaining_s(8.0, 8.0, 60.0) == 0.0
    assert remaining_s(0.0, 8.0, 60.0) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (12_000, "3 h 20 min")],
)
def test_durations_are_told_as_a_person_would(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_estimate_counts_parts_of_tasks_and_no_earlier_sitting(tmp_path: Path) -> None:
    now = 0.0
    text = io.StringIO()
    bar = Progress(console=Console(file=text, width=200), disable=True)
    watch = Watch(bar, total=12, done=8, clock=lambda: now)
    spec = RunSpec(task=TaskSpec(name="level1/a", source=""), budget=Budget(evaluations=10))
    with Journal(tmp_path, spec) as journal:
        # Half of the task is of an earlier sitting.
        journal.spend(evaluations=5)
        watch.look([journal])
        journal.spend(evaluations=4)
        now = 60.0
        watch.look([journal])
    assert bar.tasks[0].description == "level1/a"
    # Two fifths of a task of four in a minute.
    assert bar.tasks[0].fields["end"] == ", about 9 min left"
    watch.row(row("level1/x", outcome=Outcome.INVALID, reason="no Model"))
    now = 120.0
    watch.row(row("level1/a", 2.0))
    lines = text.getvalue().splitlines()
    assert lines[0].split("  ")[0] == "invalid"
    assert lines[0].endswith("no Model   3 to go")
    watch.row(row("level1/y", reason="nothing left to try"))
    assert "no correct kernel (nothing left to try)" in text.getvalue()
    # An unusable task took no time: one of the three that do is done.
    assert lines[1].endswith("2.00x over eager modelled   2 to go, about 4 min left")
