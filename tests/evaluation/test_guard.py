"""The hook lays an event to the submitted module only if nobody else asked for it."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from gpu_runner.evaluation.child import dispatch, guard, immutable, stand_in, tells

WATCH = """
import json, sys, types
import torch, triton
from gpu_runner.evaluation.child import guard

path = sys.argv[1]
seen = guard.install([("torch", torch), ("torch.Tensor", torch.Tensor)], is_own=lambda f: f == path)
try:
    exec(compile(open(path).read(), path, "exec"), {"__name__": "submission", "torch": torch})
except SystemExit:
    pass
print("SEEN" + json.dumps([[a.what, a.line] for a in seen.compare()]))
"""


def accused(tmp_path: Path, source: str, *libraries: Path) -> list[list[object]]:
    path = tmp_path / "submission.py"
    path.write_text(textwrap.dedent(source))
    run = subprocess.run(
        [sys.executable, "-c", WATCH, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
        env={
            "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parents[2], *libraries))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": "/usr/bin:/bin",
        },
    )
    told = [line for line in run.stdout.splitlines() if line.startswith("SEEN")]
    assert told, run.stderr[-1500:]
    found: list[list[object]] = json.loads(told[0][4:])
    return found


GUILTY = """
def attempt(function):
    try:
        function()
    except Exception:
        pass

import ctypes, gc, inspect, os, signal, socket, subprocess, sys, threading, traceback
attempt(lambda: sys._getframe(1))
attempt(lambda: inspect.currentframe())
attempt(lambda: gc.get_objects())
attempt(lambda: ctypes.string_at(id(1), 8))
attempt(lambda: subprocess.run(["true"]))
attempt(lambda: socket.socket())
attempt(lambda: open("written", "w").close())
attempt(lambda: open("/proc/self/maps").read())
attempt(lambda: sys.addaudithook(lambda *a: None))
attempt(lambda: threading.Thread(target=int).start())
attempt(lambda: compile("1", os.__file__, "eval"))
attempt(lambda: os.remove("written"))
attempt(lambda: signal.signal(signal.SIGALRM, print))
attempt(lambda: signal.setitimer(signal.ITIMER_REAL, 100.0))
attempt(lambda: __import__("gpu_runner.core.diff"))
try:
    1 / 0
except ZeroDivisionError as error:
    error.__traceback__.tb_frame
gc.callbacks.append(lambda phase, info: None)
class Finder:
    def find_spec(self, *a):
        return None
sys.meta_path.append(Finder())
torch.allclose = lambda *a: True
"""

INNOCENT = """
import collections, dataclasses, enum, functools, inspect, logging, os, tempfile, traceback, typing, warnings
import math, time, random, itertools, json, contextlib, abc, gc, signal
collections.namedtuple("P", "a b")
typing.NamedTuple("Q", [("a", int)])
T = typing.TypeVar("T")
enum.Enum("E", "A B")
@dataclasses.dataclass
class D:
    a: int = 1
logging.basicConfig()
logging.getLogger("x").warning("noise")
warnings.warn("noise")
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
    traceback.format_exc()
inspect.signature(D)
open(os.__file__).read(10)
open(os.devnull, "w").close()
gc.collect()
signal.getsignal(signal.SIGTERM)
time.perf_counter()
random.random()
x = torch.randn(3, 3)
torch.nn.functional.softmax(x @ x, dim=1)
torch.set_default_dtype(torch.float32)
torch.manual_seed(3)
print(x, inspect.getsource(D) if False else "")
"""


def test_every_reach_is_accused_at_its_line(tmp_path: Path) -> None:
    lines = GUILTY.splitlines()
    wanted = [
        i + 1
        for i, line in enumerate(lines)
        if any(
            word in line for word in ("attempt(lambda", "tb_frame", "callbacks.append", "find_spec")
        )
    ]

    found = accused(tmp_path, GUILTY)

    assert {line for _, line in found} >= set(wanted)
    assert ["torch.allclose", len(lines)] in found


def test_ordinary_python_is_not_accused(tmp_path: Path) -> None:
    assert accused(tmp_path, INNOCENT) == []


@pytest.mark.parametrize(
    "source",
    [
        "exec('import gc; gc.get_objects()')",
        "import functools\nfunctools.reduce(lambda a, b: __import__('gc').get_objects(), [1, 2])",
        "import gc\nlist(map(gc.get_referrers, [1]))",
        "names = {}\nexec('import sys\\ndef f(): return sys._getframe(0)', names)\nnames['f']()",
        "import logging\nlogging.currentframe()",
        "names = {}\nexec('def f(e): return e.__traceback__.tb_frame', names)\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    names['f'](error)",
    ],
)
def test_a_detour_through_the_library_is_no_excuse(tmp_path: Path, source: str) -> None:
    assert accused(tmp_path, source)


def test_asking_how_many_devices_there_are_is_no_reach_for_memory(tmp_path: Path) -> None:
    """torch asks the driver's own library by ctypes, where there is one and where there is none."""
    attempt = "try:\n    torch.{}\nexcept OSError:\n    pass\n"
    assert accused(tmp_path, attempt.format("cuda._raw_device_count_nvml()")) == []
    assert accused(tmp_path, attempt.format("ops.load_library('own.so')")) == [["ctypes.dlopen", 2]]


def test_who_has_triton_build_c_starts_the_compiler_himself(tmp_path: Path) -> None:
    builds = """
from triton.runtime.build import compile_module_from_src
compile_module_from_src(src="int answer;", name="own")
"""
    assert ["subprocess.Popen", 3] in accused(
        tmp_path, f"try:{textwrap.indent(builds, ' ')}except Exception: pass"
    )


@pytest.mark.parametrize("body", ["", "VALUE = 1\n"])
def test_an_import_of_a_library_without_bytecode_is_no_forgery(tmp_path: Path, body: str) -> None:
    library = tmp_path / "library"
    for folder in ("late", "late-1.dist-info"):
        (library / folder).mkdir(parents=True)
    (library / "late" / "__init__.py").write_text(body)
    assert accused(tmp_path, "import late", library) == []
    forged = f"compile('VALUE = 2', {str(library / 'late' / '__init__.py')!r}, 'exec')"
    assert accused(tmp_path, forged, library) == [["compile", 1]]


def test_a_changed_body_is_a_change(tmp_path: Path) -> None:
    source = "def fake(*a, **k):\n    return None\ntorch.compile.__code__ = fake.__code__\n"

    assert "torch.compile" in {what for what, _ in accused(tmp_path, source)}


@pytest.mark.parametrize(
    "source",
    [
        "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError as error:\n"
        "    list(traceback.walk_tb(error.__traceback__))",
        "import inspect\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    inspect.trace()",
        "async def look():\n    yield running.ag_frame\nrunning = look()\n"
        "try:\n    running.__anext__().send(None)\nexcept StopIteration:\n    pass",
        "torch.Tensor.__repr__.__kwdefaults__ = {'tensor_contents': 'none'}",
    ],
)
def test_frames_and_defaults_of_others_are_not_handed_out(tmp_path: Path, source: str) -> None:
    assert accused(tmp_path, source)


OWN, PACKAGE = "/tmp/submission.py", torch.__file__


@pytest.mark.parametrize(
    ("filename", "kind"),
    [
        (OWN, "own"),
        ("/tmp/torch/_generated.py", "own"),
        ("torch", "own"),
        ("<string>", "generated"),
        ("<eval_with_key>.3", "generated"),
        ("<frozen importlib._bootstrap>", "standard"),
        (json.__file__, "standard"),
        (PACKAGE, "package"),
        (guard.__file__, "harness"),
    ],
)
def test_code_belongs_to_the_module_unless_somebody_elses_file_has_it(
    filename: str, kind: str
) -> None:
    assert guard.kind_of(filename, lambda f: f == OWN) == kind


def test_a_frozen_class_cannot_be_changed_even_for_a_moment() -> None:
    class Watch:
        def look(self) -> int:
            return 1

    immutable.freeze([Watch])

    with pytest.raises(TypeError):
        Watch.look = lambda self: 2  # type: ignore[method-assign]
    watch = Watch()
    watch.seen = 3  # type: ignore[attr-defined]
    assert watch.look() == 1


def test_what_stands_in_for_torch_can_be_replaced_and_told_of() -> None:
    frozen = set(tells._classes())

    assert dispatch.Recorder in frozen
    assert stand_in.StandInEvent not in frozen
