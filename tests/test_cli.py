"""The command line's promises that need no evaluation: usage errors, where messages go, what is not imported."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gpu_runner import __main__ as command_line
from gpu_runner import show
from gpu_runner.cli import usual_slots
from gpu_runner.core.search import Method
from gpu_runner.core.task import Budget, RunSpec, TaskSpec, best_of_10
from gpu_runner.journal import Journal, history
from tests.proposals.endpoint import serve
from tests.test_driver import FakePool
from tests.test_driver_models import answers, models

TASK = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.zeros(4)]
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpu_runner", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "task.py"
    path.write_text(TASK)
    return path


@pytest.fixture
def evolve(tmp_path: Path, task: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Result]:
    """`evolve` in this process, with a pool that evaluates nothing."""
    monkeypatch.delenv("FOUNDRY_MODELS", raising=False)
    monkeypatch.setattr(command_line, "pool_for", lambda *_, **__: nullcontext(FakePool()))
    monkeypatch.setattr(command_line, "stop_gently", lambda want: None)
    out = str(tmp_path / "out")
    return lambda options: CliRunner().invoke(
        command_line.app, ["evolve", str(task), "--out", out, *options.split()]
    )


def test_a_missing_file_is_wrong_usage(tmp_path: Path, task: Path) -> None:
    answer = run("evaluate", task, tmp_path / "absent.py", "--json")

    assert (answer.returncode, answer.stdout) == (2, "")
    assert "cannot read" in answer.stderr


def test_a_task_that_breaks_the_contract_is_named_with_its_line(tmp_path: Path, task: Path) -> None:
    task.write_text(TASK.replace("def forward", "def call"))

    answer = run("evaluate", task, task, "--json")

    assert (answer.returncode, answer.stdout) == (2, "")
    assert f"{task}:4: Model has no method forward" in answer.stderr


def test_a_task_over_64_kib_is_refused(task: Path) -> None:
    task.write_text(TASK + "#" * 65536)

    answer = run("lint", task)

    assert answer.returncode == 2
    assert "at most 65,536" in answer.stderr


def test_a_byte_order_mark_is_no_part_of_a_source(task: Path) -> None:
    task.write_text(TASK.replace("def get_inputs", "def make_inputs"), encoding="utf-8-sig")

    answer = run("lint", task)

    assert "defines no get_inputs()" in answer.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--device", "tpu"),
        ("--track", "none"),
        ("--islands", "0"),
        ("--evaluations", "0"),
        ("--seed", "-1"),
    ],
)
def test_options_out_of_their_range_are_wrong_usage(
    arguments: tuple[str, str], tmp_path: Path, task: Path
) -> None:
    answer = run("evolve", task, "--out", tmp_path / "out", *arguments)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr


def test_a_device_that_is_not_there_is_named_with_those_that_are(task: Path) -> None:
    answer = run("evaluate", task, task, "--device", "cuda:7")

    assert (answer.returncode, answer.stdout) == (2, "")
    assert "this machine has: cpu" in answer.stderr


def test_an_unknown_model_profile_is_wrong_usage(tmp_path: Path, task: Path) -> None:
    answer = run("evolve", task, "--out", tmp_path / "out", "--model", "absent")

    assert answer.returncode == 2
    assert "absent" in answer.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--usd 0", "--usd: Input should be greater than 0"),
        ("--usd nan", "--usd: Input should be greater than 0"),
        ("--minutes -1", "--minutes: Input should be greater than 0"),
        ("--gpu-seconds nan", "--gpu-seconds: Input should be greater than 0"),
        ("--iterations 0", "--iterations: Input should be greater than or equal to 1"),
        ("--tokens 0", "--tokens: Input should be greater than or equal to 1"),
        ("--target h9999", "--target: unknown target 'h9999'; expected one of "),
        ("--method sample", "'--method'"),
        ("--best-of-10", "--best-of-10 needs a --model"),
        ("--batch 3", "--batch needs a --model"),
        ("--also other", "--also needs a --model"),
        ("--batch 3 --model absent", "unknown model 'absent'"),
        ("--library absent", "there is no folder of entries in absent"),
    ],
)
def test_an_option_that_cannot_be_is_named(
    evolve: Callable[[str], Result], options: str, words: str
) -> None:
    answer = evolve(options)
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert "pydantic" not in answer.stderr


def test_best_of_10_asks_a_model_ten_times_and_is_resumed_by_name_only(
    evolve: Callable[[str], Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOUNDRY_MODELS", str(tmp_path / "models.toml"))
    with serve(answers()) as endpoint:
        models(tmp_path, endpoint.url)
        direct = evolve("--best-of-10 --model local --tokens 90000")
    assert direct.exit_code == 0, direct.output
    assert len(endpoint.requests) == 10
    told = history(tmp_path / "out")
    assert told.spec == best_of_10(told.spec)
    assert told.spec.budget == Budget(evaluations=10, iterations=10, tokens=90_000)
    assert {candidate.origin for candidate in told.candidates.values()} == {"model:local"}
    other = evolve("--model local --islands 1")
    assert (other.exit_code, "use --method sampling" in other.stderr) == (2, True)


def test_the_switches_of_an_ablation_reach_the_run(
    evolve: Callable[[str], Result], tmp_path: Path
) -> None:
    evolve("--method sampling --no-initialisers --no-diagnosis --no-lessons --iterations 4")
    spec = history(tmp_path / "out").spec
    assert spec.method is Method.SAMPLING
    assert not any((spec.use_initialisers, spec.use_diagnosis, spec.use_library))
    assert (spec.budget.iterations, spec.model) == (4, None)


def test_a_way_of_making_candidates_that_fails_is_said_once_while_the_run_goes_on(
    tmp_path: Path, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = RunSpec(task=TaskSpec(name="t", source=task.read_text()), budget=Budget(evaluations=2))
    with Journal(tmp_path / "out", spec) as journal, show.progress(journal, quiet=False) as watched:
        for _ in range(3):
            watched.note("log", {"text": "rewrite failed: KeyError: 'tf32'"})

        assert len(journal.notes("log")) == 3
    assert capsys.readouterr().err.count("rewrite failed: KeyError: 'tf32'") == 1


def test_where_lessons_cannot_be_kept_none_are_learnt(tmp_path: Path, task: Path) -> None:
    (tmp_path / "file").write_text("")
    given = ["learn", str(task), str(task), "--out", str(tmp_path / "file" / "out")]
    answer = CliRunner().invoke(command_line.app, given)
    assert answer.exit_code == 2
    assert "choose another --out" in answer.stderr


def test_the_command_line_imports_no_torch() -> None:
    code = (
        "import sys, gpu_runner.__main__, gpu_runner.driver, gpu_runner.journal\n"
        "import gpu_runner.bench.running, gpu_runner.bench.comparing\n"
        "print([name for name in ('torch', 'triton', 'libcst', 'django') if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert answer.stdout.strip() == "[]"


def test_where_nothing_is_timed_an_evolution_uses_every_processor_and_at_most_four(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for processors in ({0}, {0, 1}, set(range(16))):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, processors=processors: processors)
        found.append(usual_slots("cpu", "none"))
    assert found == [1, 2, 4]
    assert usual_slots("cuda:99", "none") == 1
