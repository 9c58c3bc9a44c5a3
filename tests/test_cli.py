"""The command line's promises that need no evaluation: usage errors, where messages go, what is not imported."""

import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_command_line_imports_no_torch() -> None:
    code = (
        "import sys, gpu_runner.__main__, gpu_runner.driver, gpu_runner.journal\n"
        "print([name for name in ('torch', 'triton', 'libcst', 'django') if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert answer.stdout.strip() == "[]"
