"""Process 1 of a child's namespace: captures output, enforces limits, ends and reports the worker."""

import contextlib
import os
import select
import signal
import time
from pathlib import Path
from typing import Any

from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.errors import RunnerError

WATCH_INTERVAL_S = 0.05
KIB = 1024
PF_EXITING = 0x4
MEMORY_FOLDERS = ("/tmp", "/dev/shm")


class Keeper:
    """Watches one worker until it ends, is told to end it, or loses its owner."""

    def __init__(
        self,
        worker: int,
        status: Channel,
        output: int,
        limits: dict[str, Any],
        *,
        isolated: bool,
    ) -> None:
        os.set_blocking(output, False)
        self.worker = worker
        self.status = status
        self.output_fd: int | None = output
        self.limits = limits
        self.isolated = isolated
        self.deadline = time.monotonic() + limits["wall_s"]
        self.next_look = 0.0
        self.shared_bytes = memory_bytes(os.getpid())
        self.kernel_kills = kernel_kills()
        self.output = bytearray()
        self.dropped_bytes = 0
        self.ended: int | None = None
        self.reason = ""

    def watch(self) -> None:
        """Return once the worker and all its descendants are dead."""
        while not self.reason and self.ended is None:
            self.wait_for_something()
            self.reap()
            self.reason = "" if self.ended is not None else self.reason_to_kill()
        self.kill_all()
        self.drain()

    def report(self) -> None:
        with contextlib.suppress(RunnerError):
            self.status.send({"exit": self.exit(), "output": self.text()}, timeout_s=5)

    def wait_for_something(self) -> None:
        """Sleep until output, a word from the owner, the worker's end, or the next look."""
        pidfd = os.pidfd_open(self.worker)
        try:
            poll = select.poll()
            for fd in (self.output_fd, self.status.fileno(), pidfd):
                if fd is not None:
                    poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(WATCH_INTERVAL_S * 1000)}
        finally:
            os.close(pidfd)
        if self.output_fd in ready:
            self.drain()
            # Without the pause a worker that floods us costs a second processor.
            time.sleep(0.001)

    def reason_to_kill(self) -> str:
        if owner_wants_the_end(self.status):
            # Whoever saw the worker's channel close wants to know how it ended by itself.
            return "" if is_exiting(self.worker) else "killed"
        now = time.monotonic()
        if now > self.deadline:
            return "deadline"
        if now < self.next_look:
            return ""
        self.next_look = now + WATCH_INTERVAL_S
        pids = others_in_namespace() if self.isolated else descendants(os.getpid())
        if len(pids) > self.limits["processes"]:
            return "processes"
        return "memory" if self.bytes_of(pids) > self.limits["memory_bytes"] else ""

    def bytes_of(self, pids: list[int]) -> int:
        """Memory of these processes and, if isolated, of the files in private memory.

        What a process was forked with is shared with the zygote, so it is not counted.
        """
        files = sum(map(used_bytes, MEMORY_FOLDERS)) if self.isolated else 0
        return files + sum(max(0, memory_bytes(pid) - self.shared_bytes) for pid in pids)

    def reap(self) -> None:
        """Collect whatever has died: the worker, and orphans that were handed to us."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.worker:
                    self.ended = status

    def kill_all(self) -> None:
        """End every descendant. As process 1 of a namespace, everything else in it."""
        while True:
            if self.isolated and os.getpid() == 1:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            else:
                kill_below(os.getpid())
            self.reap()
            if not has_children():
                return
            time.sleep(0.001)

    def drain(self) -> None:
        """Take what the pipe holds now, keep the end of all that came."""
        for _ in range(16):
            if self.output_fd is None:
                return
            try:
                chunk = os.read(self.output_fd, 1 << 16)
            except BlockingIOError:
                return
            if not chunk:
                os.close(self.output_fd)
                self.output_fd = None
            self.keep_end_of(chunk)

    def keep_end_of(self, chunk: bytes) -> None:
        self.output += chunk
        excess = len(self.output) - self.limits["output_bytes"]
        if excess > 0:
            del self.output[:excess]
            self.dropped_bytes += excess

    def exit(self) -> dict[str, Any]:
        status = self.ended
        if status is None:
            return {"code": None, "signal": signal.SIGKILL, "reason": self.reason or "killed"}
        if not os.WIFSIGNALED(status):
            reason = self.reason or "exited"
            return {"code": os.WEXITSTATUS(status), "signal": None, "reason": reason}
        number = os.WTERMSIG(status)
        was_short = number == signal.SIGKILL and kernel_kills() > self.kernel_kills
        reason = self.reason or ("memory" if was_short else "exited")
        return {"code": None, "signal": number, "reason": reason}

    def text(self) -> str:
        text = self.output.decode(errors="replace")
        return f"[{self.dropped_bytes} bytes left out]\n{text}" if self.dropped_bytes else text


def owner_wants_the_end(status: Channel) -> bool:
    """The owner says nothing but "end", and closes the socket when it is gone itself."""
    return bool(select.select([status.fileno()], [], [], 0)[0])


def is_exiting(pid: int) -> bool:
    """Whether a process of ours, not yet reaped, is past the point of no return."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0] == "Z" or bool(int(fields[6]) & PF_EXITING)


def others_in_namespace() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def memory_bytes(pid: int) -> int:
    """Memory that is not a file's: private and shared; 0 when the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    wanted = ("RssAnon:", "RssShmem:")
    return sum(int(line.split()[1]) * KIB for line in lines if line.startswith(wanted))


def kernel_kills() -> int:
    """How many processes the kernel has ended since it started because memory ran out."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def used_bytes(folder: str) -> int:
    usage = os.statvfs(folder)
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


def descendants(root: int) -> list[int]:
    """All processes below one, parents first; reads /proc once."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{name}/stat").read_text()
                parents[int(name)] = int(text.rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def kill_below(root: int) -> None:
    for pid in descendants(root):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
