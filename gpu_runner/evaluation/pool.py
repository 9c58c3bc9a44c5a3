"""Evaluates candidates in slots on one device; what the rest of the runner calls.

A slot keeps the judge of one task between candidates, and lets go of it when another task needs the
slot, when something went wrong, or after two minutes without work. A failure of ours raises a
`RunnerError`; it never makes a verdict.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final, Self, cast

import psutil

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.evaluation.children import GIB, Child, Kind, Limits, Nursery, how_it_ended
from gpu_runner.evaluation.devices import DeviceInfo, DeviceLock, find_device
from gpu_runner.evaluation.errors import (
    ChildCrashed,
    ChildFailed,
    ProtocolError,
    RunnerError,
    TimedOut,
)
from gpu_runner.evaluation.sandbox import Mode, Sandbox
from gpu_runner.evaluation.selftest import ensure_tight
from gpu_runner.evaluation.session import OnStage, Session
from gpu_runner.evaluation.settings import EvaluationSettings

JUDGE: Final = "gpu_runner.evaluation.child.judge:main"
PLAYER: Final = "gpu_runner.evaluation.child.player:main"
CALL: Final = "gpu_runner.evaluation.child.calls:main"
TRACE: Final = "gpu_runner.proposals.child.trace:trace"

MOST_THREADS: Final = 4
"""Of one child: probes are small, and threads that wait for each other in a spin cost a busy host ten times their use."""
HOST_NICENESS: Final = 10
"""Of what interprets and compiles beside a GPU: it gives way to those who check and time there, for whom others wait."""
DAY_S: Final = 86_400.0


def open_pool(settings: EvaluationSettings) -> "LocalPool":
    """A pool on the device that the settings name.

    Raises:
        DeviceLost: there is no such device.
        SandboxMissing: bubblewrap is wanted and not installed, or it leaks here.
    """
    device = find_device(settings.device, sandbox=settings.sandbox)
    sandbox = Sandbox(cast(Mode, settings.sandbox))
    if sandbox.mode == "bwrap":
        ensure_tight(sandbox)
    return LocalPool(settings, device, sandbox)


class LocalPool:
    """Blocking and safe for several threads; at most `slots` evaluations run at the same time.

    Args:
        judge: entry of the judge, `player` of the players; others than ours in tests only.
    """

    def __init__(
        self,
        settings: EvaluationSettings,
        device: DeviceInfo,
        sandbox: Sandbox,
        *,
        judge: str = JUDGE,
        player: str = PLAYER,
    ) -> None:
        self.device = device
        self.slots = settings.slots
        self._settings = settings
        self._judge, self._player = judge, player
        self._nurseries = _nurseries(settings, device, sandbox)
        self._all = tuple(_Slot(DeviceLock(device.lock_name)) for _ in range(settings.slots))
        self._free = list(self._all)
        self._changed = threading.Condition()
        self._is_closed = False

    def inspect(self, task: TaskSpec) -> TaskReport:
        """Run the task's reference a few times: shapes, probe, traced graph, warnings.

        Raises:
            InvalidTask: its author has to mend it.
            RunnerError: we failed.
        """
        with self._slot(task) as slot:
            session = self._session(slot, task, None)
            report = session.lint()
            if not report.graph:
                graph = self._graph(task, report)
                session.report = report.model_copy(update={"graph": graph})
            return session.report

    def evaluate(
        self, task: TaskSpec, source: str, *, on_stage: OnStage | None = None
    ) -> Evaluation:
        """Find out what a candidate is worth; `on_stage` is called as it reaches each gate.

        Raises:
            InvalidTask: the task is unusable, or untestable, whatever the candidate.
            RunnerError: we failed; the candidate may be tried again.
        """
        with self._slot(task) as slot:
            evaluation = self._session(slot, task, on_stage).evaluate(source, on_stage)
        environment = {**evaluation.environment, **self.device.fingerprint}
        return evaluation.model_copy(update={"environment": environment})

    def call(
        self,
        entry: str,
        request: dict[str, Any],
        *,
        nursery: str = "compile",
        timeout_s: float = 60,
    ) -> dict[str, Any]:
        """Run `function(request) -> dict` of "package.module:function" in a fresh isolated child.

        Once more in another child where the first was killed from outside.

        Raises:
            ChildFailed: it raised, crashed or did not return in time.
            RunnerError: the child could not be started, or was lost again.
        """
        with contextlib.suppress(ChildCrashed):
            return self._call(entry, request, nursery, timeout_s)
        return self._call(entry, request, nursery, timeout_s)

    def _call(
        self, entry: str, request: dict[str, Any], nursery: str, timeout_s: float
    ) -> dict[str, Any]:
        limits = self._players_limits(timeout_s + 10)
        with self._nursery(nursery).fork(CALL, limits=limits) as child:
            try:
                child.channel.send({"entry": entry, "request": request})
                answer, _ = child.channel.receive(timeout_s)
            except TimedOut as error:
                raise ChildFailed(f"no answer within {timeout_s:g} s") from error
            except (ChildCrashed, ProtocolError) as error:
                failure = ChildCrashed if child.kill().is_lost else ChildFailed
                raise failure(how_it_ended(child)) from error
        result = answer.get("result")
        if isinstance(result, dict):
            return result
        told = str(answer.get("error", f"{entry} returned no dict"))
        raise ChildFailed(told, str(answer.get("trace", "")))

    def close(self) -> None:
        """End every process of the pool; evaluations that are running raise."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for nursery in self._nurseries.values():
            nursery.close()
        with self._changed:
            self._changed.wait_for(lambda: len(self._free) == self.slots, timeout=10)
            for slot in self._free:
                slot.drop()
                slot.lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _slot(self, task: TaskSpec) -> Iterator["_Slot"]:
        """The best free slot; whatever fails while it is held costs it its judge."""
        slot = self._take(task)
        try:
            self._warm()
            yield slot
        except BaseException:
            slot.drop()
            raise
        finally:
            self._give_back(slot)

    def _take(self, task: TaskSpec) -> "_Slot":
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._is_closed)
            if self._is_closed:
                raise RunnerError("the pool is closed")
            slot = min(self._free, key=lambda slot: slot.distance(task))
            self._free.remove(slot)
            slot.uses += 1
            return slot

    def _give_back(self, slot: "_Slot") -> None:
        with self._changed:
            self._free.append(slot)
            self._changed.notify_all()
            if slot.session and not self._is_closed:
                rest = threading.Timer(self._settings.judge_idle_s, self._let_go, (slot, slot.uses))
                rest.daemon = True
                rest.start()

    def _let_go(self, slot: "_Slot", uses: int) -> None:
        """End an idle judge, so that its zygote can retire too."""
        with self._changed:
            if slot in self._free and slot.uses == uses and not self._is_closed:
                slot.drop()

    def _session(self, slot: "_Slot", task: TaskSpec, on_stage: OnStage | None) -> Session:
        """The slot's judge for this task, opened if need be."""
        if slot.session and slot.session.task == task:
            return slot.session
        slot.drop()
        limits = Limits(
            wall_s=DAY_S, memory_bytes=self._share(), address_bytes=None, file_bytes=None
        )
        judge = self._nursery(self._judges_kind()).fork(self._judge, limits=limits)
        session = Session(
            task, judge, self._fork_player, slot.lock, deadline_s=self._settings.evaluation_s
        )
        slot.session = session
        session.open(self._options(), on_stage)
        return session

    def _options(self) -> dict[str, Any]:
        return {
            "device": self.device.inside,
            "device_name": self.device.name,
            "seed": self._settings.seed,
            "max_autotune": self._settings.max_autotune,
        }

    def _fork_player(self, kind: str, role: str) -> Child:
        # References and baselines stay with their judge, a candidate with its evaluation.
        wall_s = self._settings.evaluation_s if role == "candidate" else DAY_S
        limits = self._players_limits(wall_s)
        return self._nursery(kind).fork(self._player, limits=limits)

    def _graph(self, task: TaskSpec, report: TaskReport) -> dict[str, Any]:
        """The traced graph; empty where the task cannot be traced, which is no fault of its."""
        request = {"source": task.source, "probe_source": report.probe_source or task.source}
        try:
            return self.call(TRACE, request)
        except ChildFailed:
            return {}

    def _nursery(self, kind: str) -> Nursery:
        try:
            return self._nurseries[kind]
        except KeyError:
            kinds = ", ".join(self._nurseries)
            raise ProtocolError(f"no {kind!r} children on {self.device.name}; {kinds}") from None

    def _judges_kind(self) -> Kind:
        return "cuda" if self.device.kind == "cuda" else "interpreter"

    def _warm(self) -> None:
        """Start the zygotes that an evaluation needs side by side, not one after the other."""
        for kind in dict.fromkeys((self._judges_kind(), "interpreter", "compile")):
            self._nurseries[kind].warm()

    def _share(self) -> int:
        """Memory of one player or judge: half of the machine's, shared by the slots."""
        return max(GIB, psutil.virtual_memory().total // (2 * self.slots))

    def _players_limits(self, wall_s: float) -> Limits:
        share = self._share() if self.device.kind == "cuda" else min(self._share(), 8 * GIB)
        memory_bytes = self._settings.player_memory_bytes or share
        return Limits(wall_s=wall_s, memory_bytes=memory_bytes)


class _Slot:
    """Room for one evaluation at a time, with the judge that was last needed."""

    def __init__(self, lock: DeviceLock) -> None:
        self.lock = lock
        self.session: Session | None = None
        self.uses = 0

    def distance(self, task: TaskSpec) -> int:
        """0: holds this task's judge; 1: holds none; 2: would lose another task's."""
        if self.session is None:
            return 1
        return 0 if self.session.task == task else 2

    def drop(self) -> None:
        session, self.session = self.session, None
        if session:
            session.close()


def _nurseries(
    settings: EvaluationSettings, device: DeviceInfo, sandbox: Sandbox
) -> dict[str, Nursery]:
    """One of each kind that this device has a use for; only "cuda" children see device nodes."""
    cores = psutil.cpu_count() or 1
    threads = settings.threads or min(MOST_THREADS, max(1, cores // settings.slots))
    is_gpu = device.kind == "cuda"

    def nursery(kind: Kind, devices: tuple[str, ...] = (), niceness: int = 0) -> Nursery:
        return Nursery(
            kind,
            sandbox,
            devices=devices,
            threads=threads,
            niceness=niceness,
            retire_after_s=settings.idle_s,
        )

    on_host: tuple[Kind, ...] = ("plain", "interpreter", "compile")
    nurseries: dict[str, Nursery] = {
        kind: nursery(kind, (), HOST_NICENESS if is_gpu else 0) for kind in on_host
    }
    return nurseries | {"cuda": nursery("cuda", device.nodes)} if is_gpu else nurseries
