"""A run: evolution at work on one task, its islands, its events, and what people asked of it meanwhile."""

from datetime import datetime, timedelta
from typing import Any, Self

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from evolution_app.models.accounts import User
from evolution_app.models.base import AppendOnly, AppendOnlyQuerySet, choices_of
from evolution_app.models.fleet import Runner
from evolution_app.models.sources import SourceText
from evolution_app.models.tasks import Task, steerable_task, visible_task
from gpu_runner.core.task import RunSpec
from gpu_runner.core.verdicts import RunState

LEASE = timedelta(seconds=20)
MAX_LOST_CLAIMS = 12
"""A run whose runner died this often without finishing a candidate in between has failed."""

OVER = [state.value for state in RunState if state.is_over]
CLAIMABLE = [
    RunState.QUEUED,
    RunState.RUNNING,
    RunState.PAUSING,
    RunState.STOPPING,
]


class RunQuerySet(models.QuerySet["Run"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        if not isinstance(user, User) or not user.is_active:
            return self.none()
        return self.all() if user.is_operator else self.filter(visible_task(user, "task__"))

    def steerable_by(self, user: User | AnonymousUser) -> Self:
        if not isinstance(user, User) or not user.is_active or not user.is_submitter:
            return self.none()
        return self.all() if user.is_operator else self.filter(steerable_task(user, "task__"))

    def over(self) -> Self:
        return self.filter(state__in=OVER)

    def not_over(self) -> Self:
        return self.exclude(state__in=OVER)

    def claimable(self, now: datetime) -> Self:
        """Waiting runs and those whose runner stopped renewing its lease, the oldest first."""
        free = Q(runner=None) | Q(lease_until__lte=now)
        return self.filter(free, state__in=CLAIMABLE).order_by("id")

    def claim(self, run_id: int, runner: Runner, now: datetime) -> int | None:
        """Take a claimable run by compare-and-set; the fencing token, or None if another was faster."""
        held = self.filter(id=run_id).values_list("fence", "runner_id").first()
        if held is None:
            return None
        fence, lost_runner = held
        taken = (
            self.claimable(now)
            .filter(id=run_id, fence=fence)
            .order_by()
            .update(
                runner=runner,
                fence=fence + 1,
                lease_until=now + LEASE,
                lost_claims=F("lost_claims") + (1 if lost_runner else 0),
            )
        )
        return fence + 1 if taken else None

    def renew(self, run_id: int, fence: int, now: datetime) -> bool:
        """Extend the lease; False if the run belongs to somebody else."""
        return bool(
            self.filter(id=run_id, fence=fence, runner__isnull=False).update(
                lease_until=now + LEASE
            )
        )


class Run(models.Model):
    """One evolution of one task.

    `state` is what the run does; `wanted` what people want of it: RUNNING, PAUSING, STOPPING (after the
    current candidates) or CANCELLED. A run that is over holds no lease.
    """

    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="runs")
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="runs"
    )
    state = models.CharField(max_length=12, choices=choices_of(RunState), default=RunState.QUEUED)
    wanted = models.CharField(max_length=12, choices=choices_of(RunState), default=RunState.RUNNING)
    stop_reason = models.TextField(
        blank=True, help_text="why it is over, paused or back in the queue"
    )
    options = models.JSONField(help_text="core.task.RunSpec without the task")
    spent = models.JSONField(
        default=dict, help_text="evaluations, tokens, money_usd, gpu_s, wall_s"
    )
    best = models.ForeignKey(
        "Candidate", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    last_seq = models.PositiveBigIntegerField(default=0, help_text="of its newest event")
    last_candidate = models.PositiveIntegerField(
        default=0, help_text="the newest candidate's number"
    )
    runner = models.ForeignKey(
        Runner,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="runs",
        help_text="who holds the lease",
    )
    lease_until = models.DateTimeField(null=True, blank=True)
    fence = models.PositiveBigIntegerField(
        default=0, help_text="raised by every claim; writers must know it"
    )
    lost_claims = models.PositiveSmallIntegerField(
        default=0, help_text="runners lost since a candidate was last finished"
    )
    device = models.CharField(
        max_length=120, blank=True, help_text="of the runner that worked on it last"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="run_state_known", condition=Q(state__in=[state.value for state in RunState])
            ),
            models.CheckConstraint(
                name="run_over_has_no_lease",
                condition=~Q(state__in=OVER) | Q(runner=None, lease_until=None),
            ),
            models.CheckConstraint(
                name="run_lease_is_whole",
                condition=Q(runner=None, lease_until=None)
                | Q(runner__isnull=False, lease_until__isnull=False),
            ),
            models.CheckConstraint(
                name="run_over_is_dated",
                condition=Q(state__in=OVER, finished_at__isnull=False)
                | (~Q(state__in=OVER) & Q(finished_at=None)),
            ),
        ]
        indexes = [models.Index(fields=["state", "id"], name="run_by_state")]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"run {self.pk} of {self.task}"

    def get_absolute_url(self) -> str:
        return f"/runs/{self.pk}"

    def spec(self) -> RunSpec:
        """Everything a runner needs; reads the task and its sources."""
        return RunSpec.model_validate({"task": self.task.spec(), **self.options})

    @property
    def budget(self) -> dict[str, Any]:
        """The limits of core.task.Budget as JSON; None where unlimited."""
        budget: dict[str, Any] = self.options["budget"]
        return budget

    @property
    def is_over(self) -> bool:
        return RunState(self.state).is_over

    @property
    def is_held(self) -> bool:
        """Whether a runner works on it now, as far as its lease says."""
        return self.lease_until is not None and self.lease_until > timezone.now()

    def result(self) -> dict[str, Any] | None:
        """What `result.json` of a run in files would say; None while it is not over."""
        note = self.run_notes.filter(kind="result").order_by("-id").first()
        payload: dict[str, Any] | None = note.payload if note else None
        return payload

    def runs_ahead(self) -> int:
        """How many queued runs a runner will take before this one."""
        return Run.objects.filter(state=RunState.QUEUED, id__lt=self.pk).count()


class Island(models.Model):
    """A population that evolves alone, with its own strategy."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="islands")
    number = models.PositiveSmallIntegerField(help_text="from 0, in ring order")
    strategy = models.CharField(
        max_length=80, blank=True, help_text="the lens its proposals look through"
    )
    description = models.TextField(blank=True)
    settings = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="island_numbered_once", fields=["run", "number"])
        ]
        ordering = ["run_id", "number"]

    def __str__(self) -> str:
        return f"island {self.number}"


class RunEventQuerySet(AppendOnlyQuerySet):
    def after(self, run_id: int, seq: int) -> Self:
        """The run's events that follow `seq`, in order."""
        return self.filter(run_id=run_id, seq__gt=seq).order_by("seq")


class RunEvent(AppendOnly):
    """One thing that happened in a run; written in the transaction of the change it tells of.

    `seq` counts from 1 without gaps within a run, in the order of commits.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=40)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = RunEventQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(name="event_seq_once", fields=["run", "seq"])]
        ordering = ["run_id", "seq"]

    def as_frame(self) -> dict[str, Any]:
        """The event as sockets, the HTTP API and the command line carry it."""
        return {
            "v": 1,
            "seq": self.seq,
            "kind": self.kind,
            "payload": self.payload,
            "at": self.created_at.isoformat(),
        }


class RunNote(AppendOnly):
    """What the search wrote down to go on from after a kill; people see the events that follow from some."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="run_notes")
    kind = models.CharField(max_length=40)
    payload = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["run", "kind", "id"], name="note_by_kind")]
        ordering = ["id"]


class SteeringQuerySet(models.QuerySet["Steering"]):
    def waiting(self, run_id: int) -> Self:
        return self.filter(run_id=run_id, taken_at=None).order_by("id")


class Steering(models.Model):
    """A person's contribution to a run in progress: a kernel to evaluate, or a hint for the next proposals."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="steerings")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    agent = models.CharField(
        max_length=60, blank=True, help_text="the program that wrote it on the author's behalf"
    )
    island = models.PositiveSmallIntegerField(default=0)
    source = models.ForeignKey(
        SourceText, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    hint = models.TextField(blank=True)
    parent = models.ForeignKey(
        "Candidate", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    taken_at = models.DateTimeField(null=True, blank=True, help_text="when the runner read it")

    objects = SteeringQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="steering_says_something", condition=Q(source__isnull=False) | ~Q(hint="")
            )
        ]
