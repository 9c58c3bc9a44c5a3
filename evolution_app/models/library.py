"""The Experience Library: entries with numbered versions, the evidence for them, and where they were shown."""

import uuid
from typing import Self

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from evolution_app.models.accounts import User
from evolution_app.models.base import AppendOnly, AppendOnlyQuerySet, choices_of
from evolution_app.models.candidates import Candidate
from evolution_app.models.runs import Run
from evolution_app.models.tasks import Task, Visibility, visible_task
from gpu_runner.core import entries as core_entries
from gpu_runner.core.entries import EntryContent, EntryKind, EntryState
from gpu_runner.core.entry_states import IN_USE
from gpu_runner.core.verdicts import Fidelity


class ExperienceEntryQuerySet(models.QuerySet["ExperienceEntry"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """As visible as the task it came from, or wider where somebody with the right made it so."""
        if not isinstance(user, User) or not user.is_active:
            return self.none()
        if user.is_operator:
            return self.all()
        condition = Q(visibility=Visibility.PUBLIC) | Q(nominated_by=user)
        condition |= Q(task__isnull=False) & visible_task(user, "task__")
        if user.is_expert:
            condition |= Q(visibility=Visibility.SHARED)
        return self.filter(condition)

    def in_use(self) -> Self:
        """What runs are shown: approved by an expert, or checked by execution and not confirmed yet."""
        return self.filter(state__in=IN_USE)

    def with_support(self) -> Self:
        """Adds `is_supported`: whether executed evidence shows a gain, as `Evidence.supports` says for one row."""
        shown = Q(low__gt=1) | Q(low=None, ratio__gt=1)
        supporting = Evidence.objects.filter(shown, entry=OuterRef("pk"))
        return self.annotate(is_supported=Exists(supporting))

    def for_lists(self) -> Self:
        return self.select_related("current", "task", "nominated_by")


def new_uid() -> str:
    return uuid.uuid4().hex


class ExperienceEntry(models.Model):
    """A lesson reused across tasks. What it says is in its versions; `approved` is the one that retrieval may use: that an
    expert approved, or, in the state `checked`, the one that was executed and that nobody has confirmed yet.

    `nominated_by` None: distilled by the system. `visibility` empty: exactly as visible as its task.
    """

    uid = models.CharField(max_length=32, unique=True, default=new_uid, editable=False)
    state = models.CharField(
        max_length=10, choices=choices_of(EntryState), default=EntryState.DRAFT
    )
    task = models.ForeignKey(
        Task, null=True, blank=True, on_delete=models.PROTECT, related_name="entries"
    )
    candidate = models.ForeignKey(
        Candidate, null=True, blank=True, on_delete=models.SET_NULL, related_name="nominations"
    )
    nominated_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="nominations",
    )
    visibility = models.CharField(max_length=8, choices=Visibility, blank=True)
    current = models.ForeignKey(
        "EntryVersion",
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="the newest version",
    )
    approved = models.ForeignKey(
        "EntryVersion", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    merged_into = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="merged"
    )
    claimed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="claimed_entries",
        help_text="who is reviewing it just now; it means nothing after `claimed_until`",
    )
    claimed_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    objects = ExperienceEntryQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="entry_state_known",
                condition=Q(state__in=[state.value for state in EntryState]),
            ),
            models.CheckConstraint(
                name="entry_approved_has_version",
                condition=~Q(state__in=sorted(state.value for state in IN_USE))
                | Q(approved__isnull=False),
            ),
            models.CheckConstraint(
                name="entry_merged_is_retired",
                condition=Q(merged_into=None) | Q(state=EntryState.RETIRED.value),
            ),
        ]
        ordering = ["-id"]
        verbose_name_plural = "experience entries"

    def __str__(self) -> str:
        return f"E-{self.pk} {self.current.title if self.current else ''}".strip()

    def get_absolute_url(self) -> str:
        return f"/library/{self.pk}"

    @property
    def content(self) -> EntryContent:
        assert self.current is not None, f"entry {self.pk} has no version"
        return self.current.as_core()

    def as_core(self) -> core_entries.Entry:
        """The entry as retrieval reads it: its approved version, or the newest while it has none."""
        version = self.approved or self.current
        assert version is not None, f"entry {self.pk} has no version"
        return core_entries.Entry(
            id=self.uid,
            version=version.number,
            state=EntryState(self.state),
            content=version.as_core(),
        )

    @property
    def claimant(self) -> User | None:
        """Who is reviewing it just now."""
        is_held = self.claimed_until is not None and self.claimed_until > timezone.now()
        return self.claimed_by if is_held else None

    def has_evidence(self) -> bool:
        """Whether execution supports its newest version: a gain (see `Evidence.supports`), or a failure that it mended."""
        is_verified = self.state == EntryState.VERIFIED
        is_checked = self.state == EntryState.CHECKED and self.approved_id == self.current_id
        return is_verified or is_checked or any(e.supports for e in self.evidence.all())


class EntryVersion(AppendOnly):
    """What an entry said at one time. `author` None: written by the system."""

    entry = models.ForeignKey(ExperienceEntry, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField(help_text="from 1")
    title = models.CharField(max_length=200)
    kind = models.CharField(max_length=16, choices=choices_of(EntryKind))
    content = models.JSONField(help_text="core.entries.EntryContent")
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    note = models.CharField(max_length=500, blank=True, help_text="why it was changed")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="entry_version_once", fields=["entry", "number"])
        ]
        ordering = ["entry_id", "number"]

    def __str__(self) -> str:
        return f"v{self.number}"

    def as_core(self) -> EntryContent:
        return EntryContent.model_validate(self.content)


class Evidence(AppendOnly):
    """A measured or modelled pair: the candidate before and the one after the entry's action."""

    class Role(models.TextChoices):
        NOMINATION = "nomination", "the pair it was nominated with"
        VERIFICATION = "verification", "a fresh run for this entry"

    entry = models.ForeignKey(ExperienceEntry, on_delete=models.CASCADE, related_name="evidence")
    role = models.CharField(max_length=12, choices=Role)
    version = models.ForeignKey(
        "EntryVersion",
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="the version that was verified",
    )
    task = models.ForeignKey(Task, null=True, on_delete=models.PROTECT, related_name="+")
    before = models.ForeignKey(Candidate, null=True, on_delete=models.PROTECT, related_name="+")
    after = models.ForeignKey(Candidate, null=True, on_delete=models.PROTECT, related_name="+")
    device = models.CharField(max_length=120)
    fidelity = models.CharField(max_length=10, choices=choices_of(Fidelity))
    ratio = models.FloatField(help_text="time before / time after")
    low = models.FloatField(null=True)
    high = models.FloatField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(name="evidence_ratio_positive", condition=Q(ratio__gt=0))
        ]
        ordering = ["id"]
        verbose_name_plural = "evidence"

    @property
    def supports(self) -> bool:
        """Whether it shows a gain: above 1, with its interval where it was measured."""
        return self.ratio > 1 if self.low is None else self.low > 1


class EntryUse(AppendOnly):
    """An entry was shown when a candidate was proposed."""

    entry = models.ForeignKey(ExperienceEntry, on_delete=models.CASCADE, related_name="uses")
    version = models.ForeignKey(EntryVersion, on_delete=models.PROTECT, related_name="uses")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="entry_uses")
    candidate = models.ForeignKey(Candidate, on_delete=models.CASCADE, related_name="entry_uses")
    rank = models.PositiveSmallIntegerField(
        null=True, help_text="its place among what was shown, from 1"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="entry_used_once", fields=["entry", "candidate"])
        ]
