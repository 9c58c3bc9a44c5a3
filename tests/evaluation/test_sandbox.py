"""The recipe itself, and that the self-test sees the leaks it is there to see."""

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpu_runner.evaluation import sandbox as sandbox_module
from gpu_runner.evaluation.errors import SandboxMissing
from gpu_runner.evaluation.sandbox import Sandbox
from gpu_runner.evaluation.selftest import ensure_tight, self_test

pytestmark = pytest.mark.sandbox
ROOT = Path(__file__).resolve().parents[2]


class Leaky(Sandbox):
    """A sandbox with some words of its command line replaced, as a careless edit would."""

    changes: dict[tuple[str, ...], tuple[str, ...]] = {}

    def command(self, *args: object, **kwargs: object) -> list[str]:
        words = super().command(*args, **kwargs)  # type: ignore[arg-type]
        for old, new in self.changes.items():
            words = _replaced(words, old, new)
        return words


def _replaced(words: Sequence[str], old: Sequence[str], new: Sequence[str]) -> list[str]:
    for start in range(len(words)):
        if tuple(words[start : start + len(old)]) == tuple(old):
            return [*words[:start], *new, *words[start + len(old) :]]
    raise AssertionError(f"{old} is not in the command")


def test_no_escape_succeeds() -> None:
    assert self_test(Sandbox("bwrap")) == []
    ensure_tight(Sandbox("bwrap"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (("--remount-ro", "/"), (), "writes outside its private folders: /"),
        (("--remount-ro", "/dev"), (), "writes outside its private folders: /dev"),
        (("--dev", "/dev"), ("--ro-bind", "/etc", "/etc", "--dev", "/dev"), "reads host files"),
        (("--clearenv",), ("--clearenv", "--setenv", "SECRET", "x"), "inherits variables: SECRET"),
    ],
)
def test_a_leak_is_found(old: tuple[str, ...], new: tuple[str, ...], told: str) -> None:
    leaky = Leaky("bwrap")
    leaky.__dict__["changes"] = {old: new}
    found = self_test(leaky)
    assert any(told in line for line in found), found


def test_a_sandbox_that_leaks_is_refused() -> None:
    leaky = Leaky("bwrap")
    leaky.__dict__["changes"] = {("--remount-ro", "/"): ()}
    with pytest.raises(SandboxMissing, match="leaks"):
        ensure_tight(leaky)


def test_the_host_itself_is_never_tested() -> None:
    with pytest.raises(ValueError, match="no sandbox"):
        self_test(Sandbox("none"))


def test_the_root_of_the_host_is_never_bound() -> None:
    words = Sandbox("bwrap").command(["-c", ""], {})
    binds = [words[n + 1] for n, word in enumerate(words) if word.startswith("--ro-bind")]
    assert "/" not in binds
    assert not {"/root", "/home", "/etc", "/var", "/run"} & set(binds)


def test_device_nodes_are_bound_only_when_asked_for() -> None:
    plain = Sandbox("bwrap").command(["-c", ""], {})
    cuda = Sandbox("bwrap").command(["-c", ""], {}, devices=["/dev/nvidia1"])
    assert "--dev-bind" not in plain
    assert cuda[cuda.index("--dev-bind") : cuda.index("--dev-bind") + 3] == [
        "--dev-bind",
        "/dev/nvidia1",
        "/dev/nvidia1",
    ]


def test_folders_are_bound_once_and_not_inside_each_other() -> None:
    paths = sandbox_module._readable()
    assert len(paths) == len(set(paths))
    pairs = [(a, b) for a in paths for b in paths if a != b]
    assert not [pair for pair in pairs if Path(pair[0]).is_relative_to(pair[1])]


def test_none_runs_the_same_python_without_a_box() -> None:
    words = Sandbox("none").command(["-m", "this"], {})
    assert words[1:] == ["-m", "this"]
    assert "bwrap" not in words


def test_an_environment_below_tmp_is_seen_by_children_and_nothing_else_there_is(
    tmp_path: Path,
) -> None:
    """Each child covers /tmp with its own; a checkout may lie there all the same."""
    assert tmp_path.is_relative_to("/tmp")
    venv.create(tmp_path / "venv", symlinks=True, with_pip=False)
    (tmp_path / "secret").write_text("not for children")
    code = (
        "from gpu_runner.evaluation.sandbox import Sandbox\n"
        "from gpu_runner.evaluation.selftest import self_test\n"
        "print(self_test(Sandbox('bwrap')))"
    )
    packages = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]

    done = subprocess.run(
        [tmp_path / "venv/bin/python", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(packages)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.stdout.strip() == "[]", done.stderr
