"""One evaluation of a candidate, gate by gate, on a host alone or on a GPU; and its verdict.

Cheap gates first; the first that fails gives the verdict. What the hook saw outranks it: a candidate that reaches for what
it must not is cheating, whatever its outputs are. Compilation runs beside the interpreter, in a child of its own.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import triton

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
from gpu_runner.core.targets import TARGETS
from gpu_runner.core.verdicts import Fidelity, Stage, State, Verdict, VerifiedAt
from gpu_runner.evaluation import static_checks
from gpu_runner.evaluation.child import (
    failures,
    gates,
    genuineness,
    measuring,
    memory_findings,
    other_sizes,
    trials,
)
from gpu_runner.evaluation.child.arena import Arena
from gpu_runner.evaluation.child.compiling import CompiledKernel
from gpu_runner.evaluation.child.failures import Stop
from gpu_runner.evaluation.child.links import PlayerLost
from gpu_runner.evaluation.child.open_task import OpenTask
from gpu_runner.evaluation.child.trials import Contestant
from gpu_runner.evaluation.errors import InvalidTask
from gpu_runner.evaluation.protocol import Failed, Modelled


def evaluate(task: OpenTask, source: str) -> Evaluation:
    """Raises InvalidTask where no candidate can be judged."""
    if task.report.untestable is not None:
        raise InvalidTask(task.report.untestable.title)
    return _Run(task, source).run()


WEAK = ({"float"}, {"math"})


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
        self._doubtful: list[str] = []

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
            self._same_at_full_size(contestant, modelled)
            self._computes_alike()

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
        if found is None:
            found = self._emptied(contestant, kernels)
        if found is not None:
            raise Stop(Verdict.CHEATING, found)

    def _emptied(self, contestant: Contestant, kernels: list[CompiledKernel]) -> Finding | None:
        missing = gates.emptied(contestant.runs, kernels)
        # The compiler knows what becomes of a constant, and what nobody uses: one kind alone is a reason to look.
        self._doubtful = [name for name, kinds in missing.items() if kinds in WEAK]
        return genuineness.emptied({n: k for n, k in missing.items() if n not in self._doubtful})

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
        reason = other_sizes.why_full_size_only(self.task, self.source)
        if reason:
            self.notes.append(stop.finding.model_copy(update={"severity": Severity.WARNING}))
            raise Stop(None, failures.unevaluable(Stage.PROBE, reason))

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

    def _same_at_full_size(self, contestant: Contestant, modelled: Modelled | None) -> None:
        """Raises Stop where the full-size call does what the probe did not show."""
        task_model = self.task.modelled
        if modelled is None or task_model is None or not self.task.probe_values:
            return
        outside = gates.outside_at_full_size(modelled, task_model)
        if outside is not None:
            raise memory_findings.outside_at_full_size(outside)
        seen = {launch.kernel for run in contestant.runs for launch in run.launches}
        unseen = gates.unseen_kernels(modelled, seen)
        if not (gates.touches_less(modelled, task_model) or unseen or self._doubtful):
            return
        stop = other_sizes.when_grown(self.task, self.source, seen)
        if stop is None:
            stop = other_sizes.when_whole(self.task, self.source, modelled, task_model, seen)
        if stop is not None:
            raise stop
        if unseen := gates.unseen_kernels(modelled, seen):
            self.notes.append(other_sizes.unchecked(unseen))

    def _computes_alike(self) -> None:
        """Raises Stop where the compiler makes something else of a kernel than the interpreter: nobody knows what is right."""
        if self._doubtful:
            name = self._doubtful[0]
            reason = f"compiled at full size, {name} computes nothing of what it does where it is interpreted"
            raise Stop(None, failures.unevaluable(Stage.GENUINENESS, reason))

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
        self.profile |= {
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
            self._judge_on_gpu(arena)
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

    def _judge_on_gpu(self, arena: Arena) -> None:
        """One process: found correct, timed as it then stands, and last of all asked what its kernels matter."""
        contestant = self._contestant_on_gpu(arena)
        try:
            self._load_on_gpu(contestant)
            with self._stage(Stage.CORRECTNESS):
                arena.reset()
                trials.trials(contestant)
            self.verified_at = VerifiedAt.FULL
            self.notes += contestant.notes
            with self._stage(Stage.GENUINENESS):
                found = self._closing_accusations(contestant)
                if found:
                    raise _accused(found)
                trials.genuine_so_far(contestant, self.task.spec.track)
            with self._stage(Stage.TIMING):
                measured = measuring.measure(self.task, contestant, self.notes, self.seconds)
            self._still_genuine(contestant)
        except Stop as stop:
            found = self._closing_accusations(contestant)
            if found and stop.verdict is not Verdict.CHEATING:
                raise _accused(found) from stop
            raise
        finally:
            contestant.close()
            arena.memory.release_unused()
        self.profile["timing_s"] = self.seconds
        self.timing, self.baselines, self.speedup = measured

    def _contestant_on_gpu(self, arena: Arena) -> Contestant:
        link = self.task.new_player("cuda")
        return Contestant(link, arena, Stage.CORRECTNESS, give_way=self.task.share)

    def _load_on_gpu(self, contestant: Contestant) -> None:
        with self._stage(Stage.LOAD):
            self.task.share()
            trials.load(contestant, self.source)
            trials.construct(contestant)

    def _still_genuine(self, timed: Contestant) -> None:
        """What was timed still is what was watched, and its kernels matter."""
        if not timed.arena.buffer_names:
            self._watch_again(timed)
            return
        # Its state has gone through the timed calls and the reference's has not: another process is asked.
        contestant = self._contestant_on_gpu(timed.arena)
        try:
            self._load_on_gpu(contestant)
            timed.arena.reset()
            self._watch_again(contestant)
        finally:
            contestant.close()

    def _watch_again(self, contestant: Contestant) -> None:
        with self._stage(Stage.GENUINENESS):
            trials.trial(contestant, contestant.arena.mixer.next())
            trials.genuine(contestant, self.task.spec.track)

    def _probe_beside_gpu(self, arena: Arena) -> Contestant | None:
        """Memory safety on the interpreter, whose player stays; None where it cannot judge and the GPU has to.

        It sees what a launch reads, too, so where the outputs come from.
        """
        try:
            contestant = self._probe(arena)
        except Stop as stop:
            if stop.verdict is None:
                self.notes.append(stop.finding)
                return None
            raise
        try:
            trials.genuine_so_far(contestant, self.task.spec.track)
        except BaseException:
            contestant.close()
            raise
        return contestant

    def _profile(self, beside: Contestant) -> None:
        """Where the measured time goes, by the model; a candidate that cannot be modelled has none."""
        with self._stage(Stage.PROFILE), suppress(Stop):
            self._modelled_call(beside)
            self._model()

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
        }


def _accused(found: list[Finding]) -> Stop:
    is_precision = found[0].kind == "precision_below_policy"
    return Stop(Verdict.INCORRECT if is_precision else Verdict.CHEATING, found[0])


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
