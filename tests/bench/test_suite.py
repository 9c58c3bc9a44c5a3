from pathlib import Path

import pytest

from gpu_runner.bench.suite import NoSuite, read_suite
from tests.bench.making import suite


def names(folder: Path, *only: str) -> list[str]:
    return [task.name for task in read_suite(folder, only)]


def test_numbered_files_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    suite(tmp_path, "level1/10_relu", "level1/2_gemm", "level2/1_mlp", "level10/3_net")
    assert names(tmp_path) == ["level1/2_gemm", "level1/10_relu", "level2/1_mlp", "level10/3_net"]


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("level1/softmax", "level1"),
        ("serving/decode", "serving"),
        ("KernelBench/level2/1_mlp", "level2"),
        ("serving/attention/decode", "serving"),
        ("level3/blocks/vit", "level3"),
        ("softmax", "mine"),
    ],
)
def test_a_task_is_of_its_levels_folder_or_of_the_suite(
    tmp_path: Path, name: str, level: str
) -> None:
    (task,) = read_suite(suite(tmp_path / "mine", name))
    assert (task.name, task.level, task.problem) == (name, level, "")


def test_files_that_are_no_tasks_by_their_name_are_left_out(tmp_path: Path) -> None:
    suite(tmp_path, "level1/a", "level1/_helper", "__pycache__/b", ".git/c", "level1/__init__")
    (tmp_path / "level1" / "notes.txt").write_text("no task")
    assert names(tmp_path) == ["level1/a"]


def test_kernels_in_a_folder_of_results_inside_the_suite_are_no_tasks(tmp_path: Path) -> None:
    suite(tmp_path, "level1/a", "out/own_kernels-reference/level1/a/best")
    (tmp_path / "out" / "bench.json").write_text("{}")
    assert names(tmp_path) == ["level1/a"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"def x(:", "line 1: invalid syntax"),
        (b"", "the source is empty"),
        (b"x = 1", "defines neither a class Model(nn.Module) nor a function reference"),
        (b"#" * 65_537, "at most 65,536"),
        (b"x = '\xff'", "not valid Unicode"),
    ],
)
def test_what_keeps_a_file_from_being_a_task_is_said_of_it(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    suite(tmp_path, "level1/a")
    (tmp_path / "level1" / "b.py").write_bytes(content)
    good, bad = read_suite(tmp_path)
    assert (good.problem, bad.source) == ("", "")
    assert problem in bad.problem


def test_a_link_to_nothing_is_a_task_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.py").symlink_to(tmp_path / "absent")
    (task,) = read_suite(tmp_path)
    assert task.problem == "cannot be read: No such file or directory"


def test_patterns_name_levels_files_and_paths(tmp_path: Path) -> None:
    suite(tmp_path, "level1/1_relu", "level1/2_gemm", "level2/2_gemm")
    assert (
        names(tmp_path, "level1")
        == names(tmp_path, "level1/")
        == ["level1/1_relu", "level1/2_gemm"]
    )
    assert names(tmp_path, "2_*") == ["level1/2_gemm", "level2/2_gemm"]
    assert names(tmp_path, "level2/2_gemm.py", "1_relu") == ["level1/1_relu", "level2/2_gemm"]


def test_a_pattern_that_names_nothing_is_refused(tmp_path: Path) -> None:
    suite(tmp_path, "level1/a")
    with pytest.raises(NoSuite, match="--only b matches none of the 1 tasks"):
        read_suite(tmp_path, ["a", "b"])


def test_every_file_of_the_built_in_suite_is_a_task() -> None:
    tasks = read_suite(Path(__file__).parents[2] / "examples")
    assert [(task.name, task.problem) for task in tasks if task.problem] == []
    assert {task.level for task in tasks} == {"level1", "level2", "level3", "serving"}


def test_a_folder_without_tasks_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(NoSuite, match=r"holds no task; expected files such as level1/NAME\.py"):
        read_suite(tmp_path)
    with pytest.raises(NoSuite, match="is no folder"):
        read_suite(tmp_path / "absent")
