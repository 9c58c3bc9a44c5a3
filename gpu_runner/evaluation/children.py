"""Warm zygotes and the isolated children forked from them.

A `Nursery` owns one zygote of one kind, started on first use, ended after a minute without
children, and started again when needed, also after it died. `Nursery.fork` costs milliseconds.
A `Child` is ended with everything it started, at the latest when its `with` block is left.
"""

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args

from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.errors import (
    ChildCrashed,
    ProtocolError,
    RunnerError,
    SandboxMissing,
    TimedOut,
)
from gpu_runner.evaluation.sandbox import Sandbox

Kind = Literal["plain", "interpreter", "compile", "cuda"]
"""`plain` imports neither torch nor triton; `interpreter` sets TRITON_INTERPRET."""

START_TIMEOUT_S: Final = 180.0
FORK_TIMEOUT_S: Final = 30.0
FORK_ATTEMPTS: Final = 3
KILL_TIMEOUT_S: Final = 3.0
RETIRE_AFTER_S: Final = 60.0
OUTPUT_CHARACTERS: Final = 4_000

GIB: Final = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a child and its descendants may use together; above it they are killed.

    Args:
        wall_s: from fork to end.
        memory_bytes: private and shared memory in use beyond what a child is forked with, lent
            buffers included, plus files in the private /tmp and /dev/shm.
        address_bytes: address space of one process beyond what it is forked with, touched or not.
            Never applied to the "cuda" kind, whose driver reserves more than any machine has.
        output_bytes: the end of stdout and stderr that is kept.
        processes: at one moment.
        file_bytes: size of one file; None for a child of ours that makes large buffers.
        scratch_bytes: size of the private /tmp, and of /dev/shm.
    """

    wall_s: float = 120.0
    memory_bytes: int = 6 * GIB
    address_bytes: int | None = 256 * GIB
    output_bytes: int = 64 << 10
    processes: int = 64
    file_bytes: int | None = 1 * GIB
    scratch_bytes: int = 1 * GIB
    open_files: int = 1024


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a child ended: by itself with `code` or `signal`, or killed for `reason`.

    `reason` is exited, killed, memory, processes, deadline, or lost: somebody outside killed its keeper or its
    zygote, so that nobody knows what the child would have done.
    """

    code: int | None
    signal: int | None
    reason: str = "exited"

    @property
    def oom(self) -> bool:
        return self.reason == "memory"

    @property
    def is_lost(self) -> bool:
        return self.reason == "lost"


class Child:
    """One isolated process with an entry of ours; `channel` is our end of its channel."""

    def __init__(self, nursery: "Nursery", channel: Channel, status: Channel, pidfd: int) -> None:
        self.channel = channel
        self.nursery = nursery
        self._status = status
        self._pidfd = pidfd
        self._exit: Exit | None = None
        self._output = ""

    @property
    def pid(self) -> int:
        """The host's id of the keeper, the first process of the child's namespace; -1 once gone."""
        lines = Path(f"/proc/self/fdinfo/{self._pidfd}").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pid:")).split()[1])

    def wait(self, timeout_s: float) -> Exit:
        """Wait for the end; raises `TimedOut` and leaves the child as it is."""
        if self._exit is None:
            try:
                message, fds = self._status.receive(timeout_s)
            except (ChildCrashed, ProtocolError):
                self._end_keeper()
                self._finish(Exit(code=None, signal=signal.SIGKILL, reason="lost"), "")
            else:
                _close_all(fds)
                self._finish(Exit(**message["exit"]), str(message["output"]))
        assert self._exit is not None
        return self._exit

    def kill(self) -> Exit:
        """End the child and all that it started, however they ignore signals."""
        if self._exit is None:
            self.tell_to_end()
            try:
                return self.wait(KILL_TIMEOUT_S)
            except TimedOut:
                self._end_keeper()
                self._finish(Exit(code=None, signal=signal.SIGKILL, reason="killed"), "")
        assert self._exit is not None
        return self._exit

    def tell_to_end(self) -> None:
        """Have the keeper end everything, without waiting for it."""
        with contextlib.suppress(RunnerError):
            self._status.send({"end": True}, timeout_s=1)

    def output(self) -> str:
        """The end of what the child printed; empty before it has ended."""
        return self._output

    def _end_keeper(self) -> None:
        """Kill process 1 of the namespace, with which all others die, and wait until it is dead."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        select.select([self._pidfd], [], [], KILL_TIMEOUT_S)

    def _finish(self, exit_: Exit, output: str) -> None:
        self._exit, self._output = exit_, output
        self._status.close()
        os.close(self._pidfd)
        self.nursery._left(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self.channel.close()


def how_it_ended(child: Child) -> str:
    """For an error message: how a child ended, at the latest now, and the last it printed."""
    end = child.kill()
    how = f"signal {end.signal}" if end.signal is not None else f"exit code {end.code}"
    if end.is_lost:
        return "its zygote or keeper was killed from outside"
    if end.reason not in ("exited", "killed"):
        how = f"killed, over its limit of {end.reason}"
    said = child.output().strip()[-OUTPUT_CHARACTERS:]
    return f"{how}; it said: {said}" if said else how


class Nursery:
    """Forks children of one kind; safe for several threads.

    Args:
        devices: device nodes that its children may open.
        threads: processors that one child may use for tensor operations.
        niceness: from 0 to 19, by which they give way to others on the host.
    """

    def __init__(
        self,
        kind: Kind,
        sandbox: Sandbox,
        *,
        devices: Sequence[str] = (),
        threads: int = 1,
        niceness: int = 0,
        retire_after_s: float = RETIRE_AFTER_S,
    ) -> None:
        if kind not in get_args(Kind):
            raise ValueError(f"no kind of child {kind!r}; there are {', '.join(get_args(Kind))}")
        sandbox.check()
        self.kind = kind
        self.sandbox = sandbox
        self._devices = tuple(devices)
        self._niceness = niceness
        self._environment = sandbox.environment(_variables(kind, threads))
        self._retire_after_s = retire_after_s
        self._lock = threading.RLock()
        self._zygote: _Zygote | None = None
        self._children: set[Child] = set()
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def warm(self) -> None:
        """Start the zygote without waiting for it; several nurseries then start side by side."""
        with self._lock:
            self._living_zygote()
            self._rest()

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the environment variables that its children are forked with."""
        return tuple(self._environment)

    @property
    def zygote_pid(self) -> int | None:
        """The host's id of the process that `bwrap` or we started; None while there is none."""
        with self._lock:
            return self._zygote.process.pid if self._zygote else None

    def fork(
        self,
        entry: str,
        *,
        work_files: Mapping[str, bytes] | None = None,
        fds: Sequence[int] = (),
        limits: Limits,
    ) -> Child:
        """Start `function(channel, fds)` of "package.module:function" in a new isolated child.

        Args:
            work_files: put into the child's working folder, by plain name.
            fds: duplicated into the child in this order.

        Raises:
            SandboxMissing: the zygote or the isolation cannot be set up on this machine.
            ChildCrashed: the zygote died again and again.
        """
        request = {
            "entry": entry,
            "limits": asdict(self._applicable(limits)),
            "files": _encoded(work_files or {}),
        }
        for _ in range(FORK_ATTEMPTS - 1):
            with contextlib.suppress(ChildCrashed):
                return self._fork(request, fds)
        return self._fork(request, fds)

    def close(self) -> None:
        """End the zygote and every child of it; the nursery cannot be used again."""
        with self._lock:
            self._is_closed = True
            for child in self._children:
                child.tell_to_end()
            self._stop()

    def _fork(self, request: dict[str, Any], fds: Sequence[int]) -> Child:
        channel, childs_channel = Channel.pair()
        status, keepers_status = Channel.pair()
        child = Child(self, channel, status, -1)
        try:
            with childs_channel, keepers_status:
                ends = [childs_channel.fileno(), keepers_status.fileno(), *fds]
                self._request(child, request, ends)
            child._pidfd = self._started(status)
        except RunnerError:
            channel.close()
            status.close()
            self._left(child)
            raise
        return child

    def _request(self, child: Child, request: dict[str, Any], ends: Sequence[int]) -> None:
        with self._lock:
            zygote = self._ready_zygote()
            try:
                zygote.control.send(request, ends)
            except ChildCrashed:
                self._stop()
                raise
            self._children.add(child)

    def _started(self, status: Channel) -> int:
        message, fds = status.receive(FORK_TIMEOUT_S)
        if "error" in message or len(fds) != 1:
            _close_all(fds)
            raise SandboxMissing(str(message.get("error", "a child reported no process")))
        return fds[0]

    def _applicable(self, limits: Limits) -> Limits:
        return replace(limits, address_bytes=None) if self.kind == "cuda" else limits

    def _living_zygote(self) -> "_Zygote":
        if self._is_closed:
            raise RunnerError(f"the nursery of {self.kind} children is closed")
        self._cancel_timer()
        if self._zygote is None:
            self._zygote = _Zygote(
                self.kind, self.sandbox, self._environment, self._devices, self._niceness
            )
        return self._zygote

    def _ready_zygote(self) -> "_Zygote":
        zygote = self._living_zygote()
        try:
            zygote.wait_until_ready()
        except RunnerError:
            self._stop()
            raise
        return zygote

    def _left(self, child: Child) -> None:
        """A child has ended; with the last one the minute until retirement starts."""
        with self._lock:
            self._children.discard(child)
            self._rest()

    def _rest(self) -> None:
        if not self._children and self._zygote and not self._is_closed:
            self._cancel_timer()
            self._timer = threading.Timer(self._retire_after_s, self._retire)
            self._timer.daemon = True
            self._timer.start()

    def _retire(self) -> None:
        with self._lock:
            if not self._children:
                self._stop()

    def _cancel_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _stop(self) -> None:
        self._cancel_timer()
        if self._zygote:
            self._zygote.stop()
            self._zygote = None


class _Zygote:
    """The process at the other end of the control socket, and its end.

    bubblewrap's own --die-with-parent is of no use here: it follows the *thread* that started it.
    Instead the zygote ends when the control socket closes, which it does however we end.
    """

    def __init__(
        self,
        kind: Kind,
        sandbox: Sandbox,
        environment: Mapping[str, str],
        devices: Sequence[str],
        niceness: int,
    ) -> None:
        self.control, theirs = Channel.pair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self._is_ready = False
        info, info_end = os.pipe()
        arguments = ["-u", "-m", "gpu_runner.evaluation.child.zygote"]
        arguments += [kind, str(theirs.fileno()), sandbox.mode, str(niceness)]
        with theirs:
            self.process = subprocess.Popen(
                sandbox.command(arguments, environment, devices=devices, info_fd=info_end),
                env=sandbox.launcher_environment(environment),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                start_new_session=True,
                pass_fds=(theirs.fileno(), info_end),
            )
        os.close(info_end)
        self._info = info
        self._is_boxed = sandbox.mode == "bwrap"

    def wait_until_ready(self) -> None:
        if self._is_ready:
            return
        try:
            message, fds = self.control.receive(START_TIMEOUT_S)
            _close_all(fds)
        except ChildCrashed as error:
            complaint = self._complaint()
            if self.process.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL):
                # By somebody, or by a kernel short of memory; the next one may live.
                raise ChildCrashed("a zygote was killed while it started") from error
            advice = "`python -m gpu_runner doctor` says what to do"
            raise SandboxMissing(f"no child starts: {complaint}; {advice}") from error
        if message.get("threads") != 1:
            raise RunnerError(f"a zygote has {message.get('threads')} threads; fork needs 1")
        self._is_ready = True

    def stop(self) -> None:
        """End it now, and every process inside with it: the zygote has nothing to save."""
        self.control.close()
        first = self._first_process()
        if first is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(first, signal.SIGKILL)
            os.close(first)
        else:
            self.process.kill()
        self.process.wait()
        os.close(self._info)
        self._errors.close()

    def _first_process(self) -> int | None:
        """A descriptor of process 1 inside, as bubblewrap told us; None without one.

        Its death is the death of all inside. That of bubblewrap itself is not: it waits for them.
        """
        if not self._is_boxed or not select.select([self._info], [], [], 0)[0]:
            return None
        with contextlib.suppress(ValueError, KeyError, OSError):
            return os.pidfd_open(int(json.loads(os.read(self._info, 4096))["child-pid"]))
        return None

    def _complaint(self) -> str:
        """The last lines of what bubblewrap or Python said."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_TIMEOUT_S)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or f"exit code {self.process.returncode}, no message"


def _variables(kind: Kind, threads: int) -> dict[str, str]:
    count = str(max(1, threads))
    # One name per library; a pool of threads in a zygote would not survive its forks.
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    variables = dict.fromkeys(names, count) | {"OPENBLAS_NUM_THREADS": "1"}
    if kind == "interpreter":
        variables["TRITON_INTERPRET"] = "1"
    if kind == "cuda":
        # Otherwise a mere question for a device would start the driver, which a fork breaks.
        variables["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    return variables


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    for name in files:
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise ValueError(f"a work file needs a plain name, not {name!r}")
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
