"""Runners and their heartbeats, and the hints that wake followers of events in other processes."""

from datetime import timedelta
from typing import Self

from django.db import models
from django.utils import timezone

HEARTBEAT_EVERY = timedelta(seconds=3)
LOST_AFTER = 3 * HEARTBEAT_EVERY + timedelta(seconds=1)


class RunnerQuerySet(models.QuerySet["Runner"]):
    def alive(self) -> Self:
        """Runners whose heartbeat is fresh by this process's clock and that have not said goodbye."""
        return self.filter(stopped_at=None, heartbeat_at__gt=timezone.now() - LOST_AFTER)


class Runner(models.Model):
    """One `work` process. A restarted one is a new row."""

    name = models.CharField(max_length=120, help_text="host and process id")
    host = models.CharField(max_length=120)
    place = models.CharField(
        max_length=80, blank=True, help_text="boot and pid namespace in which `pid` means something"
    )
    pid = models.PositiveIntegerField()
    device = models.CharField(max_length=120, blank=True, help_text="empty until the pool is open")
    device_kind = models.CharField(max_length=16, blank=True)
    fingerprint = models.JSONField(default=dict)
    sandbox = models.CharField(max_length=16, help_text="bwrap or none")
    slots = models.PositiveSmallIntegerField(default=1)
    version = models.CharField(max_length=40)
    problem = models.TextField(blank=True, help_text="why it cannot work, for the pages")
    started_at = models.DateTimeField(auto_now_add=True)
    heartbeat_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True)

    objects = RunnerQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["heartbeat_at"], name="runner_by_heartbeat")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_alive(self) -> bool:
        return self.stopped_at is None and self.heartbeat_at > timezone.now() - LOST_AFTER

    @property
    def is_sandboxed(self) -> bool:
        return self.sandbox != "none"


class Hint(models.Model):
    """A message of the tail layer for the groups of other processes; it may be lost and is pruned after minutes."""

    group = models.CharField(max_length=100)
    message = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)
