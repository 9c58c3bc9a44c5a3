"""Keeps the web server and the runner alive while `manage.py up` runs, and takes them along when it goes.

Each child leads its own process group: an interrupt from the terminal reaches the supervisor alone, which then
ends the groups. If the supervisor itself is killed, the kernel tells the children (PR_SET_PDEATHSIG), and theirs die with them.
"""

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

PR_SET_PDEATHSIG: Final = 1
STEADY_S: Final = 60.0
MAX_PAUSE_S: Final = 30.0
LOOK_EVERY_S: Final = 0.2
MAX_LOG_BYTES: Final = 10_000_000

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Program:
    """A child that is to run all the time.

    Attributes:
        grace_s: how long it may take to end after SIGTERM before it is killed.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 15.0
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0
    resume_at: float = 0.0

    def start(self) -> None:
        parent = os.getpid()
        # The supervisor has one thread, so that a function may run between fork and exec.
        self.process = subprocess.Popen(
            self.command,
            env={**os.environ, **self.environment},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: die_with(parent),
        )
        self.started_at = time.monotonic()

    def has_died(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def bury(self) -> float:
        """End what a dead child left in its group; the seconds to wait before starting it again."""
        assert self.process is not None
        kill_group(self.process.pid, signal.SIGKILL)
        is_steady = time.monotonic() - self.started_at > STEADY_S
        self.failures = 1 if is_steady else self.failures + 1
        pause = min(MAX_PAUSE_S, 0.25 * 2.0 ** min(self.failures - 1, 20))
        self.process, self.resume_at = None, time.monotonic() + pause
        return pause


def die_with(parent: int) -> None:
    """In a child, before exec: be told to end when the parent dies, also if it is dead already."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def kill_group(group: int, number: int) -> bool:
    """Signal a process group; False if nobody is in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


class Supervisor:
    """Runs programs until it is told to end.

    Args:
        say: gets one line for people about each start, death and end.
    """

    def __init__(self, programs: Sequence[Program], say: Callable[[str], None]) -> None:
        self.programs = programs
        self._say = say
        self._is_ending = False

    def run(self, on_started: Callable[[], None] = lambda: None) -> None:
        """Start everything and keep it running; returns after SIGINT, SIGTERM or SIGHUP, with nothing left running."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)
        try:
            for program in self.programs:
                program.start()
            on_started()
            while not self._is_ending:
                self.look()
                time.sleep(LOOK_EVERY_S)
        finally:
            self.end()

    def look(self) -> None:
        """Restart what has died, each after a pause that grows while it keeps dying."""
        for program in self.programs:
            if program.has_died():
                assert program.process is not None
                code = program.process.returncode
                pause = program.bury()
                self._say(f"{program.name} ended ({how(code)}); starting it again in {pause:.1f} s")
            elif program.process is None and time.monotonic() >= program.resume_at:
                program.start()

    def end(self) -> None:
        """Ask every group to end, then end it."""
        running = [program for program in self.programs if program.process is not None]
        self._say("ending; what is being evaluated goes back to the queue")
        for program in running:
            assert program.process is not None
            kill_group(program.process.pid, signal.SIGTERM)
        for program in running:
            assert program.process is not None
            try:
                program.process.wait(program.grace_s)
            except subprocess.TimeoutExpired:
                self._say(f"{program.name} did not end within {program.grace_s:.0f} s; killed")
            kill_group(program.process.pid, signal.SIGKILL)
            program.process.wait()
            program.process = None

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._is_ending = True


def how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def port_problem(host: str, port: int) -> str | None:
    """Why a server cannot listen there, for people; None if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return (
                    f"port {port} is taken by another program (or Kernel Foundry runs already); "
                    f"choose another one: PORT={port + 1} make run"
                )
            return f"cannot listen on {host}:{port}: {error.strerror}"
    return None


def is_listening(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return True
    except OSError:
        return False


def web_server(host: str, port: int, *, is_behind_proxy: bool, access_log: Path) -> Program:
    """Requests are logged to a file, so that the terminal keeps showing the link."""
    keep_small(access_log)
    command = [sys.executable, "-m", "daphne", "-b", host, "-p", str(port), "--no-server-name"]
    command += ["--access-log", str(access_log)]
    command += ["--proxy-headers"] if is_behind_proxy else []
    # Daphne waits for open sockets when it ends; nothing is lost if it does not.
    return Program("the web server", [*command, "foundry_web.asgi:application"], grace_s=5.0)


def keep_small(log: Path) -> None:
    """Set a long log aside, in place of the one that was set aside before."""
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_suffix(".old.log"))


def runner() -> Program:
    return Program("the runner", [sys.executable, "-m", "gpu_runner", "work"], grace_s=20.0)
