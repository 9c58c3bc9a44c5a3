"""The pool with a scripted judge and scripted players in real sandboxed children."""

import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Stage, Verdict
from gpu_runner.evaluation import devices
from gpu_runner.evaluation import pool as pool_module
from gpu_runner.evaluation.children import Nursery
from gpu_runner.evaluation.devices import DeviceLock, find_device
from gpu_runner.evaluation.errors import (
    ChildCrashed,
    ChildFailed,
    DeviceLost,
    InvalidTask,
    ProtocolError,
    RunnerError,
    TimedOut,
)
from gpu_runner.evaluation.pool import LocalPool
from gpu_runner.evaluation.sandbox import Sandbox
from gpu_runner.evaluation.settings import EvaluationSettings
from tests.evaluation.test_children import kill_tree

pytestmark = pytest.mark.sandbox

CODE = (Path(__file__).parent / "scripted.py",)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalPool]:
    with make_pool(monkeypatch) as pool:
        yield pool


def make_pool(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> LocalPool:
    """A pool whose judges need no torch: its nurseries of all kinds are plain, and one."""
    plain = Nursery("plain", Sandbox("bwrap", CODE), retire_after_s=settings.get("idle_s", 60))
    kinds = ("plain", "interpreter", "compile")
    monkeypatch.setattr(pool_module, "_nurseries", lambda *_: dict.fromkeys(kinds, plain))
    return LocalPool(
        EvaluationSettings(device="cpu", **settings),
        find_device("cpu", sandbox="bwrap"),
        Sandbox("bwrap", CODE),
        judge="scripted:judge",
        player="scripted:player",
    )


def task(source: str = "fine", name: str = "t") -> TaskSpec:
    return TaskSpec(name=name, source=source)


def steps(*steps: tuple[str, Any]) -> str:
    return json.dumps(steps)


def seen(evaluation: Evaluation) -> dict[str, Any]:
    return dict(evaluation.profile["seen"])


def processes() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def test_an_evaluation_comes_back_with_the_environment(pool: LocalPool) -> None:
    evaluation = pool.evaluate(task(), steps())
    assert evaluation.verdict is Verdict.CORRECT
    assert evaluation.device == pool.device.name == "cpu"
    assert evaluation.environment["judge"] > 0
    assert evaluation.environment["sandbox"] == "bwrap"
    assert set(pool.device.fingerprint) <= set(evaluation.environment)


def test_the_judge_is_told_the_device_and_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_pool(monkeypatch, seed=7, max_autotune=True) as pool:
        options = pool.evaluate(task(), steps()).profile["options"]
    assert options["do"] == "open"
    assert TaskSpec.model_validate(options["task"]) == task()
    told = {key: options[key] for key in ("device", "device_name", "seed", "max_autotune")}
    assert told == {"device": "cpu", "device_name": "cpu", "seed": 7, "max_autotune": True}


def test_stages_are_passed_on_in_order(pool: LocalPool) -> None:
    stages: list[Stage] = []
    script = steps(("stage", "static"), ("stage", "load"), ("stage", "timing"))
    pool.evaluate(task(), script, on_stage=stages.append)
    assert stages == [Stage.STATIC, Stage.LOAD, Stage.TIMING]


def test_a_judge_lives_as_long_as_its_task(pool: LocalPool) -> None:
    judges = [
        seen_judge(pool, task("a")),
        seen_judge(pool, task("a")),
        seen_judge(pool, task("b")),
    ]
    assert judges[0] == judges[1]
    assert len(living_children(pool)) == 1


def seen_judge(pool: LocalPool, spec: TaskSpec) -> int:
    pool.evaluate(spec, steps())
    (judge,) = living_children(pool)
    return judge


def living_children(pool: LocalPool) -> set[int]:
    return {child.pid for child in pool._nursery("plain")._children}


def test_an_invalid_task_names_reason_and_line(pool: LocalPool) -> None:
    for call in (pool.inspect, lambda spec: pool.evaluate(spec, steps())):
        with pytest.raises(InvalidTask) as caught:
            call(task("invalid"))
        assert (caught.value.reason, caught.value.line) == ("there is no Model", 3)
    assert pool.evaluate(task(), steps()).is_correct


@pytest.mark.parametrize(
    ("source", "error"), [("judge fails", RunnerError), ("device lost", DeviceLost)]
)
def test_a_judge_that_cannot_go_on_is_our_failure(
    pool: LocalPool, source: str, error: type[RunnerError]
) -> None:
    with pytest.raises(error):
        pool.evaluate(task(source), steps())
    assert pool.evaluate(task(), steps()).is_correct


def test_players_are_handed_to_the_judge(pool: LocalPool) -> None:
    script = steps(("need", 1), ("need", 2), ("ask", {"player": 2}), ("drop", 1), ("drop", 2))
    told = seen(pool.evaluate(task(), script))
    assert told["need"] == {"player": 2}
    assert int(told["ask"]["capabilities"], 16) == 0
    assert told["drop"] == {
        "exit": 2,
        "code": None,
        "signal": 9,
        "oom": False,
        "reason": "killed",
        "output": "",
    }


def test_a_player_that_dies_is_seen_and_told(pool: LocalPool) -> None:
    script = steps(("need", 1), ("tell", 1), ("eof", 1), ("drop", 1))
    told = seen(pool.evaluate(task(), script))
    assert told["eof"] is True
    assert (told["drop"]["code"], told["drop"]["signal"]) == (9, None)
    assert "the player dies" in told["drop"]["output"]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"drop": 5}, "no player 5"),
        ({"drop": "x"}, "no player 'x'"),
        ({"need": "player", "nursery": "cuda", "id": 1}, "no 'cuda' children"),
        ({"need": "player", "nursery": "plain", "id": "x"}, "cannot be numbered"),
        ({"stage": "lunch"}, "unknown stage"),
        ({"evaluation": {"verdict": "splendid"}}, "does not fit"),
        ({"evaluation": None}, "does not fit"),
        ({"unheard": "of"}, "does not fit"),
    ],
)
def test_what_a_judge_may_not_say_is_a_protocol_error(
    pool: LocalPool, message: dict[str, Any], told: str
) -> None:
    with pytest.raises(ProtocolError, match=told):
        pool.evaluate(task(), steps(("raw", message), ("sleep", 60)))
    assert pool.evaluate(task(), steps()).is_correct


def test_a_player_killed_from_outside_is_our_failure(pool: LocalPool) -> None:
    # Players of their own zygote, so that the judge lives on and might take it for the candidate's end.
    players = Nursery("plain", Sandbox("bwrap", CODE))
    pool._nurseries["plain"] = players

    def kill_zygote(stage: Stage) -> None:
        assert players.zygote_pid is not None
        kill_tree(players.zygote_pid)

    script = steps(("need", 1), ("stage", "load"), ("eof", 1), ("drop", 1))
    with pytest.raises(RunnerError, match="a player is lost"):
        pool.evaluate(task(), script, on_stage=kill_zygote)
    assert pool.evaluate(task(), steps(("need", 1), ("drop", 1))).is_correct


def test_a_judge_that_dies_is_our_failure_and_is_replaced(pool: LocalPool) -> None:
    with pytest.raises(ChildCrashed, match="exit code 5; it said: the judge gives up"):
        pool.evaluate(task(), steps(("need", 1), ("exit", 5)))
    assert living_children(pool) == set()
    assert pool.evaluate(task(), steps()).is_correct


def test_the_deadline_ends_judge_and_players(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_pool(monkeypatch, evaluation_s=0.5) as pool:
        with pytest.raises(TimedOut, match=r"no answer in 0\.5 s"):
            pool.evaluate(task(), steps(("need", 1), ("sleep", 60)))
        assert living_children(pool) == set()


def test_an_error_of_the_watcher_costs_the_judge_not_the_pool(pool: LocalPool) -> None:
    def refuse(stage: Stage) -> None:
        raise KeyError(stage)

    with pytest.raises(KeyError):
        pool.evaluate(task(), steps(("stage", "load"), ("sleep", 60)), on_stage=refuse)
    assert living_children(pool) == set()
    assert pool.evaluate(task(), steps()).is_correct


def test_an_evaluation_says_how_long_it_held_the_device_to_time(
    pool: LocalPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices.tempfile, "tempdir", str(tmp_path))
    pool._all[0].lock = DeviceLock("a-device")
    script = steps(("quiet", 1), ("sleep", 0.2), ("stage", "profile"), ("sleep", 0.2))
    for _ in range(2):
        held_s = pool.evaluate(task(), script).profile["held_s"]
        assert 0.2 <= held_s < 0.4
    assert "held_s" not in pool.evaluate(task(), steps(("stage", "timing"))).profile


def test_quiet_is_granted(pool: LocalPool) -> None:
    assert seen(pool.evaluate(task(), steps(("quiet", 1))))["quiet"] == {"quiet": True}


def test_inspection_fills_the_graph(pool: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def call(entry: str, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        asked.append((entry, request))
        return {"nodes": [1]}

    monkeypatch.setattr(pool, "call", call)
    report = pool.inspect(task("with a probe"))
    assert pool.inspect(task("with a probe")).graph == report.graph == {"nodes": [1]}
    request = {"source": "with a probe", "probe_source": "PROBE"}
    assert asked == [("gpu_runner.proposals.child.trace:trace", request)]
    assert report.probe == {"N": 8}


def test_a_task_that_cannot_be_traced_has_an_empty_graph(
    pool: LocalPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(*_: Any, **__: Any) -> dict[str, Any]:
        raise ChildFailed("no")

    monkeypatch.setattr(pool, "call", call)
    assert pool.inspect(task()).graph == {}


def test_slots_work_at_the_same_time_and_no_more_than_them(monkeypatch: pytest.MonkeyPatch) -> None:
    guard, inside, most = threading.Lock(), 0, 0

    def watch(_: Stage) -> None:
        nonlocal inside, most
        with guard:
            inside += 1
            most = max(most, inside)
        time.sleep(0.5)
        with guard:
            inside -= 1

    with make_pool(monkeypatch, slots=2) as pool:
        done: list[Evaluation] = []

        def run(number: int) -> None:
            script = steps(("stage", "load"))
            done.append(pool.evaluate(task(str(number)), script, on_stage=watch))

        threads = [threading.Thread(target=run, args=(n,)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(done) == 5
    assert most == 2


def test_an_idle_pool_lets_go_of_all_processes_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = processes()
    with make_pool(monkeypatch, judge_idle_s=0.2, idle_s=0.2) as pool:
        pool.evaluate(task(), steps())
        assert len(living_children(pool)) == 1
        deadline = time.monotonic() + 10
        while processes() != before and time.monotonic() < deadline:
            time.sleep(0.02)
        assert processes() == before
        assert pool.evaluate(task(), steps()).is_correct


def test_a_call_returns_what_the_function_returns(pool: LocalPool) -> None:
    assert pool.call("scripted:double", {"n": 21}) == {"n": 42}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fail", "ValueError: no such thing"),
        ("absent", "has no attribute 'absent'"),
        ("return_a_number", "returned no dict"),
        ("return_what_is_no_json", "no JSON"),
        ("return_too_much", "at most"),
        ("die", "exit code 3; it said: last words"),
    ],
)
def test_a_call_that_fails_says_why(pool: LocalPool, name: str, told: str) -> None:
    with pytest.raises(ChildFailed) as caught:
        pool.call(f"scripted:{name}", {})
    assert told in caught.value.detail


def test_a_call_killed_from_outside_is_made_again(pool: LocalPool) -> None:
    answers: list[dict[str, Any]] = []
    call = threading.Thread(
        target=lambda: answers.append(pool.call("scripted:double_later", {"n": 4}))
    )
    call.start()
    while not any(child._pidfd >= 0 for child in pool._nursery("plain")._children):
        time.sleep(0.01)
    zygote = pool._nursery("plain").zygote_pid
    assert zygote is not None
    kill_tree(zygote)
    call.join(timeout=30)
    assert answers == [{"n": 8}]


def test_a_call_has_a_deadline(pool: LocalPool) -> None:
    with pytest.raises(ChildFailed, match=r"no answer within 0\.3 s"):
        pool.call("scripted:never_return", {}, timeout_s=0.3)


def test_closing_leaves_nothing_and_ends_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before, fds = processes(), len(os.listdir("/proc/self/fd"))
    pool = make_pool(monkeypatch)
    errors: list[Exception] = []

    def run() -> None:
        try:
            pool.evaluate(task(), steps(("need", 1), ("sleep", 60)))
        except RunnerError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1)
    pool.close()
    thread.join(10)
    assert len(errors) == 1
    assert processes() == before
    assert len(os.listdir("/proc/self/fd")) == fds
    with pytest.raises(RunnerError, match="closed"):
        pool.evaluate(task(), steps())


EVALUATE = """
import sys
from pathlib import Path
from gpu_runner.core.task import TaskSpec
from gpu_runner.evaluation.pool import open_pool
from gpu_runner.evaluation.settings import EvaluationSettings

case = Path(sys.argv[1])
task = TaskSpec(name="t", source=(case / "reference.py").read_text())
with open_pool(EvaluationSettings(device="cpu")) as pool:
    print(pool.evaluate(task, (case / "candidate.py").read_text()).verdict)
heavy = {"torch", "triton", "libcst", "django"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_real_evaluation_needs_no_torch_in_the_owner_and_leaves_nothing(tmp_path: Path) -> None:
    case = Path(__file__).parents[1] / "cases" / "05_ok_helpers_named_like_torch"
    before = {child.pid for child in psutil.Process().children()}
    with adopting_orphans():
        done = subprocess.run(
            [sys.executable, "-c", EVALUATE, str(case)],
            env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
        )
    assert (done.stdout, done.returncode) == ("correct\n", 0), done.stderr
    assert not running_besides(before)
    assert list(tmp_path.iterdir()) == []


def running_besides(before: set[int]) -> list[psutil.Process]:
    """Children of this process that still run; those that are over are waited for."""
    running = []
    for child in psutil.Process().children():
        if child.status() == psutil.STATUS_ZOMBIE:
            child.wait()
        elif child.pid not in before:
            running.append(child)
    return running


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Meanwhile what a child of this process leaves running becomes a child of this process, not of the first one."""
    prctl, set_child_subreaper = ctypes.CDLL(None).prctl, 36
    assert prctl(set_child_subreaper, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(set_child_subreaper, 0, 0, 0, 0)
