"""Children that misbehave on purpose: each is stopped, told apart, and leaves nothing behind."""

import gc
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gpu_runner.evaluation.children import Child, Limits, Nursery
from gpu_runner.evaluation.errors import ProtocolError, RunnerError
from gpu_runner.evaluation.sandbox import Sandbox

pytestmark = pytest.mark.sandbox

CODE = (Path(__file__).parent / "misbehaving.py",)
MIB = 1 << 20
LIMITS = Limits(
    wall_s=60,
    memory_bytes=400 * MIB,
    address_bytes=8 << 30,
    processes=40,
    file_bytes=32 * MIB,
    scratch_bytes=600 * MIB,
)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery("plain", Sandbox("bwrap", CODE))
    with nursery.fork("misbehaving:hello", limits=LIMITS):
        pass
    yield nursery
    nursery.close()


@pytest.fixture(autouse=True)
def nothing_left_behind(nursery: Nursery) -> Iterator[None]:
    """No process or descriptor of a test outlives it; the zygote stays."""
    gc.collect()
    before, fds = processes(), len(os.listdir("/proc/self/fd"))
    yield
    deadline = time.monotonic() + 5
    while processes() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes() == before
    assert len(os.listdir("/proc/self/fd")) == fds


def processes() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def fork(nursery: Nursery, name: str, limits: Limits = LIMITS) -> Child:
    return nursery.fork(f"misbehaving:{name}", limits=limits)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fork_bomb", "processes"),
        ("fill_memory", "memory"),
        ("fill_shared_memory", "memory"),
        ("fill_tmp", "memory"),
    ],
)
def test_a_limit_ends_the_child_and_is_named(nursery: Nursery, name: str, reason: str) -> None:
    with fork(nursery, name) as child:
        child.channel.receive(10)
        exit_ = child.wait(20)
    assert exit_.reason == reason
    assert exit_.oom == (reason == "memory")


def test_the_machine_goes_on_during_a_fork_bomb(nursery: Nursery) -> None:
    with fork(nursery, "fork_bomb", Limits(processes=250)), fork(nursery, "hello") as child:
        child.channel.send({"n": 1})
        assert child.channel.receive(20)[0]["echo"] == {"n": 1}


def test_a_terabyte_is_refused_at_once(nursery: Nursery) -> None:
    with fork(nursery, "allocate_a_terabyte") as child:
        assert "Cannot allocate memory" in child.channel.receive(10)[0]["refused"]
        assert child.wait(10).code == 0


def test_one_file_has_a_bound(nursery: Nursery) -> None:
    with fork(nursery, "write_a_large_file") as child:
        assert child.channel.receive(10)[0] == {"refused": "File too large"}
    assert not Path("/tmp/large").exists()


def test_a_flood_of_output_costs_bounded_memory_and_ends_on_demand(nursery: Nursery) -> None:
    with fork(nursery, "flood_stdout") as child:
        child.channel.receive(10)
        time.sleep(0.5)
        keeper = psutil.Process(child.pid)
        assert keeper.memory_info().rss < 100 * MIB
        assert child.kill().reason == "killed"
    assert len(child.output()) <= LIMITS.output_bytes + 100


def test_a_flood_of_messages_waits_for_its_reader(nursery: Nursery) -> None:
    with fork(nursery, "flood_channel") as child:
        for _ in range(20):
            assert len(child.channel.receive(10)[0]["text"]) == 100_000
        assert psutil.Process().memory_info().rss < 1 << 30


@pytest.mark.parametrize(
    "name", ["answer_garbage", "announce_a_huge_message", "send_descriptors_without_end"]
)
def test_a_child_that_breaks_the_protocol_is_an_error_not_a_hang(
    nursery: Nursery, name: str
) -> None:
    with fork(nursery, name) as child:
        with pytest.raises(ProtocolError):
            child.channel.receive(10)
        assert child.kill().reason == "killed"


def test_a_daemon_dies_with_its_child(nursery: Nursery) -> None:
    with fork(nursery, "daemonise") as child:
        child.channel.receive(10)
        inside = [p.pid for p in psutil.Process(child.pid).children(recursive=True)]
        assert len(inside) >= 2
        child.kill()
    assert not any(psutil.pid_exists(pid) for pid in inside)


def test_a_daemon_does_not_outlive_a_child_that_ends_by_itself(nursery: Nursery) -> None:
    with fork(nursery, "daemonise") as child:
        child.channel.receive(10)
        child.channel.send({})
        assert child.wait(10).code == 0


def test_the_keeper_survives_whatever_signal_its_worker_sends(nursery: Nursery) -> None:
    with fork(nursery, "attack_keeper") as child:
        assert child.channel.receive(10)[0] == {"survived": True}
        assert child.wait(10).code == 0


def test_a_stopped_keeper_does_not_save_its_worker(nursery: Nursery) -> None:
    with fork(nursery, "hang_ignoring_signals") as child:
        child.channel.receive(10)
        os.kill(child.pid, signal.SIGSTOP)
        assert child.kill().signal == signal.SIGKILL


def test_files_of_the_host_survive(nursery: Nursery) -> None:
    with fork(nursery, "delete_everything") as child:
        alive = child.channel.receive(30)[0]["alive"]
    assert alive == ["/usr/bin/env", "/foundry", "/dev/null"]
    assert Path("/usr/bin/env").exists()
    assert CODE[0].exists()


def test_no_network_not_even_loopback(nursery: Nursery) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        read_end, write_end = os.pipe()
        os.write(write_end, json.dumps([server.getsockname()[1]]).encode())
        with nursery.fork("misbehaving:use_the_network", fds=[read_end], limits=LIMITS) as child:
            assert len(child.channel.receive(10)[0]["failures"]) == 2
        os.close(read_end)
        os.close(write_end)


def test_calls_that_would_widen_rights_are_refused_and_the_ordinary_ones_work(
    nursery: Nursery,
) -> None:
    with fork(nursery, "forbidden_calls") as child:
        answer, _ = child.channel.receive(20)
    assert set(answer["outcomes"].values()) == {1}, answer
    assert answer["threads"] == 1
    assert answer["spawned"] == "spawned"


def test_a_child_that_ends_without_reading_is_no_error_to_send_to(nursery: Nursery) -> None:
    with fork(nursery, "exit_with_7") as child:
        child.wait(10)
        with pytest.raises(RunnerError):
            child.channel.send({"n": 1})
