"""Tasks: submit, share, note."""

from collections.abc import Sequence

from django.db import models, transaction
from pydantic import ValidationError

from evolution_app import permissions
from evolution_app.models import AuditEvent, SourceText, Task, TaskShare, User
from evolution_app.services.errors import NotAllowed, Refused, readable
from gpu_runner.core.contract import check_candidate, check_contract
from gpu_runner.core.source import Problem
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Precision, Track


def check_task(*, source: str) -> list[Problem]:
    """What keeps a source from being a task, by its text alone; for the live check of the submit page."""
    return check_contract(source)


@transaction.atomic
def submit_task(
    *,
    owner: User,
    name: str,
    source: str,
    baseline_source: str | None = None,
    track: Track = Track.OWN_KERNELS,
    precision: Precision = Precision.REFERENCE,
    target: str = "h200",
    visibility: str = Task.Visibility.PRIVATE,
    suite: str = "",
    notes: str = "",
) -> Task:
    """Keep a new task. Raises Refused, with the problems and their lines, if the source cannot be one."""
    if not permissions.may_submit(owner):
        raise NotAllowed("viewers do not submit; an operator can make you a submitter")
    if not name.strip():
        raise Refused("the task needs a name")
    if problems := check_contract(source):
        raise Refused("the module is not a task yet", problems)
    if baseline_source and (problem := check_candidate(baseline_source)):
        raise Refused("your own baseline cannot be used", [problem])
    if visibility not in Task.Visibility.values:
        raise Refused(f"visibility is one of {', '.join(Task.Visibility.values)}")
    spec = _task_spec(name.strip(), source, track, precision, target, baseline_source)
    task = Task.objects.create(
        owner=owner,
        name=spec.name,
        source=SourceText.objects.keep(spec.source),
        baseline_source=SourceText.objects.keep(spec.baseline_source)
        if spec.baseline_source
        else None,
        track=spec.track,
        precision=spec.precision,
        target=target,
        visibility=visibility,
        suite=suite,
        notes=notes,
        key=spec.key,
    )
    AuditEvent.objects.log(
        actor=owner, verb="task.submitted", target=task, after={"visibility": visibility}
    )
    return task


def _task_spec(
    name: str,
    source: str,
    track: Track,
    precision: Precision,
    target: str,
    baseline_source: str | None,
) -> TaskSpec:
    try:
        return TaskSpec(
            name=name,
            source=source,
            track=track,
            precision=precision,
            target=target,
            baseline_source=baseline_source or None,
        )
    except ValidationError as error:
        raise Refused(readable(error)) from error


def similar_tasks(*, user: User, source: str) -> models.QuerySet[Task]:
    """Tasks that the user may see with the very same source."""
    return Task.objects.visible_to(user).filter(
        source=SourceText.objects.filter(text=source).first()
    )


@transaction.atomic
def share_task(
    *,
    task: Task,
    by: User,
    visibility: str | None = None,
    add: Sequence[User] = (),
    remove: Sequence[User] = (),
) -> None:
    """Change who sees a task: its visibility, and the people it is shared with by name."""
    if not permissions.may_share(by, task):
        raise NotAllowed("only its owner shares a task")
    if visibility is not None:
        if visibility not in Task.Visibility.values:
            raise Refused(f"visibility is one of {', '.join(Task.Visibility.values)}")
        before = task.visibility
        task.visibility = visibility
        task.save(update_fields=["visibility"])
        AuditEvent.objects.log(
            actor=by, verb="task.visibility", target=task, before=before, after=visibility
        )
    for user in add:
        TaskShare.objects.get_or_create(task=task, user=user, defaults={"shared_by": by})
        AuditEvent.objects.log(actor=by, verb="task.shared", target=task, after=user.username)
    for user in remove:
        TaskShare.objects.filter(task=task, user=user).delete()
        AuditEvent.objects.log(actor=by, verb="task.unshared", target=task, before=user.username)


@transaction.atomic
def write_note(*, task: Task, by: User, notes: str) -> None:
    """Replace the task's Markdown note."""
    if not permissions.may_share(by, task):
        raise NotAllowed("only its owner writes a task's note")
    Task.objects.filter(pk=task.pk).update(notes=notes)
