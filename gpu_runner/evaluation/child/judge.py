"""The judge of one task: opens it, then evaluates candidates gate by gate. It runs no submitted code.

Cheap gates first; the first that fails gives the verdict. What the hook saw outranks it: a candidate that reaches for what
it must not is cheating, whatever its outputs are. Compilation runs beside the interpreter, in a child of its own.
"""

import os
import random
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import torch
import triton
from pydantic import ValidationError

from gpu_runner.core import contract, probe
from gpu_runner.core.evaluation import (
    EVALUATOR_VERSION,
    Baselines,
    Evaluation,
    Ratio,
    Speedup,
    StageTime,
    Timing,
)
from gpu_runner.core.findings import Finding, Severity, Source
from gpu_runner.core.source import without_mark
from gpu_runner.core.targets import TARGETS, Target, target_titled
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Fidelity, Stage, State, Verdict, VerifiedAt
from gpu_runner.evaluation import static_checks
from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.child import arena as arena_module
from gpu_runner.evaluation.child import (
    failures,
    gates,
    genuineness,
    interpreting_cost,
    lint,
    memory_findings,
    reports,
    trials,
)
from gpu_runner.evaluation.child.arena import Arena, Deadlines
from gpu_runner.evaluation.child.failures import Stop
from gpu_runner.evaluation.child.links import PlayerLink, PlayerLost, PoolLink
from gpu_runner.evaluation.child.memory import Memory, open_memory
from gpu_runner.evaluation.child.trials import Contestant
from gpu_runner.evaluation.errors import ChildCrashed, DeviceLost, InvalidTask, RunnerError
from gpu_runner.evaluation.protocol import Failed, Load, Loaded, Model, Modelled

if TYPE_CHECKING:
    from gpu_runner.evaluation.child.measuring import Company


WHOLE_S: Final = 120.0
"""For one call at full size on the interpreter; `gates.can_be_interpreted_whole` keeps it far below."""
CROWDED: Final = 0.25
"""Share of the device's memory; with less of it free once a player is gone, others may be why it failed."""
GROWN: Final = 3
"""Probes of one full size each; each keeps a player."""


def main(channel: Channel, fds: list[int]) -> None:
    """Answer the pool's questions until it closes the channel."""
    for fd in fds:
        os.close(fd)
    Judge(channel).serve()


class Judge:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._pool = PoolLink(channel)
        self._task: OpenTask | None = None

    def serve(self) -> None:
        while True:
            try:
                message, _ = self._channel.receive(1e6)
            except ChildCrashed:
                return
            self._channel.send(self._answer(message))

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            if message.get("do") == "open":
                self._task = OpenTask(self._pool, message)
                return {"report": self._task.report.model_dump(mode="json")}
            if self._task is None:
                return {"failure": "no task is open"}
            if message.get("do") == "lint":
                return {"report": self._task.linted().model_dump(mode="json")}
            evaluation = self._task.evaluate(without_mark(str(message["source"])))
            return {"evaluation": evaluation.model_dump(mode="json")}
        except InvalidTask as error:
            return {"invalid_task": {"reason": error.reason, "line": error.line}}
        except (RunnerError, PlayerLost, ValidationError, MemoryError, RuntimeError) as error:
            trace = "".join(traceback.format_exception(error))
            return {"failure": f"{type(error).__name__}: {error}\n{trace[-2000:]}"}


class OpenTask:
    """A task with its reference players; they live as long as the judge."""

    def __init__(self, pool: PoolLink, message: dict[str, Any]) -> None:
        self._pool = pool
        self.spec = TaskSpec.model_validate(message["task"])
        self.device = str(message.get("device", "cpu"))
        self.device_name = str(message.get("device_name", self.device))
        seed = message.get("seed")
        self.rng = random.Random(seed if seed is not None else os.urandom(16))
        self._max_autotune = bool(message.get("max_autotune", False))
        self.deadlines = Deadlines(**message.get("deadlines", {}))
        if self.spec.target not in TARGETS:
            names = ", ".join(TARGETS)
            raise InvalidTask(f"no target GPU {self.spec.target!r}; there are {names}")
        _check_contract(self.spec.source)
        self._host = open_memory("cpu")
        self._memory = open_memory(self.device)
        self.full: Arena | None = None
        self.probe: Arena | None = None
        self.aligned: Arena | None = None
        self.whole: Arena | None = None
        self._grown: list[tuple[dict[str, int], Arena]] | None = None
        self.company: Company | None = None
        self.probe_values: dict[str, int] = {}
        self.modelled: Modelled | None = None
        self._reference_call: Modelled | None = None
        self._model_failure = ""
        self._is_model_awaited = False
        self.only_gpu: Finding | None = None
        self._user: gates.FullSizeCall | None = None
        self._is_user_known = False
        self._open()
        self.report = self._report()

    @property
    def is_cpu(self) -> bool:
        return self._memory.device.type == "cpu"

    @property
    def target(self) -> Target | None:
        """The GPU that times are modelled for: the one at work, or without one the task's; None if nothing is known of it."""
        return TARGETS[self.spec.target] if self.is_cpu else target_titled(self.device_name)

    # Opening

    def _open(self) -> None:
        if not self.is_cpu:
            try:
                self.full = self._arena(self.spec.source, self._memory, "cuda")
            except InvalidTask:
                self.complain_of_crowd()
                raise
            self.modelled = gates.places_of(self.full)
            self._open_probe(None)
            return
        link = self._pool.player("interpreter", "reference")
        try:
            self._start_model(link)
            self._open_probe(link)
            self._finish_model(link)
        finally:
            link.close()

    def _arena(self, source: str, memory: Memory, nursery: Any) -> Arena:
        link = self._pool.player(nursery, "reference")
        arena = Arena(self.spec, source, link, memory, self.rng)
        arena.deadlines = self.deadlines
        try:
            arena.open()
        except InvalidTask:
            link.close()
            raise
        return arena

    def _start_model(self, link: PlayerLink) -> None:
        """The reference at full size over reserved memory; without it there is no modelled speed."""
        request = Load(
            source=self.spec.source, role="reference", device="cpu", target=self.spec.target
        )
        try:
            answer = link.ask(request, Loaded, self.deadlines.imports)
            if isinstance(answer, Failed):
                raise arena_module.refusal(answer)
            link.send(Model(seed=0))
            self._is_model_awaited = True
        except PlayerLost as lost:
            raise InvalidTask(arena_module.why_lost(lost, request)) from lost

    def _finish_model(self, link: PlayerLink) -> None:
        if not self._is_model_awaited:
            return
        self._is_model_awaited = False
        try:
            answer = link.answer(Modelled, gates.MODEL_S)
        except PlayerLost as lost:
            self._model_failure = lost.detail
            return
        if isinstance(answer, Failed):
            self._model_failure = f"{answer.error}: {answer.message}"[:500]
        else:
            self._reference_call = answer
            if self.is_cpu:
                self.modelled = answer

    def _open_probe(self, link: PlayerLink | None) -> None:
        """The first of the proposed smaller tasks whose reference runs.

        Args:
            link: the player that was asked for the reference's model; None where a GPU runs the full size.
        """
        first: InvalidTask | None = None
        proposals = probe.probe_assignments(self.spec.source)
        for values in proposals:
            if not values and self._takes_too_long(link):
                return
            source = probe.with_assignments(self.spec.source, values)
            try:
                self.probe = self._arena(source, self._host, "interpreter")
            except InvalidTask as error:
                first = error if not values or first is None else first
                if error.line is None and "did not end" in error.reason:
                    break
                continue
            self.probe_values = values
            return
        if self.full is None and first is not None:
            raise first

    def _takes_too_long(self, link: PlayerLink | None) -> bool:
        """Whether the full size, which nothing makes smaller, is too large to be interpreted: the task is for a GPU only."""
        if link is not None:
            self._finish_model(link)
        call = self.reference_call()
        seconds = interpreting_cost.trials_s(call.operations if call is not None else ())
        if seconds <= interpreting_cost.LIMIT_S:
            return False
        self.only_gpu = lint.gpu_only(seconds, interpreting_cost.LIMIT_S)
        return True

    def reference_call(self) -> Modelled | None:
        """What the reference asks of torch at full size; beside a GPU that is found out when first asked for."""
        if self._reference_call is None and not self.is_cpu and not self._model_failure:
            link = self._pool.player("interpreter", "reference")
            try:
                self._start_model(link)
                self._finish_model(link)
            finally:
                link.close()
        return self._reference_call

    def _report(self) -> TaskReport:
        """What every evaluation needs to know; `linted` adds the rest."""
        described = self.full or self.modelled or self.probe
        assert described is not None, "a task is described once it was set up at some size"
        places, tree, outputs = reports.places_of(described)
        tried = self.probe or self.full
        found = [self.only_gpu, lint.untestable(tried) if tried is not None else None]
        changed = bool(self.probe_values)
        return TaskReport(
            inputs=reports.input_specs(tree, places),
            outputs=tuple(reports.spec(p) for p in outputs),
            probe=self.probe_values if changed else None,
            probe_source=self.probe.source if self.probe is not None and changed else None,
            warnings=tuple(finding for finding in found if finding is not None),
        )

    def linted(self) -> TaskReport:
        """The report with everything that makes the task unable to tell right from wrong."""
        tried = self.probe or self.full
        found = list(self.report.warnings)
        if tried is not None and self.report.untestable is None:
            found += lint.warnings(tried, self._reference_time(tried))
        if self._model_failure:
            found.append(lint.no_model(self._model_failure))
        return self.report.model_copy(update={"warnings": tuple(found)})

    def _reference_time(self, arena: Arena) -> lint.Modelled | None:
        call = self.reference_call()
        if call is None or not call.operations:
            return None
        target = TARGETS[self.spec.target]
        reference = gates.modelled(call, [], target, arena)
        if reference is None:
            return None
        moving_s = gates.least_bytes(call) / (target.bandwidth * target.copy_fraction)
        computing_us = sum(max(part.dot_us, part.alu_us) for part in reference.parts)
        least_us = max(moving_s * 1e6, computing_us) + target.launch_us
        return lint.Modelled(reference_us=reference.us, least_us=least_us)

    # Evaluating

    def evaluate(self, source: str) -> Evaluation:
        """Raises InvalidTask where no candidate can be judged."""
        if self.report.untestable is not None:
            raise InvalidTask(self.report.untestable.title)
        return _Run(self, source).run()

    def new_player(self, nursery: Any, role: str = "candidate") -> PlayerLink:
        return self._pool.player(nursery, role)

    def complain_of_crowd(self) -> None:
        """Raises DeviceLost where others hold most of the device's memory: what has failed may work without them."""
        free = self._memory.free_share()
        if free < CROWDED:
            raise DeviceLost(
                f"only {free:.0%} of the memory of {self.device_name} is free; use fewer slots"
            )

    def stage(self, stage: Stage) -> None:
        self._pool.stage(stage.value)

    @contextmanager
    def alone(self, seconds: Callable[[str], AbstractContextManager[None]]) -> Iterator[None]:
        """The device for this task alone; `seconds` are those of its steps "wait" and "hold"."""
        with seconds("wait"):
            self._pool.quiet()
        try:
            with seconds("hold"):
                yield
        finally:
            self._pool.company()

    def user_baseline(self) -> gates.FullSizeCall | None:
        """The user's own kernel at full size, asked for once; None where there is none or it fails."""
        source = self.spec.baseline_source
        if source and self.modelled is not None and not self._is_user_known:
            self._is_user_known = True
            self._user = gates.full_size_call(
                source, self.spec, self.modelled, self.deadlines, self.new_player
            )
        return self._user

    def grown_arenas(self) -> list[tuple[dict[str, int], Arena]]:
        """Probes in which one size is the full task's, with the values they were made by."""
        if self._grown is None:
            self._grown = []
            for values in probe.grown_assignments(self.spec.source)[:GROWN]:
                source = probe.with_assignments(self.spec.source, values)
                with suppress(InvalidTask):
                    arena = self._arena(source, self._host, "interpreter")
                    self._grown.append((values, arena))
        return self._grown

    def whole_arena(self) -> Arena | None:
        """The full task on the interpreter; None where its reference cannot be run here."""
        if self.whole is None:
            with suppress(InvalidTask):
                self.whole = self._arena(self.spec.source, self._host, "interpreter")
        return self.whole

    def aligned_arena(self) -> Arena | None:
        """A probe whose sizes are as divisible as the full ones; None where that is no other task."""
        values = probe.aligned_assignments(self.spec.source)
        if not values or values == self.probe_values:
            return None
        if self.aligned is None:
            source = probe.with_assignments(self.spec.source, values)
            try:
                self.aligned = self._arena(source, self._host, "interpreter")
            except InvalidTask:
                return None
        return self.aligned


class _Run:
    """One evaluation: its stages, what was found, and the verdict in the end."""

    def __init__(self, task: OpenTask, source: str) -> None:
        self.task = task
        self.source = source
        self.stages: dict[Stage, float] = {}
        self.seconds: dict[str, float] = {}
        self.notes: list[Finding] = []
        self.profile: dict[str, Any] = {}
        self.timing: Timing | None = None
        self.baselines = Baselines()
        self.speedup = Speedup()
        self.verified_at: VerifiedAt | None = None
        self.compilation: gates.Compilation | None = None
        self._full_size_call: Modelled | None = None

    def run(self) -> Evaluation:
        try:
            with self._stage(Stage.STATIC):
                found = static_checks.check(self.source)
                if found is not None:
                    raise Stop(Verdict.INVALID, found)
            if self.task.is_cpu:
                self._on_cpu()
            else:
                self._on_cuda()
        except Stop as stop:
            return self._evaluation(stop.verdict, stop.finding)
        finally:
            if self.compilation is not None:
                self.compilation.close()
        return self._evaluation(Verdict.CORRECT, None)

    @contextmanager
    def _stage(self, stage: Stage) -> Iterator[None]:
        self.task.stage(stage)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.stages[stage] = self.stages.get(stage, 0.0) + time.perf_counter() - started

    # Without a GPU

    def _on_cpu(self) -> None:
        if self.task.only_gpu is not None:
            raise Stop(None, failures.unevaluable(Stage.PROBE, self.task.only_gpu.title))
        arena = self.task.probe
        assert arena is not None
        contestant = self._probe(arena)
        try:
            self._genuine(contestant)
            with self._stage(Stage.TIMING):
                self._publish_model()
        finally:
            contestant.close()
        self.verified_at = VerifiedAt.PROBE if self.task.probe_values else VerifiedAt.FULL

    def _probe(self, arena: Arena) -> Contestant:
        """Correct and safe at probe size, and compiled; the player stays for what follows."""
        contestant = Contestant(self.task.new_player("interpreter"), arena, Stage.PROBE)
        try:
            stop = self._try_probe(contestant)
        except BaseException:
            contestant.close()
            raise
        if stop is None:
            return contestant
        found = self._closing_accusations(contestant)
        contestant.close()
        if found:
            raise _accused(found)
        self._compile_gate(stop)
        self._second_chance(stop)
        raise stop

    def _try_probe(self, contestant: Contestant) -> Stop | None:
        arena = contestant.arena
        try:
            with self._stage(Stage.LOAD):
                self._start_compiling()
                trials.load(contestant, self.source)
                trials.construct(contestant)
                if self.compilation is not None:
                    self.compilation.proceed()
            with self._stage(Stage.PROBE):
                arena.reset()
                trials.trials(contestant)
        except Stop as stop:
            return stop
        self._compile_gate(None)
        self.notes += contestant.notes
        return None

    def _closing_accusations(self, contestant: Contestant) -> list[Finding]:
        found = contestant.accusations()
        self.notes += found[1:]
        return found

    def _genuine(self, contestant: Contestant) -> None:
        with self._stage(Stage.GENUINENESS):
            found = self._closing_accusations(contestant)
            if found:
                raise _accused(found)
            trials.genuine_so_far(contestant, self.task.spec.track)
            is_before = self.task.rng.random() < 0.5
            if is_before:
                trials.late(contestant, self.task.rng)
            modelled = self._modelled_call(contestant)
            if not is_before:
                trials.late(contestant, self.task.rng)
            if found := self._closing_accusations(contestant):
                raise _accused(found)
            trials.genuine(contestant, self.task.spec.track)
            self._genuine_at_full_size(contestant, modelled)
            self._enough_work(modelled)
            self._same_at_full_size(modelled)

    def _genuine_at_full_size(self, contestant: Contestant, modelled: Modelled | None) -> None:
        if modelled is None:
            return
        has_floats = contestant.arena.has_floats
        track = self.task.spec.track
        found = genuineness.torch_computes_at_full_size(modelled.seen, track, has_floats=has_floats)
        kernels = self.compilation.kernels if self.compilation is not None else []
        if found is None and kernels and not trials.reads_numbers(contestant):
            only = gates.interpreted_only(modelled, kernels)
            found = genuineness.other_kernels(only, [k.kernel for k in kernels])
        if found is not None:
            raise Stop(Verdict.CHEATING, found)

    def _start_compiling(self) -> None:
        if self.compilation is None and self.task.modelled is not None:
            link = self.task.new_player("compile")
            self.compilation = gates.Compilation(
                link, self.task.spec, self.task.modelled, self.task.deadlines
            )
            self.compilation.start(self.source)

    def _compile_gate(self, earlier: Stop | None) -> None:
        """Raises Stop where the compiler refuses; it comes before whatever the probe found."""
        if self.compilation is None:
            return
        if earlier is not None and (earlier.verdict is Verdict.INVALID or _has_ended(earlier)):
            return
        with self._stage(Stage.COMPILE):
            self.compilation.finish()
            self.notes += self.compilation.notes
            stop = self.compilation.stop(self._policy_arena())
        if stop is not None:
            raise stop
        if earlier is not None and self.compilation.kernels and _is_interpreters_own(earlier):
            reason = (
                f"the interpreter fails on it and the compiler does not: {earlier.finding.title}"
            )
            raise Stop(None, failures.unevaluable(Stage.PROBE, reason))

    def _policy_arena(self) -> Arena:
        arena = self.task.full or self.task.probe
        assert arena is not None
        return arena

    def _second_chance(self, stop: Stop) -> None:
        """A candidate made for the full sizes may fail at a ragged probe only; this device cannot tell then."""
        if not self.task.probe_values or not _may_be_about_sizes(stop):
            return
        reason = self._why_full_size_only()
        if reason:
            self.notes.append(stop.finding.model_copy(update={"severity": Severity.WARNING}))
            raise Stop(None, failures.unevaluable(Stage.PROBE, reason))

    def _why_full_size_only(self) -> str:
        """In what way the candidate depends on the full sizes; empty if it fails at all sizes alike."""
        modelled = self.task.modelled
        if modelled is not None and self.task.probe is not None:
            full = modelled.places, modelled.init
            small = self.task.probe.described.buffers[0].places, self.task.probe.described.init
            literals = gates.literals_of_full_size(self.source, full, small)
            if literals:
                return f"it is written for the full size ({literals[0]} stands in its source) and fails at probe size"
        arena = self.task.aligned_arena()
        if arena is None:
            return ""
        if self._tried(arena, whole=True) is not None or self._stop_when_grown() is not None:
            return ""
        return "it needs sizes as divisible as the full ones and fails at ragged probe sizes"

    def _modelled_call(self, contestant: Contestant) -> Modelled | None:
        """The candidate's launches and operations at full size; None, with a note, where that fails."""
        task_model = self.task.modelled
        if task_model is None:
            return None
        request = gates.model_request(task_model)
        try:
            answer = contestant.link.ask(request, Modelled, gates.MODEL_S)
        except PlayerLost as lost:
            raise failures.why_lost(lost, Stage.TIMING, "call") from lost
        if isinstance(answer, Failed):
            stop = failures.why_failed(answer, Stage.TIMING)
            if stop.verdict is None:
                self.notes.append(stop.finding)
                return None
            raise stop
        self._full_size_call = answer
        return answer

    def _enough_work(self, modelled: Modelled | None) -> None:
        if modelled is None or self.task.modelled is None:
            return
        wanted = sum(gates.nbytes_of(p) for p in self.task.modelled.outputs)
        found = genuineness.too_little_work(
            gates.stored_bytes(modelled), wanted, is_complete=gates.is_complete(modelled)
        )
        if found is not None:
            raise Stop(Verdict.CHEATING, found)

    def _same_at_full_size(self, modelled: Modelled | None) -> None:
        """Raises Stop where the full-size call does what the probe did not show."""
        task_model = self.task.modelled
        if modelled is None or task_model is None or not self.task.probe_values:
            return
        seen = gates.outside_at_full_size(modelled, task_model)
        if seen is not None:
            raise memory_findings.outside_at_full_size(seen)
        if gates.touches_less(modelled, task_model):
            stop = self._stop_when_grown() or self._stop_when_whole(modelled, task_model)
            if stop is not None:
                raise stop

    def _stop_when_whole(self, modelled: Modelled, task_model: Modelled) -> Stop | None:
        """How the candidate fails on real inputs of the full size; that it cannot be tried if nothing else tells."""
        arena = None
        if gates.can_be_interpreted_whole(modelled, task_model):
            arena = self.task.whole_arena()
        if arena is not None:
            stop = self._tried(arena, whole=False, limit_s=WHOLE_S)
            if stop is None or stop.verdict in (Verdict.INCORRECT, Verdict.RUNTIME_ERROR):
                return stop
        if not gates.reads_hardly(modelled, task_model):
            return None
        reason = "at full size it seems to read less than half of what the reference reads"
        return Stop(None, failures.unevaluable(Stage.TIMING, reason))

    def _stop_when_grown(self) -> Stop | None:
        """How the candidate fails where one size is as large as in the full task, if it does."""
        for values, arena in self.task.grown_arenas():
            stop = self._tried(arena, whole=False)
            if stop is None or stop.verdict not in (Verdict.INCORRECT, Verdict.RUNTIME_ERROR):
                continue
            sizes = ", ".join(f"{key} = {value}" for key, value in values.items())
            title = (
                f"with {sizes or 'all sizes'} and the rest as large as given: {stop.finding.title}"
            )
            return Stop(stop.verdict, stop.finding.model_copy(update={"title": title[:300]}))
        return None

    def _tried(self, arena: Arena, *, whole: bool, limit_s: float | None = None) -> Stop | None:
        """How the candidate fails in another arena: in all trials, or in a single call."""
        contestant = Contestant(self.task.new_player("interpreter"), arena, Stage.PROBE)
        try:
            arena.reset()
            trials.load(contestant, self.source)
            trials.construct(contestant)
            if whole:
                trials.trials(contestant)
            else:
                limit = limit_s or self.task.deadlines.noop
                trials.trial(contestant, arena.mixer.next(), poison="nan", timeout_s=limit)
        except Stop as stop:
            return stop
        finally:
            contestant.close()
        return None

    def _publish_model(self) -> None:
        """The modelled speed as the result, where nothing can be measured."""
        modelled = self._model()
        if modelled is None:
            return
        candidate_us, eager_us = modelled
        self.timing = Timing(device_us=candidate_us, call_us=None, n=0)
        self.baselines = Baselines(eager=Timing(device_us=eager_us, n=0))
        self.speedup = Speedup(eager=Ratio(ratio=eager_us / candidate_us))
        self._model_user(candidate_us)

    def _model(self) -> tuple[float, float] | None:
        """Modelled microseconds of the candidate and of the reference; the profile has their parts."""
        task_model, own = self.task.reference_call(), self._full_size_call
        target = self.task.target
        if task_model is None or own is None or target is None:
            return None
        kernels = self.compilation.kernels if self.compilation is not None else []
        arena = self._policy_arena()
        reference = gates.modelled(task_model, [], target, arena)
        candidate = gates.modelled(own, kernels, target, arena)
        if reference is None or candidate is None:
            return None
        self.profile = {
            "candidate": candidate.as_json(),
            "eager": reference.as_json(),
            "kernels": [gates.facts_of(kernel) for kernel in kernels],
            "least_bytes": gates.least_bytes(task_model),
        }
        return candidate.us, reference.us

    def _model_user(self, candidate_us: float) -> None:
        call = self.task.user_baseline()
        if call is None:
            return
        target = TARGETS[self.task.spec.target]
        user = gates.modelled(call.modelled, call.kernels, target, self._policy_arena())
        if user is not None:
            time = Timing(device_us=user.us, n=0)
            self.baselines = self.baselines.model_copy(update={"user": time})
            ratio = Ratio(ratio=user.us / candidate_us)
            self.speedup = self.speedup.model_copy(update={"user": ratio})

    # On a GPU

    def _on_cuda(self) -> None:
        arena = self.task.full
        assert arena is not None
        beside = self._probe_beside_gpu(self.task.probe) if self.task.probe is not None else None
        try:
            self._correct_on_gpu(arena)
            self._measure(arena)
        except Stop as stop:
            if stop.verdict is Verdict.OUT_OF_MEMORY or stop.finding.kind in ("exit", "crash"):
                self.task.complain_of_crowd()
            raise
        else:
            if beside is not None:
                self._profile(beside)
        finally:
            if beside is not None:
                beside.close()

    def _correct_on_gpu(self, arena: Arena) -> None:
        contestant = Contestant(self.task.new_player("cuda"), arena, Stage.CORRECTNESS)
        try:
            with self._stage(Stage.LOAD):
                trials.load(contestant, self.source)
                trials.construct(contestant)
            with self._stage(Stage.CORRECTNESS):
                arena.reset()
                trials.trials(contestant)
            self.verified_at = VerifiedAt.FULL
            self.notes += contestant.notes
            with self._stage(Stage.GENUINENESS):
                found = self._closing_accusations(contestant)
                if found:
                    raise _accused(found)
                trials.genuine(contestant, self.task.spec.track)
        except Stop as stop:
            found = self._closing_accusations(contestant)
            if found and stop.verdict is not Verdict.CHEATING:
                raise _accused(found) from stop
            raise
        finally:
            contestant.close()
            arena.memory.release_unused()

    def _probe_beside_gpu(self, arena: Arena) -> Contestant | None:
        """Memory safety on the interpreter, whose player stays; None where it cannot judge and the GPU has to."""
        try:
            return self._probe(arena)
        except Stop as stop:
            if stop.verdict is None:
                self.notes.append(stop.finding)
                return None
            raise

    def _profile(self, beside: Contestant) -> None:
        """Where the measured time goes, by the model; a candidate that cannot be modelled has none."""
        with self._stage(Stage.PROFILE), suppress(Stop):
            self._modelled_call(beside)
            self._model()

    def _measure(self, arena: Arena) -> None:
        from gpu_runner.evaluation.child import measuring

        contestant = Contestant(self.task.new_player("cuda"), arena, Stage.TIMING)
        try:
            with self._stage(Stage.LOAD):
                trials.load(contestant, self.source)
            with self._stage(Stage.TIMING):
                measured = measuring.measure(self.task, contestant, self.notes, self.seconds)
        finally:
            contestant.close()
        self.timing, self.baselines, self.speedup = measured

    # The result

    def _evaluation(self, verdict: Verdict | None, lead: Finding | None) -> Evaluation:
        order = {Severity.GATE: 0, Severity.WARNING: 1, Severity.HINT: 2, Severity.NOTE: 3}
        rest = sorted(self.notes, key=lambda f: order[f.severity])
        findings = ((lead,) if lead is not None else ()) + tuple(f for f in rest if f != lead)
        is_correct = verdict is Verdict.CORRECT
        is_finished = verdict is not None
        kind = lead.kind if lead is not None and is_finished and not is_correct else None
        return Evaluation(
            verdict=verdict,
            kind=kind,
            state=State.FINISHED if is_finished else State.UNEVALUATED,
            fidelity=Fidelity.MODELLED if self.task.is_cpu else Fidelity.MEASURED,
            verified_at=self.verified_at if is_correct else None,
            device=self.task.device_name,
            track=self.task.spec.track,
            precision=self.task.spec.precision,
            findings=findings[:60],
            candidate=self.timing if is_correct else None,
            baselines=self.baselines if is_correct else Baselines(),
            speedup=self.speedup if is_correct else Speedup(),
            stages=tuple(StageTime(name=name, seconds=s) for name, s in self.stages.items()),
            environment=self._environment(),
            profile=self.profile if is_correct else {},
        )

    def _environment(self) -> dict[str, Any]:
        return {
            "evaluator": EVALUATOR_VERSION,
            "torch": torch.__version__,
            "triton": triton.__version__,
            "target": self.task.target.name if self.task.target is not None else None,
            "probe": self.task.probe_values,
            "timing_s": self.seconds,
        }


def _accused(found: list[Finding]) -> Stop:
    is_precision = found[0].kind == "precision_below_policy"
    return Stop(Verdict.INCORRECT if is_precision else Verdict.CHEATING, found[0])


def _check_contract(source: str) -> None:
    problems = contract.check_contract(source)
    if problems:
        raise InvalidTask(problems[0].message, problems[0].line)


def _has_ended(stop: Stop) -> bool:
    """The player hung or died in host code, which the compiling player runs too: its word adds nothing."""
    ends = ("crash", "exit", "host", "import", "construct", "call")
    return stop.finding.source is Source.JUDGE and stop.finding.kind in ends


def _is_interpreters_own(stop: Stop) -> bool:
    """An exception from inside a kernel, which a compiled kernel cannot raise."""
    return (
        stop.verdict is Verdict.RUNTIME_ERROR
        and stop.finding.kind == "exception"
        and str(stop.finding.evidence.get("error")) == "InterpreterError"
    )


_ABOUT_SIZES = frozenset(
    "values nan unwritten race shape trivial_answer parameters out_of_bounds exception constructor launch".split()
)


def _may_be_about_sizes(stop: Stop) -> bool:
    fails = stop.verdict in (Verdict.INCORRECT, Verdict.RUNTIME_ERROR)
    return fails and stop.finding.kind in _ABOUT_SIZES
