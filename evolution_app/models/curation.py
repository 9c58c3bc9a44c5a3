"""What people do with the entries of the library: decide, discuss, and come back to what they look at often."""

from datetime import timedelta
from typing import Final

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from evolution_app.models.base import AppendOnly, AppendOnlyQuerySet
from evolution_app.models.library import EntryVersion, ExperienceEntry

UNDO_FOR: Final = timedelta(minutes=10)


class ReviewQuerySet(AppendOnlyQuerySet):
    def of_people(self) -> "ReviewQuerySet":
        """Decisions that stand: neither taken back nor the taking back of another."""
        return self.exclude(decision=Review.Decision.UNDO).filter(undone_by=None)


class Review(AppendOnly):
    """An expert's decision on one version.

    `state_before` and `approved_before` say what taking it back restores; `batch` names the decisions that were made at once.
    """

    class Decision(models.TextChoices):
        APPROVE = "approve"
        EDIT_AND_APPROVE = "edit_and_approve", "edit and approve"
        REQUEST_CHANGES = "request_changes", "request changes"
        REJECT = "reject"
        RETIRE = "retire"
        RESTORE = "restore"
        MERGE = "merge"
        UNDO = "undo"

    entry = models.ForeignKey(ExperienceEntry, on_delete=models.CASCADE, related_name="reviews")
    version = models.ForeignKey(EntryVersion, on_delete=models.PROTECT, related_name="reviews")
    reviewer = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="reviews"
    )
    decision = models.CharField(max_length=16, choices=Decision)
    reason = models.TextField(blank=True)
    waiver = models.TextField(
        blank=True,
        help_text="why a rule was waived: missing evidence, or the reviewer's own nomination",
    )
    state_before = models.CharField(max_length=10, null=True)
    approved_before = models.ForeignKey(
        EntryVersion, null=True, on_delete=models.PROTECT, related_name="+"
    )
    batch = models.CharField(max_length=32, null=True, db_index=True)
    undoes = models.OneToOneField(
        "self", null=True, on_delete=models.PROTECT, related_name="undone_by"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ReviewQuerySet.as_manager()

    class Meta:
        ordering = ["id"]

    @property
    def is_recent(self) -> bool:
        return self.created_at > timezone.now() - UNDO_FOR


class EntryComment(AppendOnly):
    """A remark in the discussion of an entry, on the version that was read."""

    entry = models.ForeignKey(ExperienceEntry, on_delete=models.CASCADE, related_name="comments")
    version = models.ForeignKey(EntryVersion, on_delete=models.PROTECT, related_name="+")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        constraints = [models.CheckConstraint(name="comment_says_something", condition=~Q(text=""))]
        ordering = ["id"]


class SavedView(models.Model):
    """A search of the library that somebody comes back to; `query` is the page's own."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views"
    )
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=500)

    class Meta:
        constraints = [models.UniqueConstraint(name="view_named_once", fields=["user", "name"])]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
