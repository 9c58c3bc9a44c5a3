"""A run's ledger in the database, and what a runner needs of the database besides: claims, heartbeats, the library.

The only module of the runner that knows the ORM; Django must be set up before it is imported.
"""

import math
import os
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db.models import Count, F, Max, Q
from django.utils import timezone

import gpu_runner
from evolution_app import recording
from evolution_app.library_worth import measured_standings
from evolution_app.models import Evaluation, ExperienceEntry, Run, Runner, RunNote, Steering
from evolution_app.models.runs import LEASE, MAX_LOST_CLAIMS
from gpu_runner.core.candidate import Candidate, Proposal
from gpu_runner.core.entries import Entry
from gpu_runner.core.evaluation import Evaluation as CoreEvaluation
from gpu_runner.core.ledger import LeaseLost, ModelCall
from gpu_runner.core.task import Budget, RunSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import RunState, Stage
from gpu_runner.experience import Shelf


@dataclass(frozen=True)
class Seen:
    """What people want of a run, and whose it is."""

    wanted: RunState
    fence: int
    budget: Budget
    has_kernels: bool
    has_hints: bool


class Watch:
    """Looks at all runs that one process holds at the same time; what is seen may be `max_age_s` old."""

    def __init__(self, max_age_s: float = 0.0) -> None:
        self._max_age_s = max_age_s
        self._looked_at = -math.inf
        self._runners: dict[int, int | None] = {}
        self._seen: dict[int, Seen] = {}

    def add(self, run_id: int, runner_id: int | None) -> None:
        self._runners[run_id] = runner_id
        self._looked_at = -math.inf

    def forget(self, run_id: int) -> None:
        self._runners.pop(run_id, None)

    def of(self, run_id: int) -> Seen | None:
        """None where the run is gone or its runner has lost it."""
        now = time.monotonic()
        if now - self._looked_at >= self._max_age_s:
            self._seen = self._look()
            self._looked_at = now
        return self._seen.get(run_id)

    def _look(self) -> dict[int, Seen]:
        """Two queries, whatever the number of runs."""
        # By runner: a list of many runs takes long to write down each time.
        runners = set(self._runners.values())
        said = Steering.objects.filter(
            Q(taken_at=None, source__isnull=False) | ~Q(hint=""), run__runner__in=runners
        )
        kernels, hints = set(), set()
        for run_id, hint, source, taken_at in said.values_list(
            "run_id", "hint", "source_id", "taken_at"
        ):
            if hint:
                hints.add(run_id)
            if source and not taken_at:
                kernels.add(run_id)
        rows = Run.objects.filter(runner__in=runners).order_by()
        return {
            run_id: Seen(
                RunState(wanted),
                fence,
                Budget.model_validate(options["budget"]),
                run_id in kernels,
                run_id in hints,
            )
            for run_id, wanted, fence, options in rows.values_list(
                "pk", "wanted", "fence", "options"
            )
        }


class Store:
    """Implements `core.ledger.Ledger` for one claim of one run.

    Args:
        run_id: the claimed run.
        fence: the claim's fencing token; every write compares it.
        device: the name of the device that works on it, for the pages.
        watch: shared by all claims of a process; one that always looks where left out.
    """

    def __init__(
        self, run_id: int, fence: int, device: str = "", watch: Watch | None = None
    ) -> None:
        self.run_id = run_id
        self.fence = fence
        self._device = device
        self._watch = watch or Watch()
        self._resting = threading.Event()
        run = Run.objects.select_related("task__source", "task__baseline_source").get(pk=run_id)
        self._spec = run.spec()
        self._watch.add(run_id, run.runner_id)

    def budget(self) -> Budget:
        return self._seen().budget

    @contextmanager
    def together(self) -> Iterator[None]:
        with recording.held(self.run_id, self.fence):
            yield

    def _seen(self) -> Seen:
        seen = self._watch.of(self.run_id)
        if seen is None or seen.fence != self.fence:
            raise LeaseLost(f"run {self.run_id} belongs to another runner or to none")
        return seen

    @property
    def spec(self) -> RunSpec:
        return self._spec

    def candidates(self) -> list[Candidate]:
        run = Run.objects.get(pk=self.run_id)
        rows = run.candidates.select_related("island", "source").prefetch_related(
            "parent_links__parent"
        )
        # Ascending, so that the newest evaluation of a candidate is the one that stays.
        evaluations = {
            row.candidate_id: row
            for row in Evaluation.objects.filter(candidate__run=run).order_by("id")
        }
        return [
            row.as_core(evaluations[row.pk].as_core() if row.pk in evaluations else None)
            for row in rows.order_by("number")
        ]

    def notes(self, kind: str) -> list[dict[str, Any]]:
        recording.flush(self.run_id)
        notes = RunNote.objects.filter(run_id=self.run_id, kind=kind).order_by("id")
        return list(notes.values_list("payload", flat=True))

    def add(self, proposal: Proposal) -> Candidate:
        number = recording.record_candidate(self.run_id, self.fence, proposal).number
        kept = {
            name: recording.storable_text(value) if isinstance(value, str) else value
            for name, value in proposal.model_dump().items()
        }
        return Candidate.model_validate({**kept, "id": number})

    def stage(self, candidate_id: int, stage: Stage) -> None:
        recording.record_stage(self.run_id, self.fence, candidate_id, stage)

    def requeue(self, candidate_id: int, reason: str) -> None:
        recording.record_requeue(self.run_id, self.fence, candidate_id, reason)

    def finish(self, candidate_id: int, evaluation: CoreEvaluation) -> None:
        recording.record_evaluation(self.run_id, self.fence, candidate_id, evaluation)

    def abandon(self, candidate_id: int, reason: str) -> None:
        recording.record_abandoned(self.run_id, self.fence, candidate_id, reason)

    def note(self, kind: str, payload: dict[str, Any]) -> None:
        with self.together():
            recording.record_note(self.run_id, self.fence, kind, payload)
            if kind == "published":
                evaluation = CoreEvaluation.model_validate(payload["evaluation"])
                recording.record_evaluation(
                    self.run_id,
                    self.fence,
                    payload["candidate_id"],
                    evaluation,
                    is_published=True,
                )

    def model_call(self, call: ModelCall) -> None:
        recording.record_model_call(self.run_id, self.fence, call)

    def has_injected(self) -> bool:
        return self._seen().has_kernels

    def injected(self) -> list[Proposal]:
        return [
            _proposal(steering) for steering in recording.take_steering(self.run_id, self.fence)
        ]

    def hints(self, island: int) -> list[str]:
        """What people want the next proposals of an island to consider, the newest first."""
        if not self._seen().has_hints:
            return []
        if Steering.objects.waiting(self.run_id).filter(source=None, island=island).exists():
            recording.take_hints(self.run_id, self.fence, island)
        hints = Steering.objects.filter(run_id=self.run_id, island=island).exclude(hint="")
        return list(hints.order_by("-id").values_list("hint", flat=True)[:5])

    def rest(self) -> None:
        """This runner is going away: from now on it wants to pause, and the run goes back to the queue."""
        self._resting.set()

    def wanted(self) -> RunState:
        wanted = self._seen().wanted
        is_leaving = self._resting.is_set() and wanted is RunState.RUNNING
        return RunState.PAUSING if is_leaving else wanted

    def set_state(self, state: RunState, reason: str = "") -> None:
        recording.record_state(self.run_id, self.fence, state, reason, device=self._device)

    def spend(self, **amounts: float) -> None:
        recording.record_spending(self.run_id, self.fence, amounts)

    def spent(self) -> dict[str, float]:
        spent: dict[str, float] = Run.objects.values_list("spent", flat=True).get(pk=self.run_id)
        return spent

    def report(self, report: TaskReport) -> None:
        """What `pool.inspect` found out about the task, for the pages."""
        recording.record_report(self.run_id, self.fence, report)

    def release(self, reason: str) -> None:
        """Give the run back to the queue after a failure of ours; nothing happens if it is not ours any more."""
        try:
            with recording.held(self.run_id, self.fence):
                Run.objects.filter(pk=self.run_id).update(lost_claims=F("lost_claims") + 1)
                state = RunState.FAILED if _is_hopeless(self.run_id) else RunState.QUEUED
                self.set_state(state, reason)
        except LeaseLost:
            return


def _proposal(steering: Steering) -> Proposal:
    assert steering.source is not None
    parent = steering.parent
    return Proposal(
        source=steering.source.text,
        island=steering.island,
        parents=(parent.number,) if parent else (),
        generation=parent.generation + 1 if parent else 0,
        origin=_authorship(steering),
        move=(steering.hint or f"a kernel by {steering.author.display_name}")[:300],
    )


def _authorship(steering: Steering) -> str:
    """Who made an injected kernel; a program's name stands beside that of the person it works for."""
    person = f"person:{steering.author.username}"
    return (f"{person} by {steering.agent}" if steering.agent else person)[:80]


def _is_hopeless(run_id: int) -> bool:
    return Run.objects.filter(pk=run_id, lost_claims__gt=MAX_LOST_CLAIMS).exists()


def library_for(run_id: int) -> list[Entry]:
    """The entries in use that the run's starter may see."""
    run = Run.objects.select_related("started_by").get(pk=run_id)
    entries = ExperienceEntry.objects.in_use().visible_to(run.started_by)
    return [entry.as_core() for entry in entries.select_related("approved", "current")]


def shelf_for(run_id: int) -> Shelf:
    """The same as it changes: what is approved, edited, retired or measured meanwhile counts at the run's next proposal."""
    return Shelf(lambda: library_for(run_id), _library_revision, measured_standings)


def _library_revision() -> tuple[Any, ...]:
    entries = ExperienceEntry.objects.in_use()
    return tuple(entries.aggregate(Count("id"), Max("changed_at")).values())


# Runners


def register(*, sandbox: str, slots: int) -> Runner:
    """A row for this process; also marks runners of this machine whose processes are gone, so that their runs are free."""
    _bury_the_dead()
    host = socket.gethostname()
    return Runner.objects.create(
        name=f"{host}:{os.getpid()}",
        host=host,
        place=_place(),
        pid=os.getpid(),
        sandbox=sandbox,
        slots=slots,
        version=_version(),
        heartbeat_at=timezone.now(),
    )


def describe(runner: Runner, *, device: str, kind: str, fingerprint: dict[str, Any]) -> None:
    """The pool is open: say on what this runner works."""
    runner.device, runner.device_kind, runner.problem = device, kind, ""
    runner.fingerprint = recording.storable(fingerprint)
    runner.save(update_fields=["device", "device_kind", "fingerprint", "problem"])


def complain(runner: Runner, problem: str) -> None:
    """Say on the pages why this runner cannot work."""
    Runner.objects.filter(pk=runner.pk).update(problem=problem[:2000])


def beat(runner_id: int, run_ids: Collection[int]) -> list[int]:
    """One heartbeat, renewing the leases of the runs; those whose lease is lost."""
    now = timezone.now()
    Runner.objects.filter(pk=runner_id).update(heartbeat_at=now)
    if not run_ids:
        return []
    held = Run.objects.filter(pk__in=run_ids)
    if held.filter(runner_id=runner_id).update(lease_until=now + LEASE) == len(run_ids):
        return []
    lost = held.exclude(runner_id=runner_id).filter(runner_id__isnull=False)
    return list(lost.values_list("pk", flat=True))


def say_goodbye(runner: Runner) -> None:
    Runner.objects.filter(pk=runner.pk).update(stopped_at=timezone.now())


def is_work_waiting() -> bool:
    """Whether a run could be claimed."""
    return Run.objects.claimable(timezone.now()).exists()


def claim_next(runner: Runner, watch: Watch | None = None) -> Store | None:
    """Claim the oldest run that nobody works on, or None if there is none.

    A run whose runners died too often without finishing a candidate in between is failed instead.
    """
    for run_id in list(Run.objects.claimable(timezone.now()).values_list("id", flat=True)[:10]):
        fence = Run.objects.claim(run_id, runner, timezone.now())
        if fence is None:
            continue
        claim = Store(run_id, fence, runner.device, watch)
        if not _is_hopeless(run_id):
            claim.set_state(RunState.RUNNING)
            return claim
        claim.set_state(
            RunState.FAILED,
            f"the runner died {MAX_LOST_CLAIMS + 1} times in a row without finishing a candidate",
        )
    return None


def _bury_the_dead() -> None:
    """Runners of this machine whose process is gone cannot come back: do not wait for their leases to expire."""
    now = timezone.now()
    for dead in Runner.objects.filter(place=_place(), stopped_at=None).exclude(pid=os.getpid()):
        if Path(f"/proc/{dead.pid}").exists():
            continue
        Runner.objects.filter(pk=dead.pk).update(stopped_at=now)
        Run.objects.filter(runner=dead, lease_until__gt=now).update(lease_until=now)


def _place() -> str:
    """Where a process id means the same process: this boot, this pid namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def _version() -> str:
    return str(getattr(gpu_runner, "__version__", "0.1.0"))
