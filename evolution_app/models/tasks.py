"""What people submit: a PyTorch reference with the options that verdicts and times depend on."""

from typing import Self

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import models
from django.db.models import Q

from evolution_app.models.accounts import User
from evolution_app.models.base import choices_of
from evolution_app.models.sources import SourceText
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Precision, Track


class Visibility(models.TextChoices):
    """Who sees a task besides its owner, operators and the people it is shared with by name."""

    PRIVATE = "private"
    SHARED = "shared", "shared with experts"
    PUBLIC = "public"


class TaskQuerySet(models.QuerySet["Task"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Tasks that a user may see; everything that belongs to a task follows it."""
        if not isinstance(user, User) or not user.is_active:
            return self.none()
        if user.is_operator:
            return self.all()
        return self.filter(visible_task(user))

    def steerable_by(self, user: User | AnonymousUser) -> Self:
        """Tasks whose runs a user may start, stop, steer: own ones, for experts also those shared with them."""
        if not isinstance(user, User) or not user.is_active or not user.is_submitter:
            return self.none()
        if user.is_operator:
            return self.all()
        return self.filter(steerable_task(user))

    def for_lists(self) -> Self:
        """Without the long columns."""
        return self.select_related("owner").defer("report", "notes")


def visible_task(user: User, path: str = "") -> Q:
    """The condition on a task at `path` (such as `run__task__`) that `user`, no operator, sees it."""
    shared = TaskShare.objects.filter(user=user).values("task_id")
    condition = Q(**{f"{path}owner": user}) | Q(**{f"{path}visibility": Visibility.PUBLIC})
    condition |= Q(**{f"{path}id__in": shared})
    if user.is_expert:
        condition |= Q(**{f"{path}visibility": Visibility.SHARED})
    return condition


def steerable_task(user: User, path: str = "") -> Q:
    condition = Q(**{f"{path}owner": user})
    if user.is_expert:
        shared = TaskShare.objects.filter(user=user).values("task_id")
        condition |= Q(**{f"{path}visibility": Visibility.SHARED}) | Q(**{f"{path}id__in": shared})
    return condition


class Task(models.Model):
    """A submission. Its source and options never change once it exists: a changed source is another task."""

    Visibility = Visibility

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="tasks"
    )
    name = models.CharField(max_length=120)
    source = models.ForeignKey(SourceText, on_delete=models.PROTECT, related_name="+")
    baseline_source = models.ForeignKey(
        SourceText,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="the owner's own ModelNew: a named baseline and first candidate",
    )
    track = models.CharField(max_length=20, choices=choices_of(Track), default=Track.OWN_KERNELS)
    precision = models.CharField(
        max_length=12, choices=choices_of(Precision), default=Precision.REFERENCE
    )
    target = models.CharField(max_length=20, default="h200", help_text="the GPU of modelled speed")
    visibility = models.CharField(max_length=8, choices=Visibility, default=Visibility.PRIVATE)
    shared_with = models.ManyToManyField(
        settings.AUTH_USER_MODEL,
        through="TaskShare",
        through_fields=("task", "user"),
        related_name="+",
    )
    suite = models.CharField(
        max_length=120,
        blank=True,
        help_text="path in the built-in suite: level2/mlp_block; else empty",
    )
    key = models.CharField(
        max_length=24, db_index=True, help_text="equal for interchangeable tasks"
    )
    report = models.JSONField(null=True, help_text="core.task_report.TaskReport, once inspected")
    notes = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TaskQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="task_visibility_known", condition=Q(visibility__in=Visibility.values)
            ),
            models.CheckConstraint(
                name="task_track_known", condition=Q(track__in=[track.value for track in Track])
            ),
            models.CheckConstraint(
                name="task_precision_known",
                condition=Q(precision__in=[precision.value for precision in Precision]),
            ),
            models.CheckConstraint(name="task_named", condition=~Q(name="")),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return f"/tasks/{self.pk}"

    def spec(self) -> TaskSpec:
        """The task as a runner works on it; reads one or two source texts."""
        return TaskSpec(
            name=self.name,
            source=self.source.text,
            track=Track(self.track),
            precision=Precision(self.precision),
            target=self.target,
            baseline_source=self.baseline_source.text if self.baseline_source else None,
        )


class TaskShare(models.Model):
    """One person who may see a task by name; an expert may also steer its runs."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="shares")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="task_shares"
    )
    shared_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(name="task_shared_once", fields=["task", "user"])]
