"""Which tasks a folder in the KernelBench form holds: `level1/1_Square.py`, `serving/decode.py`, or files side by side."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from gpu_runner.core.contract import check_contract
from gpu_runner.core.source import MAX_BYTES

_LEVEL = re.compile(r"level[ _-]?\d+", re.IGNORECASE)
_DIGITS = re.compile(r"(\d+)")


class NoSuite(ValueError):
    """The folder holds nothing to run; the message says what was expected."""


@dataclass(frozen=True)
class SuiteTask:
    """One file of a suite.

    Attributes:
        name: its path below the suite without the suffix, "level1/softmax".
        level: the folder that it is summed up with.
        source: empty where the file cannot be read.
        problem: why it cannot be a task, with its line; empty where it may be one.
    """

    name: str
    level: str
    source: str
    problem: str = ""


def read_suite(folder: Path, only: Sequence[str] = ()) -> list[SuiteTask]:
    """The tasks of a folder in the order of their names, numbers counted as numbers.

    Every Python file below it is one, but those whose name or folder begins with "_" or ".", and those in results of a bench.

    Args:
        only: patterns such as "level1", "level2/3_*" or "softmax"; a task that matches any is taken. None given: all.

    Raises:
        NoSuite: there is no such folder, no task in it, or none that a pattern names.
    """
    if not folder.is_dir():
        raise NoSuite(f"{folder} is no folder; give one with tasks in the KernelBench form")
    found = sorted(_files(folder), key=lambda path: _natural(path.relative_to(folder).as_posix()))
    if not found:
        raise NoSuite(
            f"{folder} holds no task; expected files such as level1/NAME.py with Model and get_inputs"
        )
    tasks = [_task(folder, path) for path in found]
    for pattern in only:
        if not any(_matches(task.name, pattern) for task in tasks):
            raise NoSuite(f"--only {pattern} matches none of the {len(tasks)} tasks of {folder}")
    return [t for t in tasks if not only or any(_matches(t.name, pattern) for pattern in only)]


def _files(folder: Path) -> Iterable[Path]:
    results = {path.parent for path in folder.rglob("bench.json")}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).parts
        is_hidden = any(part.startswith(("_", ".")) for part in parts)
        if not is_hidden and not path.is_dir() and results.isdisjoint(path.parents):
            yield path


def _task(folder: Path, path: Path) -> SuiteTask:
    relative = path.relative_to(folder).with_suffix("")
    source, problem = _read(path)
    return SuiteTask(relative.as_posix(), _level(folder, relative), source, problem)


def _level(folder: Path, relative: Path) -> str:
    """The innermost folder called like a level, else the outermost below the suite, else the suite's own name."""
    folders = relative.parts[:-1]
    named = [part for part in folders if _LEVEL.fullmatch(part)]
    return next(iter((*reversed(named), *folders, folder.resolve().name)))


def _read(path: Path) -> tuple[str, str]:
    """The source, and why it cannot be a task."""
    try:
        content = path.read_bytes()
    except OSError as error:
        return "", f"cannot be read: {error.strerror}"
    if len(content) > MAX_BYTES:
        return "", f"has {len(content):,} bytes; at most {MAX_BYTES:,} are accepted"
    # Bytes that are no UTF-8 become a character that no parser accepts.
    source = content.decode("utf-8-sig", "surrogateescape")
    problems = [
        f"line {problem.line}: {problem.message}" if problem.line else problem.message
        for problem in check_contract(source)
    ]
    return ("", "; ".join(problems)) if problems else (source, "")


def _matches(name: str, pattern: str) -> bool:
    pattern = pattern.removesuffix("/").removesuffix(".py")
    last = name.rpartition("/")[2]
    return (
        fnmatchcase(name, pattern) or fnmatchcase(last, pattern) or name.startswith(f"{pattern}/")
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts "2_b" before "10_a"."""
    parts = _DIGITS.split(name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
