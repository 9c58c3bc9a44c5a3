"""Nurseries and children as their owner sees them; real processes throughout."""

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gpu_runner.evaluation.children import Child, Limits, Nursery
from gpu_runner.evaluation.errors import ChildCrashed, SandboxMissing, TimedOut
from gpu_runner.evaluation.sandbox import Sandbox

pytestmark = pytest.mark.sandbox

CODE = (Path(__file__).parent / "misbehaving.py",)
LIMITS = Limits(wall_s=60, memory_bytes=1 << 30)


@pytest.fixture(scope="module", params=["bwrap", "none"])
def nursery(request: pytest.FixtureRequest) -> Iterator[Nursery]:
    nursery = Nursery("plain", Sandbox(request.param, CODE))
    yield nursery
    nursery.close()


def fork(nursery: Nursery, name: str, limits: Limits = LIMITS) -> Child:
    return nursery.fork(f"misbehaving:{name}", limits=limits)


def descendants() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def shared_size(pid: int) -> int:
    """Proportional set size in bytes; 0 for a process that has just ended."""
    try:
        return psutil.Process(pid).memory_full_info().pss
    except psutil.NoSuchProcess:
        return 0


def kill_tree(pid: int) -> None:
    root = psutil.Process(pid)
    for process in [*root.children(recursive=True), root]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def wait_until(claim: Callable[[], bool], timeout_s: float = 5.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.01)
    return claim()


def test_a_child_answers_and_ends(nursery: Nursery) -> None:
    files = {"candidate.py": b"x = 1\n", "second.txt": b""}
    with nursery.fork("misbehaving:hello", work_files=files, limits=LIMITS) as child:
        child.channel.send({"question": 1})
        answer, _ = child.channel.receive(10)
        exit_ = child.wait(10)
    assert answer["echo"] == {"question": 1}
    assert answer["files"] == ["candidate.py", "second.txt"]
    assert (exit_.code, exit_.signal, exit_.reason) == (0, None, "exited")
    assert child.output() == "hello from the child\n"
    assert not Path(answer["folder"]).exists()


@pytest.mark.parametrize(
    ("name", "code", "number"),
    [
        ("exit_with_7", 7, None),
        ("crash", None, signal.SIGSEGV),
        ("abort", None, signal.SIGABRT),
        ("kill_itself", None, signal.SIGKILL),
        ("raise_an_error", 1, None),
    ],
)
def test_how_a_child_ended_is_told(
    nursery: Nursery, name: str, code: int | None, number: int | None
) -> None:
    with fork(nursery, name) as child:
        with pytest.raises(ChildCrashed):
            child.channel.receive(10)
        exit_ = child.kill()
    assert (exit_.code, exit_.signal, exit_.reason) == (code, number, "exited")


def test_an_error_of_the_entry_is_in_the_output(nursery: Nursery) -> None:
    with fork(nursery, "raise_an_error") as child:
        child.wait(10)
    assert "ValueError: what the child says" in child.output()


def test_an_entry_that_does_not_exist_is_a_crash_with_a_reason(nursery: Nursery) -> None:
    with nursery.fork("no.such.module:main", limits=LIMITS) as child:
        assert child.wait(10).code == 1
    assert "No module named 'no'" in child.output()


def test_descriptors_reach_the_child_in_their_order(nursery: Nursery) -> None:
    pipes = [os.pipe() for _ in range(2)]
    for number, (_, write_end) in enumerate(pipes):
        os.write(write_end, f"pipe {number}".encode())
    reads = [read_end for read_end, _ in pipes]
    with nursery.fork("misbehaving:read_fd", fds=reads, limits=LIMITS) as child:
        assert child.channel.receive(10)[0] == {"read": ["pipe 0", "pipe 1"]}
    for pipe in pipes:
        for fd in pipe:
            os.close(fd)


def test_nothing_of_our_environment_is_inherited(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOUNDRY_MODEL_KEY_TEST", "secret")
    nursery.close()
    fresh = Nursery("plain", nursery.sandbox)
    try:
        with fork(fresh, "environment") as child:
            answer, _ = child.channel.receive(10)
    finally:
        fresh.close()
        nursery.__init__("plain", nursery.sandbox)  # type: ignore[misc]
    assert "secret" not in str(answer)
    assert answer["stdin"] == ""


def test_children_that_give_way_do_so_to_other_sessions_too(nursery: Nursery) -> None:
    with (
        contextlib.closing(Nursery("plain", nursery.sandbox, niceness=7)) as nice,
        fork(nice, "niceness") as child,
    ):
        answer, _ = child.channel.receive(10)
    assert answer["own"] == os.getpriority(os.PRIO_PROCESS, 0) + 7
    assert answer["of its session"] in (None, answer["own"])


def test_waiting_does_not_end_a_child(nursery: Nursery) -> None:
    with fork(nursery, "hang_ignoring_signals") as child:
        child.channel.receive(10)
        with pytest.raises(TimedOut):
            child.wait(0.1)
        pid = child.pid
        assert psutil.pid_exists(pid)
        assert child.kill().reason == "killed"
    assert wait_until(lambda: not psutil.pid_exists(pid))


def test_the_wall_limit_ends_a_child_without_its_owner(nursery: Nursery) -> None:
    with fork(nursery, "hang_ignoring_signals", Limits(wall_s=0.3)) as child:
        exit_ = child.wait(5)
    assert (exit_.reason, exit_.signal) == ("deadline", signal.SIGKILL)


def test_killing_takes_little_time(nursery: Nursery) -> None:
    with fork(nursery, "hang_ignoring_signals") as child:
        child.channel.receive(10)
        start = time.monotonic()
        child.kill()
    assert time.monotonic() - start < 1


def test_a_warm_fork_takes_milliseconds(nursery: Nursery) -> None:
    times = []
    for _ in range(10):
        start = time.monotonic()
        with fork(nursery, "hello") as child:
            times.append(time.monotonic() - start)
            child.kill()
    assert min(times) < 0.1


def test_only_the_end_of_much_output_is_kept(nursery: Nursery) -> None:
    with fork(nursery, "print_much_and_end", Limits(output_bytes=1000)) as child:
        child.wait(20)
    head, _, tail = child.output().partition("\n")
    assert head.endswith("bytes left out]")
    assert tail.endswith("the last line\n")
    assert len(tail) <= 1000


def test_several_threads_may_fork_at_once(nursery: Nursery) -> None:
    answers = []

    def ask(number: int) -> None:
        with fork(nursery, "hello") as child:
            child.channel.send({"n": number})
            answers.append(child.channel.receive(20)[0]["echo"]["n"])

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(8))


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".."])
def test_work_files_have_plain_names(nursery: Nursery, name: str) -> None:
    with pytest.raises(ValueError, match="plain name"):
        nursery.fork("misbehaving:hello", work_files={name: b""}, limits=LIMITS)


def test_a_dead_zygote_is_replaced(nursery: Nursery) -> None:
    with fork(nursery, "hello"):
        pass
    killed = nursery.zygote_pid
    assert killed is not None
    kill_tree(killed)
    with fork(nursery, "hello") as child:
        child.channel.send({})
        assert child.channel.receive(10)[0]["echo"] == {}
    assert nursery.zygote_pid != killed


@pytest.mark.parametrize("below", [False, True])
def test_a_zygote_killed_while_it_starts_is_replaced(below: bool) -> None:
    nursery = Nursery("plain", Sandbox("bwrap", CODE))
    nursery.warm()
    first = nursery.zygote_pid
    assert first is not None
    if below:
        assert wait_until(lambda: bool(psutil.Process(first).children()))
        for process in psutil.Process(first).children():
            process.kill()
    else:
        psutil.Process(first).kill()
    with fork(nursery, "hello") as child:
        child.channel.send({})
        assert child.channel.receive(10)[0]["echo"] == {}
    nursery.close()


def test_children_of_a_dead_zygote_are_crashed_not_lost() -> None:
    nursery = Nursery("plain", Sandbox("bwrap", CODE))
    with fork(nursery, "hang_ignoring_signals") as child:
        child.channel.receive(10)
        assert nursery.zygote_pid is not None
        kill_tree(nursery.zygote_pid)
        end = child.wait(5)
        assert (end.signal, end.is_lost) == (signal.SIGKILL, True)
    nursery.close()


def test_a_zygote_retires_when_idle_and_comes_back() -> None:
    before = descendants()
    nursery = Nursery("plain", Sandbox("bwrap", CODE), retire_after_s=0.2)
    with fork(nursery, "hang_ignoring_signals") as child:
        time.sleep(0.4)
        assert nursery.zygote_pid is not None
        child.kill()
    assert wait_until(lambda: nursery.zygote_pid is None)
    assert descendants() == before
    with fork(nursery, "hello"):
        pass
    nursery.close()


def test_closing_ends_everything_and_leaks_no_descriptor() -> None:
    gc.collect()
    before, fds = descendants(), len(os.listdir("/proc/self/fd"))
    nursery = Nursery("plain", Sandbox("bwrap", CODE))
    children = [fork(nursery, "hang_ignoring_signals") for _ in range(3)]
    nursery.close()
    for child in children:
        with child:
            assert child.wait(5).signal == signal.SIGKILL
    assert wait_until(lambda: descendants() == before)
    assert len(os.listdir("/proc/self/fd")) == fds


OWNER = """
import sys, time
from pathlib import Path
from gpu_runner.evaluation.children import Limits, Nursery
from gpu_runner.evaluation.sandbox import Sandbox
nursery = Nursery("plain", Sandbox(sys.argv[1], (Path(sys.argv[2]),)))
child = nursery.fork("misbehaving:daemonise", limits=Limits(wall_s=300))
child.channel.receive(10)
print("ready", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("mode", ["bwrap", "none"])
def test_nothing_outlives_an_owner_that_is_killed(mode: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, mode, str(CODE[0])], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    started = psutil.Process(owner.pid).children(recursive=True)
    assert len(started) >= 4
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert psutil.wait_procs(started, timeout=10)[1] == []


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="plain, interpreter, compile, cuda"):
        Nursery("quantum", Sandbox("none"))  # type: ignore[arg-type]


def test_a_zygote_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/false")
    nursery = Nursery("plain", Sandbox("bwrap"))
    with pytest.raises(SandboxMissing, match=r"no child starts: .* doctor"):
        nursery.fork("misbehaving:hello", limits=LIMITS)
    nursery.close()


def test_a_missing_bubblewrap_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxMissing, match="apt-get install bubblewrap"):
        Nursery("plain", Sandbox("bwrap"))
    Nursery("plain", Sandbox("none"))


def test_warm_kinds_start_side_by_side_and_share_most_memory() -> None:
    """Two zygotes with all that children would import first: about 520 MB together (PSS)."""
    others = descendants()
    kinds = [Nursery(kind, Sandbox("bwrap", CODE)) for kind in ("interpreter", "compile")]
    try:
        for nursery in kinds:
            nursery.warm()
        answers = []
        for nursery in kinds:
            with fork(nursery, "import_torch_and_add") as child:
                answers.append(child.channel.receive(60)[0])
        assert answers == [
            {"total": 2000.0, "interpret": "1", "cuda": False},
            {"total": 2000.0, "interpret": None, "cuda": False},
        ]
        assert 100 << 20 < sum(map(shared_size, descendants() - others)) < 650 << 20
    finally:
        for nursery in kinds:
            nursery.close()


def test_the_owner_never_imports_torch_triton_or_libcst() -> None:
    code = """
import sys
from pathlib import Path
from gpu_runner.evaluation import children, devices, pool, selftest, session, settings
from gpu_runner import doctor
heavy = {"torch", "triton", "libcst", "django"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_zygote_whose_runner_died_before_it_started_imports_nothing() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    command = [sys.executable, "-v", "-m", "gpu_runner.evaluation.child.zygote", "compile"]
    ours.close()

    ended = subprocess.run(
        [*command, str(theirs.fileno()), "none", "0"],
        pass_fds=[theirs.fileno()],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0
    assert "import 'torch'" not in ended.stderr
