"""What a keeper concludes, without processes."""

import os
import signal
from pathlib import Path

import pytest

from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.child import keeper as keeper_module
from gpu_runner.evaluation.child.keeper import Keeper, descendants, memory_bytes

LIMITS = {"wall_s": 1, "output_bytes": 10, "memory_bytes": 1, "processes": 1}


def make_keeper(status: int | None, reason: str = "") -> Keeper:
    read_end, write_end = os.pipe()
    os.close(write_end)
    near, far = Channel.pair()
    with near, far:
        keeper = Keeper(0, near, read_end, LIMITS, isolated=False)
    keeper.ended, keeper.reason = status, reason
    os.close(read_end)
    return keeper


@pytest.mark.parametrize(
    ("status", "reason", "kills", "told"),
    [
        (0, "", 0, (0, None, "exited")),
        (7 << 8, "", 0, (7, None, "exited")),
        (signal.SIGSEGV, "", 0, (None, signal.SIGSEGV, "exited")),
        (signal.SIGKILL, "", 0, (None, signal.SIGKILL, "exited")),
        (signal.SIGKILL, "", 1, (None, signal.SIGKILL, "memory")),
        (signal.SIGSEGV, "", 1, (None, signal.SIGSEGV, "exited")),
        (signal.SIGKILL, "deadline", 1, (None, signal.SIGKILL, "deadline")),
        (None, "", 0, (None, signal.SIGKILL, "killed")),
        (None, "memory", 0, (None, signal.SIGKILL, "memory")),
    ],
)
def test_how_an_end_is_told(
    status: int | None,
    reason: str,
    kills: int,
    told: tuple[int | None, int | None, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper = make_keeper(status, reason)
    monkeypatch.setattr(keeper_module, "kernel_kills", lambda: keeper.kernel_kills + kills)
    assert keeper.exit() == dict(zip(("code", "signal", "reason"), told, strict=True))


def test_the_end_of_the_output_is_kept_and_the_rest_counted() -> None:
    keeper = make_keeper(0)
    for part in (b"0123456", b"789abc", b"\xff"):
        keeper.keep_end_of(part)
    assert keeper.text() == "[4 bytes left out]\n456789abc\ufffd"


def test_memory_is_read_for_a_living_process_and_zero_for_none() -> None:
    assert memory_bytes(os.getpid()) > 1 << 20
    assert memory_bytes(2**22 + 1) == 0


def test_descendants_are_found_however_they_are_called() -> None:
    """A name with spaces and brackets must not shift the fields of /proc/PID/stat."""
    child = os.fork()
    if child == 0:
        Path("/proc/self/comm").write_text(") 1 (")
        grandchild = os.fork()
        if grandchild == 0:
            signal.pause()
        signal.pause()
    try:
        while not descendants(child):
            pass
        assert child in descendants(os.getpid())
    finally:
        for pid in (*reversed(descendants(child)), child):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(child, 0)
