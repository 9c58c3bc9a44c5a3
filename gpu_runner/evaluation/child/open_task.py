"""A task that was opened: its reference players at several sizes, and what is known of it before any candidate."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from gpu_runner.core import contract, probe
from gpu_runner.core.findings import Finding
from gpu_runner.core.targets import TARGETS, Target, target_titled
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Stage
from gpu_runner.evaluation.child import arena as arena_module
from gpu_runner.evaluation.child import gates, interpreting_cost, lint, reports
from gpu_runner.evaluation.child.arena import Arena, Deadlines
from gpu_runner.evaluation.child.links import PlayerLink, PlayerLost, PoolLink
from gpu_runner.evaluation.child.memory import Memory, open_memory
from gpu_runner.evaluation.errors import DeviceLost, InvalidTask
from gpu_runner.evaluation.protocol import Failed, Load, Loaded, Model, Modelled

if TYPE_CHECKING:
    from gpu_runner.evaluation.child.measuring import Company

CROWDED: Final = 0.25
"""Share of the device's memory; with less of it free once a player is gone, others may be why it failed."""
GROWN: Final = 3
"""Probes of one full size each; each keeps a player."""


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
        self._probe_elements = probe.MOST_ELEMENTS
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
            self._shrink_probe()
            return
        link = self._pool.player("interpreter", "reference")
        try:
            self._start_model(link)
            self._open_probe(link)
            self._finish_model(link)
            self._shrink_probe()
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
        request = self._load(self.spec.source)
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

    def _shrink_probe(self) -> None:
        """Replace a probe at which the reference is too much work for the interpreter by smaller ones, while there are any."""
        seconds = self._trials_s()
        elements = probe.MOST_ELEMENTS
        while seconds > interpreting_cost.PROBE_LIMIT_S and elements > probe.FEWEST_ELEMENTS:
            elements //= 2
            if self._reopen_probe(elements):
                seconds = self._trials_s()

    def _reopen_probe(self, elements: int) -> bool:
        """Open the first proposal of at most so many elements that runs; False where that is the one which is open."""
        for values in probe.probe_assignments(self.spec.source, elements):
            if not values or values == self.probe_values:
                return False
            source = probe.with_assignments(self.spec.source, values)
            with suppress(InvalidTask):
                arena = self._arena(source, self._host, "interpreter")
                if self.probe is not None:
                    self.probe.link.close()
                self.probe, self.probe_values = arena, values
                self._probe_elements = elements
                return True
        return False

    def _trials_s(self) -> float:
        """Estimated for a candidate at the probe's size; 0 where that is not smaller or nothing can be counted.

        A player of its own counts: what a reference keeps between calls must not come from reserved memory.
        """
        if self.probe is None or not self.probe_values:
            return 0.0
        link = self._pool.player("interpreter", "reference")
        try:
            loaded = link.ask(self._load(self.probe.source), Loaded, self.deadlines.imports)
            answer = link.ask(Model(seed=0), Modelled, gates.MODEL_S)
        except PlayerLost:
            return 0.0
        finally:
            link.close()
        if isinstance(loaded, Failed) or isinstance(answer, Failed):
            return 0.0
        return interpreting_cost.trials_s(answer.operations)

    def _load(self, source: str) -> Load:
        return Load(source=source, role="reference", device="cpu", target=self.spec.target)

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

    # What an evaluation asks for

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

    def share(self) -> None:
        """Wait until nobody times on the device; its use is ours with others' then, until the next stage."""
        self._pool.company()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The device for this task alone, as soon as nobody else uses it."""
        self._pool.quiet()
        try:
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
            grown = probe.grown_assignments(self.spec.source, self._probe_elements)
            for values in grown[:GROWN]:
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
        values = probe.aligned_assignments(self.spec.source, self._probe_elements)
        if not values or values == self.probe_values:
            return None
        if self.aligned is None:
            source = probe.with_assignments(self.spec.source, values)
            try:
                self.aligned = self._arena(source, self._host, "interpreter")
            except InvalidTask:
                return None
        return self.aligned


def _check_contract(source: str) -> None:
    problems = contract.check_contract(source)
    if problems:
        raise InvalidTask(problems[0].message, problems[0].line)
