"""The folder of results: what is kept, what is refused, what is run again."""

from pathlib import Path
from typing import Any

import pytest

from gpu_runner.bench.plan import Plan, plan
from gpu_runner.bench.results import NoResults, Results, Settings, rows_in, settings_in
from gpu_runner.bench.rows import Outcome
from gpu_runner.bench.suite import read_suite
from gpu_runner.core.task import Budget, RunSpec, TaskSpec
from gpu_runner.core.verdicts import Precision, Track
from tests.bench.making import SETTINGS, row, suite

ARM = (Track.OWN_KERNELS, Precision.REFERENCE)


def planned(results: Results, tasks: Path, *arms: tuple[Track, Precision]) -> Plan:
    return plan(results, read_suite(tasks), arms or [ARM], "cpu")


def keep(results: Results, made: Plan, number: int, **more: Any) -> None:
    """A row for one of the jobs."""
    job = made.jobs[number]
    results.save(row(job.name, 2.0, key=job.spec.task.key, **more))


def outcomes(made: Plan) -> list[tuple[str, str]]:
    return [(row.task, row.outcome.value) for row in made.in_order]


def test_a_task_with_a_result_is_not_run_again(tmp_path: Path) -> None:
    tasks = suite(tmp_path / "suite", "level1/a", "level1/b")
    with Results(tmp_path / "out", SETTINGS) as results:
        keep(results, planned(results, tasks), 0)
    with Results(tmp_path / "out", SETTINGS) as results:
        made = planned(results, tasks)
    assert [job.name for job in made.jobs] == ["level1/b"]
    assert outcomes(made) == [("level1/a", "done"), ("level1/b", "waiting")]


def test_arms_are_run_one_after_the_other_and_share_no_folder(tmp_path: Path) -> None:
    tasks = suite(tmp_path / "suite", "level1/a", "level1/b")
    library = (Track.LIBRARY_ALLOWED, Precision.TF32)
    with Results(tmp_path / "out", SETTINGS) as results:
        made = planned(results, tasks, ARM, library)
    places = [job.folder.relative_to(tmp_path / "out").as_posix() for job in made.jobs]
    assert places == [
        "own_kernels-reference/level1/a",
        "own_kernels-reference/level1/b",
        "library_allowed-tf32/level1/a",
        "library_allowed-tf32/level1/b",
    ]
    assert [job.spec.task.precision for job in made.jobs[1:3]] == ["reference", "tf32"]


def test_rows_that_are_not_asked_for_now_stay(tmp_path: Path) -> None:
    tasks = suite(tmp_path / "suite", "level1/a", "level2/b")
    with Results(tmp_path / "out", SETTINGS) as results:
        keep(results, planned(results, tasks), 0)
        made = plan(results, read_suite(tasks, ["level2"]), [ARM], "cpu")
    assert outcomes(made) == [("level2/b", "waiting"), ("level1/a", "done")]


def test_a_result_of_another_source_is_refused(tmp_path: Path) -> None:
    tasks = suite(tmp_path / "suite", "level1/a")
    with Results(tmp_path / "out", SETTINGS) as results:
        keep(results, planned(results, tasks), 0)
        (tasks / "level1" / "a.py").write_text((tasks / "level1" / "a.py").read_text() + "# new\n")
        with pytest.raises(NoResults, match="level1/a has another source"):
            planned(results, tasks)


def test_an_unusable_task_is_run_again_once_it_was_mended(tmp_path: Path) -> None:
    tasks = suite(tmp_path / "suite", "level1/a")
    with Results(tmp_path / "out", SETTINGS) as results:
        made = planned(results, tasks)
        results.save(made.jobs[0].row(Outcome.INVALID, "line 3: no", {}))
        (made.jobs[0].folder / "journal.jsonl").write_text("{}\n")
        assert planned(results, tasks).jobs == []
        (tasks / "level1" / "a.py").write_text((tasks / "level1" / "a.py").read_text() + "# new\n")
        assert [job.name for job in planned(results, tasks).jobs] == ["level1/a"]
    assert list(made.jobs[0].folder.iterdir()) == []


def test_settings_reach_the_run(tmp_path: Path) -> None:
    settings = Settings(
        suite="small",
        evaluations=7,
        seconds=30.0,
        islands=2,
        seed=5,
        target="a100",
        use_library=False,
    )
    tasks = suite(tmp_path / "suite", "level1/a")
    with Results(tmp_path / "out", settings) as results:
        (job,) = planned(results, tasks, (Track.LIBRARY_ALLOWED, Precision.IEEE)).jobs
    assert job.spec == RunSpec(
        task=TaskSpec(
            name="level1/a",
            source=(tasks / "level1" / "a.py").read_text(),
            track=Track.LIBRARY_ALLOWED,
            precision=Precision.IEEE,
            target="a100",
        ),
        seed=5,
        islands=2,
        budget=Budget(evaluations=7, wall_s=30.0),
        device="cpu",
        use_library=False,
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"evaluations": 9}, "was begun with --evaluations 24, not with --evaluations 9"),
        ({"seconds": 60.0}, "was begun without --seconds, not with --seconds 60.0"),
        ({"use_library": False}, "was begun with --lessons, not with --no-lessons"),
        ({"library": "mine"}, "was begun without --library, not with --library mine"),
    ],
)
def test_rows_with_other_settings_are_not_mixed_in(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    Results(tmp_path, SETTINGS).close()
    with pytest.raises(NoResults, match=words):
        Results(tmp_path, SETTINGS.model_copy(update=changed))
    assert settings_in(tmp_path) == SETTINGS


def test_two_processes_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with Results(tmp_path, SETTINGS), pytest.raises(NoResults, match="another process"):
        Results(tmp_path, SETTINGS)
    Results(tmp_path, SETTINGS).close()


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NoResults, match="cannot write to"):
        Results(tmp_path / "file" / "out", SETTINGS)


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoResults, match="holds no results of a bench"):
        settings_in(tmp_path)
    (tmp_path / "bench.json").write_text('{"format": 99}')
    with pytest.raises(NoResults, match="is of another version"):
        settings_in(tmp_path)


def test_a_damaged_row_is_named_with_what_to_do(tmp_path: Path) -> None:
    with Results(tmp_path, SETTINGS) as results:
        results.save(row())
        assert rows_in(tmp_path) == [row()]
        (results.folder(*row().id) / "row.json").write_text("{")
        with pytest.raises(NoResults, match="makes it again from the journal"):
            rows_in(tmp_path)
