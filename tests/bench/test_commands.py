"""`bench` as a person types it, over a pool that evaluates nothing."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gpu_runner.__main__ import app
from gpu_runner.bench import commands
from gpu_runner.bench.results import Results
from gpu_runner.core.verdicts import Verdict
from tests.bench.making import ON_GPU, SETTINGS, WITHOUT_GPU, ratio, row, suite
from tests.bench.test_sitting import Pool, evaluation
from tests.test_driver import SOURCES

Bench = Callable[..., Result]


@pytest.fixture
def pool() -> Pool:
    found = Pool()
    found.device.fingerprint = WITHOUT_GPU  # type: ignore[attr-defined]
    return found


@pytest.fixture
def bench(tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """`bench` in this process on a suite of two tasks."""
    monkeypatch.delenv("FOUNDRY_MODELS", raising=False)

    def pool_for(device: str, sandbox: str, *, slots: int) -> Any:
        pool.slots = slots
        return nullcontext(pool)

    monkeypatch.setattr(commands, "pool_for", pool_for)
    monkeypatch.setattr(commands, "stop_gently", lambda want: None)
    monkeypatch.setattr("gpu_runner.driver.standard_sources", lambda: SOURCES)
    suite(tmp_path / "suite", "level1/1_relu", "level2/2_mlp")

    def invoke(*options: str) -> Result:
        given = ["bench", str(tmp_path / "suite"), "--out", str(tmp_path / "out")]
        return CliRunner().invoke(app, [*given, "--evaluations", "4", *options])

    return invoke


def report(folder: Path) -> Any:
    return json.loads((folder / "out" / "report.json").read_text())


def test_a_suite_whose_tasks_all_have_a_kernel_ends_with_0(bench: Bench, tmp_path: Path) -> None:
    answer = bench()
    assert answer.exit_code == 0, answer.output
    assert "all         2 of 2   100%" in answer.stdout
    assert [row["task"] for row in report(tmp_path)["rows"]] == ["level1/1_relu", "level2/2_mlp"]


def test_results_lie_in_a_folder_called_like_the_suite_unless_told_otherwise(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, ["bench", "suite", "--only", "level1", "--evaluations", "2"])
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "out" / "suite" / "report.html").exists()


def test_a_task_without_a_kernel_makes_it_1(bench: Bench, pool: Pool) -> None:
    pool._by_task = lambda task, mark: evaluation(verdict=Verdict.INCORRECT, kind="values")
    answer = bench("--only", "level1")
    assert answer.exit_code == 1
    assert "0 of 1" in answer.stdout


def test_json_is_the_report_and_nothing_else(bench: Bench, tmp_path: Path) -> None:
    answer = bench("--json")
    assert json.loads(answer.stdout) == report(tmp_path)
    assert answer.stderr == ""


def test_tracks_and_precisions_make_arms(bench: Bench, tmp_path: Path) -> None:
    bench("--track", "both", "--precision", "ieee", "--precision", "tf32", "--only", "1_relu")
    rows = report(tmp_path)["rows"]
    assert [(row["track"], row["precision"]) for row in rows] == [
        ("own_kernels", "ieee"),
        ("library_allowed", "ieee"),
        ("own_kernels", "tf32"),
        ("library_allowed", "tf32"),
    ]


def test_a_second_call_adds_what_is_missing_only(bench: Bench, pool: Pool, tmp_path: Path) -> None:
    bench("--only", "level1")
    before = len(pool.evaluated)
    answer = bench("--slots", "2", "--tasks-at-once", "2")
    assert (answer.exit_code, before, len(pool.evaluated), pool.slots) == (0, 4, 8, 2)
    assert len(report(tmp_path)["rows"]) == 2


def test_each_task_at_once_has_a_slot_unless_told_otherwise(bench: Bench, pool: Pool) -> None:
    bench("--tasks-at-once", "3")
    assert pool.slots == 3


def test_the_switches_of_an_ablation_are_kept(bench: Bench, tmp_path: Path) -> None:
    bench("--no-lessons", "--no-diagnosis", "--method", "sampling", "--seconds", "60")
    kept = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert (kept["use_library"], kept["use_diagnosis"], kept["use_initialisers"]) == (
        False,
        False,
        True,
    )
    assert (kept["method"], kept["seconds"], kept["suite"]) == ("sampling", 60.0, "suite")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "level9"], "--only level9 matches none"),
        (["--track", "mine"], "--track: 'mine' is none of own_kernels, library_allowed, both"),
        (["--target", "h9999"], "--target: unknown target"),
        (["--seconds", "-1"], "--seconds: Input should be greater than 0"),
        (["--model", "absent"], "absent"),
        (["--library", "absent"], "there is no folder of entries in absent"),
        (["--precision", "fp4"], "--precision"),
    ],
)
def test_what_cannot_be_is_wrong_usage(bench: Bench, options: list[str], words: str) -> None:
    answer = bench(*options)
    assert answer.exit_code == 2
    assert words in answer.stderr


def test_an_empty_folder_is_wrong_usage(tmp_path: Path) -> None:
    given = ["bench", str(tmp_path), "--out", str(tmp_path / "out")]
    answer = CliRunner().invoke(app, given)
    assert (answer.exit_code, "holds no task" in answer.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_other_settings_on_the_same_folder_are_wrong_usage(bench: Bench) -> None:
    bench("--only", "level1")
    answer = bench("--seed", "3")
    assert answer.exit_code == 2
    assert "was begun with --seed 0, not with --seed 3" in answer.stderr


@pytest.fixture
def arms(tmp_path: Path) -> tuple[str, str]:
    """Two folders of results, of one sitting, with and without the library."""
    without = SETTINGS.model_copy(update={"use_library": False})
    for name, settings, speed in (("a", SETTINGS, 2.0), ("b", without, 1.0)):
        with Results(tmp_path / name, settings) as results:
            results.save(row("level1/x", ratio(speed, speed - 0.1, speed + 0.1)))
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_two_arms_are_compared_by_their_folders(arms: tuple[str, str]) -> None:
    answer = CliRunner().invoke(app, ["bench", "compare", *arms])
    assert answer.exit_code == 0, answer.output
    assert "use_library: A True, B False" in answer.stdout
    assert "B over A 0.50x; B gained 0, lost 1 of 1 tasks" in answer.stdout
    told = CliRunner().invoke(app, ["bench", "compare", *arms, "--json"])
    assert json.loads(told.stdout)["arms"][0]["lost"] == 1


def test_arms_of_two_fingerprints_are_refused_unless_asked_for(arms: tuple[str, str]) -> None:
    without = SETTINGS.model_copy(update={"use_library": False})
    with Results(Path(arms[1]), without) as results:
        other = ratio(3.0, 2.9, 3.1)
        results.save(row("level1/x", other, environment=ON_GPU | {"torch": "2.13.0"}))
    answer = CliRunner().invoke(app, ["bench", "compare", *arms])
    assert answer.exit_code == 2
    assert "differ in torch; give --across-devices" in answer.stderr
    answer = CliRunner().invoke(app, ["bench", "compare", *arms, "--across-devices"])
    assert answer.exit_code == 0
    assert "of 2 sittings that differ in torch" in answer.stdout


def test_folders_put_together_are_reported_on_without_a_run(
    arms: tuple[str, str], tmp_path: Path
) -> None:
    elsewhere = row("level1/y", ratio(3.0, 2.9, 3.1), environment=ON_GPU | {"driver": "590"})
    with Results(tmp_path / "a", SETTINGS) as results:
        results.save(elsewhere)
    answer = CliRunner().invoke(app, ["bench", "report", arms[0]])
    assert answer.exit_code == 0, answer.output
    assert "2 of 2   100%" in answer.stdout
    written = json.loads((tmp_path / "a" / "report.json").read_text())
    assert [sitting["rows"] for sitting in written["sittings"]] == [1, 1]
    assert (tmp_path / "a" / "report.html").exists()
    refused = CliRunner().invoke(app, ["bench", "report", str(tmp_path)])
    assert (refused.exit_code, "holds no results" in refused.stderr) == (2, True)


def test_a_folder_without_results_cannot_be_compared(tmp_path: Path, arms: tuple[str, str]) -> None:
    answer = CliRunner().invoke(app, ["bench", "compare", arms[0], str(tmp_path)])
    assert (answer.exit_code, "holds no results of a bench" in answer.stderr) == (2, True)
