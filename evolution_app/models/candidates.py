"""Candidates with their parents, evaluations, findings, and the model calls that made them."""

from typing import TYPE_CHECKING, Any, Self

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import models
from django.db.models import F, Q

from evolution_app.models.accounts import User
from evolution_app.models.base import choices_of
from evolution_app.models.runs import Island, Run
from evolution_app.models.sources import SourceText
from evolution_app.models.tasks import visible_task
from gpu_runner.core import candidate as core_candidate
from gpu_runner.core import evaluation as core_evaluation
from gpu_runner.core.candidate import RUN_ENDED
from gpu_runner.core.findings import Severity
from gpu_runner.core.findings import Source as FindingSource
from gpu_runner.core.verdicts import Fidelity, Stage, State, Verdict, VerifiedAt

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager

CORRECT = Q(verdict=Verdict.CORRECT.value)
JUDGED = Q(state=State.FINISHED.value)


class CandidateQuerySet(models.QuerySet["Candidate"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        if not isinstance(user, User) or not user.is_active:
            return self.none()
        return self.all() if user.is_operator else self.filter(visible_task(user, "run__task__"))

    def correct(self) -> Self:
        return self.filter(CORRECT)

    def best_first(self) -> Self:
        """Correct candidates, the fastest first, those without a time last; the older of two equals first."""
        return self.correct().order_by(F("speedup").desc(nulls_last=True), "number")

    def failed(self) -> Self:
        return self.filter(JUDGED).exclude(CORRECT)

    def for_lists(self) -> Self:
        """With what a row of a list shows and without the source text: two queries in all."""
        return self.select_related("island").prefetch_related("parent_links__parent")


class Candidate(models.Model):
    """One kernel source proposed for a task. `number` is its id within the run, from 1.

    `state` says where it is in its life, `verdict` and `kind` what was found out; the speedups are those of its
    latest evaluation, over eager.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="candidates")
    number = models.PositiveIntegerField()
    island = models.ForeignKey(Island, on_delete=models.CASCADE, related_name="candidates")
    parents = models.ManyToManyField(
        "self",
        through="CandidateParent",
        through_fields=("candidate", "parent"),
        symmetrical=False,
        related_name="children",
    )
    generation = models.PositiveIntegerField(default=0)
    source = models.ForeignKey(SourceText, on_delete=models.PROTECT, related_name="candidates")
    origin = models.CharField(
        max_length=80, help_text="compiler:default, rewrite:fuse, model:NAME, person"
    )
    move = models.CharField(max_length=300, blank=True, help_text="what was changed, one line")
    plan = models.CharField(max_length=80, blank=True)
    predicted_gain = models.FloatField(null=True, help_text="ratio over the parent")
    entries = models.JSONField(default=list, help_text="uids of library entries that were shown")
    arm = models.CharField(max_length=40, blank=True)

    state = models.CharField(max_length=12, choices=choices_of(State), default=State.QUEUED)
    stage = models.CharField(
        max_length=12,
        choices=choices_of(Stage),
        blank=True,
        help_text="the gate it has reached while evaluating",
    )
    verdict = models.CharField(max_length=16, choices=choices_of(Verdict), blank=True)
    kind = models.CharField(max_length=40, blank=True)
    fidelity = models.CharField(max_length=10, choices=choices_of(Fidelity), blank=True)
    verified_at = models.CharField(max_length=6, choices=choices_of(VerifiedAt), blank=True)
    speedup = models.FloatField(null=True, help_text="eager time / candidate time")
    speedup_low = models.FloatField(null=True)
    speedup_high = models.FloatField(null=True)
    speedup_compile = models.FloatField(null=True, help_text="torch.compile time / candidate time")
    speedup_user = models.FloatField(
        null=True, help_text="the owner's baseline time / candidate time"
    )
    device_us = models.FloatField(null=True)
    lead = models.CharField(max_length=300, blank=True, help_text="the leading finding's title")
    setbacks = models.PositiveSmallIntegerField(default=0, help_text="how often we, not it, failed")
    setback = models.TextField(blank=True, help_text="our latest failure on it")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    parent_links: "RelatedManager[CandidateParent]"
    evaluations: "RelatedManager[Evaluation]"

    objects = CandidateQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="candidate_numbered_once", fields=["run", "number"]),
            models.CheckConstraint(name="candidate_numbered_from_1", condition=Q(number__gte=1)),
            models.CheckConstraint(
                name="candidate_state_known",
                condition=Q(state__in=[state.value for state in State]),
            ),
            models.CheckConstraint(
                name="candidate_verdict_if_finished",
                condition=(JUDGED & ~Q(verdict="")) | (~JUDGED & Q(verdict="", kind="")),
            ),
            models.CheckConstraint(
                name="candidate_kind_if_wrong",
                condition=Q(verdict="", kind="")
                | (CORRECT & Q(kind=""))
                | (~CORRECT & ~Q(kind="")),
            ),
            models.CheckConstraint(
                name="candidate_times_if_correct",
                condition=CORRECT
                | Q(
                    speedup=None,
                    speedup_low=None,
                    speedup_high=None,
                    speedup_compile=None,
                    speedup_user=None,
                    device_us=None,
                ),
            ),
            models.CheckConstraint(
                name="candidate_stage_while_evaluating",
                condition=Q(stage="") | Q(state=State.EVALUATING.value),
            ),
        ]
        indexes = [
            models.Index(fields=["run", "-speedup"], name="candidate_by_speedup"),
            models.Index(fields=["run", "island", "number"], name="candidate_by_island"),
        ]
        ordering = ["run_id", "number"]

    def __str__(self) -> str:
        return f"c-{self.number}"

    def get_absolute_url(self) -> str:
        return f"/runs/{self.run_id}/c/{self.number}"

    @property
    def is_correct(self) -> bool:
        return self.verdict == Verdict.CORRECT

    @property
    def ended_with_run(self) -> bool:
        """Whether its turn never came; nobody failed then."""
        return self.state == State.ABANDONED and self.setback.startswith(RUN_ENDED)

    @property
    def is_over(self) -> bool:
        return self.state in (State.FINISHED, State.UNEVALUATED, State.ABANDONED)

    @property
    def parent_numbers(self) -> list[int]:
        """In order; no query when `parent_links__parent` is prefetched."""
        return [link.parent.number for link in self.parent_links.all()]

    def latest_evaluation(self) -> "Evaluation | None":
        return self.evaluations.order_by("-id").first()

    def as_core(
        self, evaluation: core_evaluation.Evaluation | None = None
    ) -> core_candidate.Candidate:
        """The candidate as the runner knows it."""
        return core_candidate.Candidate(
            id=self.number,
            state=State(self.state),
            evaluation=evaluation,
            source=self.source.text,
            island=self.island.number,
            parents=tuple(self.parent_numbers),
            generation=self.generation,
            origin=self.origin,
            move=self.move,
            plan=self.plan or None,
            predicted_gain=self.predicted_gain,
            entries=tuple(self.entries),
            arm=self.arm,
        )


class CandidateParent(models.Model):
    """One of the at most two candidates another was made from, in order."""

    candidate = models.ForeignKey(Candidate, on_delete=models.CASCADE, related_name="parent_links")
    parent = models.ForeignKey(Candidate, on_delete=models.CASCADE, related_name="child_links")
    position = models.PositiveSmallIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="parent_position_once", fields=["candidate", "position"]),
            models.CheckConstraint(name="parents_at_most_two", condition=Q(position__lte=1)),
            models.CheckConstraint(
                name="parent_is_another", condition=~Q(candidate=models.F("parent"))
            ),
        ]
        ordering = ["candidate_id", "position"]


class EvaluationQuerySet(models.QuerySet["Evaluation"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        return self.filter(candidate__in=Candidate.objects.visible_to(user))


class Evaluation(models.Model):
    """The result of one evaluation as `evaluate --json` prints it, with the columns that lists filter by."""

    candidate = models.ForeignKey(Candidate, on_delete=models.CASCADE, related_name="evaluations")
    document = models.JSONField(help_text="core.evaluation.Evaluation")
    verdict = models.CharField(max_length=16, choices=choices_of(Verdict), blank=True)
    kind = models.CharField(max_length=40, blank=True)
    fidelity = models.CharField(max_length=10, choices=choices_of(Fidelity), blank=True)
    device = models.CharField(max_length=120)
    is_published = models.BooleanField(
        default=False, help_text="timed once more after selection: the figures to publish"
    )
    evaluator_version = models.PositiveSmallIntegerField(default=core_evaluation.EVALUATOR_VERSION)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = EvaluationQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["verdict", "kind"], name="evaluation_by_verdict")]
        ordering = ["id"]

    def as_core(self) -> core_evaluation.Evaluation:
        return core_evaluation.Evaluation.model_validate(self.document)


class Finding(models.Model):
    """One finding of an evaluation as a row, so that people can say whether it was right."""

    evaluation = models.ForeignKey(Evaluation, on_delete=models.CASCADE, related_name="findings")
    position = models.PositiveSmallIntegerField(help_text="0 leads")
    stage = models.CharField(max_length=12, choices=choices_of(Stage))
    kind = models.CharField(max_length=60)
    severity = models.CharField(max_length=8, choices=choices_of(Severity))
    source = models.CharField(max_length=12, choices=choices_of(FindingSource))
    title = models.CharField(max_length=300)
    evidence = models.JSONField(default=dict)
    location = models.JSONField(default=dict, help_text="kernel, line, tensor, region")
    suggestion = models.CharField(max_length=1000, blank=True)
    entries = models.JSONField(default=list)
    is_right = models.BooleanField(null=True, help_text="an expert's judgement; None: not judged")
    judged_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    judged_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="finding_position_once", fields=["evaluation", "position"]
            ),
        ]
        indexes = [models.Index(fields=["kind", "is_right"], name="finding_by_kind")]
        ordering = ["evaluation_id", "position"]

    @property
    def line(self) -> int | None:
        location: dict[str, Any] = self.location
        return location.get("line")


class ModelCall(models.Model):
    """One request to a model and its answer; keys never appear here. None is unknown, not zero."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="model_calls")
    candidate = models.ForeignKey(
        Candidate, null=True, on_delete=models.CASCADE, related_name="model_calls"
    )
    island = models.PositiveSmallIntegerField(null=True)
    model = models.CharField(max_length=120)
    role = models.CharField(max_length=60)
    prompt = models.TextField()
    reply = models.TextField()
    outcome = models.CharField(max_length=80)
    tokens_in = models.PositiveIntegerField(null=True)
    tokens_out = models.PositiveIntegerField(null=True)
    money_usd = models.FloatField(null=True)
    seconds = models.FloatField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
