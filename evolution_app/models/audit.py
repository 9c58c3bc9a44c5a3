"""Who did what to which object, kept for ever."""

from typing import Any

from django.conf import settings
from django.db import models

from evolution_app.models.base import AppendOnly, AppendOnlyQuerySet


class AuditEventQuerySet(AppendOnlyQuerySet):
    def about(self, target: models.Model) -> "AuditEventQuerySet":
        return self.filter(object_type=target._meta.model_name, object_id=str(target.pk))

    def log(
        self,
        *,
        actor: Any,
        verb: str,
        target: models.Model,
        before: Any = None,
        after: Any = None,
        why: str = "",
    ) -> "AuditEvent":
        """Write one event. `actor` None is the system; `before` and `after` are JSON values of what changed."""
        event: AuditEvent = self.create(
            actor=actor,
            actor_name=actor.get_username() if actor else "system",
            verb=verb,
            object_type=target._meta.model_name,
            object_id=str(target.pk),
            object_name=str(target)[:200],
            before=before,
            after=after,
            why=why,
        )
        return event


class AuditEvent(AppendOnly):
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="+",
    )
    actor_name = models.CharField(max_length=150)
    verb = models.CharField(max_length=60)
    object_type = models.CharField(max_length=60)
    object_id = models.CharField(max_length=40)
    object_name = models.CharField(max_length=200)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    why = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AuditEventQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["object_type", "object_id", "id"], name="audit_by_object")]
        ordering = ["id"]
