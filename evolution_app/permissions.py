"""Who sees and may do what: the one layer that pages, sockets, the HTTP API and downloads ask.

Seeing is a queryset, `Model.objects.visible_to(user)`: what it leaves out does not exist for that user, and
`get_visible` answers 404 for it everywhere. Doing is a predicate here. The table is in section 1 of the design.
"""

from datetime import timedelta
from typing import Any, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db import models
from django.http import Http404
from django.utils import timezone

from evolution_app.models import AuditEvent, Candidate, ExperienceEntry, Run, Task, User
from evolution_app.models.tasks import visible_task

Person = User | AnonymousUser
Row = TypeVar("Row", bound=models.Model)


def get_visible(rows: "type[Row] | models.QuerySet[Row]", user: Person, **lookup: Any) -> Row:
    """The one row that matches `lookup` and that `user` may see; Http404 if there is none.

    Args:
        rows: Task, Run, Candidate or ExperienceEntry, or a queryset of one of them.
    """
    queryset: Any = rows._default_manager.all() if isinstance(rows, type) else rows
    found: Row | None = queryset.visible_to(user).filter(**lookup).first()
    if found is None:
        raise Http404(f"no such {queryset.model._meta.verbose_name}")
    if isinstance(user, User) and user.is_operator:
        _audit_look(user, found)
    return found


LOOKS_COUNT_AGAIN_AFTER = timedelta(hours=1)


def _audit_look(operator: User, found: models.Model) -> None:
    """An operator may see everything; looking at what only the role opens leaves a trace, once an hour."""
    task = _task_of(found)
    if task is None or Task.objects.filter(visible_task(operator), pk=task.pk).exists():
        return
    looks = AuditEvent.objects.about(task).filter(actor=operator, verb="task.looked_at")
    if not looks.filter(created_at__gt=timezone.now() - LOOKS_COUNT_AGAIN_AFTER).exists():
        AuditEvent.objects.log(actor=operator, verb="task.looked_at", target=task)


def _task_of(found: models.Model) -> Task | None:
    if isinstance(found, Candidate):
        return found.run.task
    if isinstance(found, Run | ExperienceEntry):
        return found.task
    return found if isinstance(found, Task) else None


def may_submit(user: Person) -> bool:
    return isinstance(user, User) and user.is_active and user.is_submitter


def may_steer(user: Person, target: Run | Task) -> bool:
    """Start, stop, pause, resume, cancel, inject, raise the budget."""
    return type(target).objects.steerable_by(user).filter(pk=target.pk).exists()


def may_share(user: Person, task: Task) -> bool:
    return (
        may_submit(user)
        and isinstance(user, User)
        and (task.owner_id == user.pk or user.is_operator)
    )


def may_nominate(user: Person, candidate: Candidate) -> bool:
    """Submitters from their own candidates, experts from what they see."""
    if not may_submit(user) or not isinstance(user, User):
        return False
    if user.is_expert:
        return Candidate.objects.visible_to(user).filter(pk=candidate.pk).exists()
    return candidate.run.task.owner_id == user.pk


def may_review(user: Person) -> bool:
    """Approve, reject, merge, retire, judge findings; never one's own nomination (see `services.approve_entry`)."""
    return isinstance(user, User) and user.is_active and user.is_expert


def may_edit_entry(user: Person, entry: ExperienceEntry) -> bool:
    """Experts what they see, others what they nominated while nobody has approved it."""
    if not isinstance(user, User) or not user.is_active:
        return False
    if user.is_expert:
        return ExperienceEntry.objects.visible_to(user).filter(pk=entry.pk).exists()
    return entry.nominated_by_id == user.pk and entry.approved_id is None


def may_widen_entry(user: Person, entry: ExperienceEntry) -> bool:
    """Make an entry more visible than its task: the task's owner, or anybody reviewing where the task is public."""
    if not isinstance(user, User) or not user.is_active:
        return False
    if user.is_operator:
        return True
    if entry.task is None:
        return entry.nominated_by_id == user.pk
    is_public = entry.task.visibility == Task.Visibility.PUBLIC
    return entry.task.owner_id == user.pk or (is_public and user.is_expert)


def may_operate(user: Person) -> bool:
    """Accounts, models, runners, budgets, metrics."""
    return isinstance(user, User) and user.is_active and user.is_operator
