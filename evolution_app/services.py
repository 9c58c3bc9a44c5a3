"""What people do: submit, start, steer, share, nominate, review.

Each function is one transaction and leaves a trace in the audit. All take keyword arguments only and check the
rights of the person themselves. They raise `NotAllowed` (a page answers 403; what the person may not even see
is a 404 before it comes here), `Refused` with a message for people, `Stale` when somebody was faster.
"""

import random
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import models, transaction
from django.utils import timezone
from pydantic import ValidationError

from evolution_app import events, permissions
from evolution_app.models import (
    ApiToken,
    AuditEvent,
    Candidate,
    EntryVersion,
    Evidence,
    ExperienceEntry,
    Finding,
    Island,
    Review,
    Run,
    SignInToken,
    SourceText,
    Steering,
    Task,
    TaskShare,
    User,
)
from evolution_app.models.accounts import Role
from gpu_runner.core.contract import check_candidate, check_contract
from gpu_runner.core.entries import EntryContent, EntryState
from gpu_runner.core.source import Problem
from gpu_runner.core.task import Budget, RunSpec, TaskSpec
from gpu_runner.core.verdicts import Precision, RunState, Track

MAX_HINT = 2000


class NotAllowed(PermissionDenied):
    """The person's role or relation to the object does not permit this."""


class Refused(ValueError):
    """The request cannot be carried out; the message says why and what to do.

    `problems` name lines where a source is the reason.
    """

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class Stale(Refused):
    """The object has changed since the person looked at it: show them what changed and ask again."""


# Accounts


@transaction.atomic
def ensure_local_owner() -> User:
    """The account of an embedded installation's one person, made on the first start."""
    owner = User.objects.filter(is_local_owner=True).first()
    if owner is None:
        owner = User(
            username="owner",
            role=Role.OPERATOR,
            is_local_owner=True,
            is_staff=True,
            is_superuser=True,
        )
        owner.set_unusable_password()
        owner.save()
        AuditEvent.objects.log(actor=None, verb="account.created", target=owner, after=owner.role)
    return owner


@transaction.atomic
def issue_sign_in(*, user: User, by: User | None = None) -> str:
    """A one-time token that signs `user` in when a browser POSTs it; it must never be logged."""
    if by is not None and not permissions.may_operate(by):
        raise NotAllowed("only an operator makes sign-in links for others")
    SignInToken.objects.filter(expires_at__lt=timezone.now()).delete()
    AuditEvent.objects.log(actor=by, verb="account.link", target=user)
    return SignInToken.objects.issue(user)


@transaction.atomic
def redeem_sign_in(*, token: str) -> User | None:
    """Exchange a token for the user to log in; None if it is unknown, used, or too old."""
    user = SignInToken.objects.redeem(token)
    if user is not None:
        AuditEvent.objects.log(actor=user, verb="account.signed_in", target=user)
    return user


@transaction.atomic
def create_user(*, username: str, role: Role, by: User | None, password: str | None = None) -> User:
    """Make an account; `by` None is the command line of the machine. Without a password it signs in by link only."""
    if by is not None and not permissions.may_operate(by):
        raise NotAllowed("only an operator makes accounts")
    if User.objects.filter(username=username).exists():
        raise Refused(f"there is already an account named {username}")
    user = User.objects.create_user(username=username, password=password, role=role)
    user.is_staff = user.is_superuser = role == Role.OPERATOR
    user.save(update_fields=["is_staff", "is_superuser"])
    AuditEvent.objects.log(actor=by, verb="account.created", target=user, after=role)
    return user


@transaction.atomic
def set_role(*, user: User, role: Role, by: User | None) -> None:
    """Change what an account may do; `by` None is the command line of the machine."""
    if by is not None and not permissions.may_operate(by):
        raise NotAllowed("only an operator changes roles")
    if user.is_local_owner and role != Role.OPERATOR:
        raise Refused("the local owner stays an operator")
    before, user.role = user.role, role
    user.is_staff = user.is_superuser = role == Role.OPERATOR
    user.save(update_fields=["role", "is_staff", "is_superuser"])
    AuditEvent.objects.log(actor=by, verb="account.role", target=user, before=before, after=role)


@transaction.atomic
def issue_api_token(*, user: User, name: str) -> str:
    """A bearer token for the HTTP API and the command line; shown once."""
    token = ApiToken.objects.issue(user, name)
    AuditEvent.objects.log(actor=user, verb="account.api_token", target=user, after=name)
    return token


@transaction.atomic
def revoke_api_token(*, token_id: int, by: User) -> None:
    revoked = ApiToken.objects.filter(pk=token_id, user=by, revoked_at=None).update(
        revoked_at=timezone.now()
    )
    if not revoked:
        raise Refused("no such token")
    AuditEvent.objects.log(actor=by, verb="account.api_token_revoked", target=by)


# Tasks


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
        source=SourceText.objects.keep(source),
        baseline_source=SourceText.objects.keep(baseline_source) if baseline_source else None,
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


# Runs


@transaction.atomic
def start_run(
    *,
    task: Task,
    by: User,
    budget: Budget | None = None,
    islands: int = 3,
    seed: int | None = None,
    device: str = "auto",
    model: str | None = None,
    use_initialisers: bool = True,
    use_diagnosis: bool = True,
    use_library: bool = True,
) -> Run:
    """Queue a run of the task; `seed` None draws one, which the run records."""
    if not permissions.may_steer(by, task):
        raise NotAllowed("only its owner, or an expert it is shared with, starts runs of a task")
    try:
        spec = RunSpec(
            task=task.spec(),
            seed=random.SystemRandom().randrange(2**31) if seed is None else seed,
            islands=islands,
            budget=budget or Budget(),
            device=device,
            model=model or None,
            use_initialisers=use_initialisers,
            use_diagnosis=use_diagnosis,
            use_library=use_library,
        )
    except ValidationError as error:
        raise Refused(readable(error)) from error
    run = Run.objects.create(
        task=task, started_by=by, options=spec.model_dump(mode="json", exclude={"task"})
    )
    Island.objects.bulk_create(Island(run=run, number=number) for number in range(spec.islands))
    events.emit(run.pk, events.RUN_STATE, {"state": run.state, "wanted": run.wanted, "reason": ""})
    AuditEvent.objects.log(actor=by, verb="run.started", target=run, after=run.options)
    run.refresh_from_db(fields=["last_seq"])
    return run


def request_pause(*, run: Run, by: User) -> Run:
    """Ask the runner to pause after the candidates in progress; a queued run pauses at once."""
    return _want(run, by, RunState.PAUSING)


def request_resume(*, run: Run, by: User) -> Run:
    """Queue a paused run again, or take back a pause that has not happened yet."""
    return _want(run, by, RunState.RUNNING)


def request_stop(*, run: Run, by: User) -> Run:
    """Ask the runner to finish after the candidates in progress; what was found stays, the run counts as finished."""
    return _want(run, by, RunState.STOPPING)


def request_cancel(*, run: Run, by: User) -> Run:
    """Ask the runner to stop at once; the run is cancelled when it acknowledges, or at once if nobody works on it."""
    return _want(run, by, RunState.CANCELLED)


_IDLE = (RunState.QUEUED, RunState.PAUSED)
_WHEN_IDLE = {
    RunState.PAUSING: RunState.PAUSED,
    RunState.RUNNING: RunState.QUEUED,
    RunState.STOPPING: RunState.FINISHED,
    RunState.CANCELLED: RunState.CANCELLED,
}
_WHEN_WORKING = {
    RunState.PAUSING: RunState.PAUSING,
    RunState.RUNNING: RunState.RUNNING,
    RunState.STOPPING: RunState.STOPPING,
    RunState.CANCELLED: RunState.STOPPING,
}


@transaction.atomic
def _want(run: Run, by: User, wanted: RunState) -> Run:
    if not permissions.may_steer(by, run):
        raise NotAllowed("only its owner, or an expert it is shared with, steers a run")
    run = Run.objects.select_for_update().get(pk=run.pk)
    if run.is_over:
        raise Refused(f"the run is already {run.state}")
    if wanted in (RunState.RUNNING, RunState.PAUSING) and run.wanted in (
        RunState.STOPPING,
        RunState.CANCELLED,
    ):
        raise Refused("the run is already stopping")
    before = run.state
    is_idle = run.state in _IDLE and run.runner_id is None
    run.wanted = RunState.RUNNING if is_idle and wanted is RunState.PAUSING else wanted
    run.state = (_WHEN_IDLE if is_idle else _WHEN_WORKING)[wanted]
    if is_idle and wanted in (RunState.STOPPING, RunState.CANCELLED):
        run.finished_at = timezone.now()
        run.stop_reason = (
            f"{'stopped' if wanted is RunState.STOPPING else 'cancelled'} by {by.display_name}"
        )
    run.save(update_fields=["wanted", "state", "finished_at", "stop_reason"])
    payload = {"state": run.state, "wanted": run.wanted, "reason": run.stop_reason}
    events.emit(run.pk, events.RUN_STATE, payload)
    AuditEvent.objects.log(
        actor=by, verb=f"run.{wanted}", target=run, before=before, after=run.state
    )
    return run


@transaction.atomic
def inject(
    *,
    run: Run,
    by: User,
    source: str = "",
    hint: str = "",
    island: int = 0,
    parent: Candidate | None = None,
) -> Steering:
    """Hand the run a kernel to evaluate, or a hint for its next proposals."""
    if not permissions.may_steer(by, run):
        raise NotAllowed("only its owner, or an expert it is shared with, steers a run")
    run = Run.objects.select_for_update().get(pk=run.pk)
    if run.is_over:
        raise Refused(f"the run is already {run.state}; start another one with this kernel")
    if source and (problem := check_candidate(source)):
        raise Refused("the kernel cannot be evaluated", [problem])
    if not source and not hint.strip():
        raise Refused("give a kernel or a hint")
    if len(hint) > MAX_HINT:
        raise Refused(f"a hint has at most {MAX_HINT:,} characters")
    if not run.islands.filter(number=island).exists():
        raise Refused(f"the run has no island {island}")
    if parent is not None and parent.run_id != run.pk:
        raise Refused("the parent belongs to another run")
    steering = Steering.objects.create(
        run=run,
        author=by,
        island=island,
        source=SourceText.objects.keep(source) if source else None,
        hint=hint.strip(),
        parent=parent,
    )
    payload = {"author": by.display_name, "island": island, "what": "kernel" if source else "hint"}
    events.emit(run.pk, events.STEERING, payload)
    AuditEvent.objects.log(actor=by, verb="run.steered", target=run, after=payload)
    return steering


# Findings


@transaction.atomic
def judge_finding(*, finding: Finding, by: User, is_right: bool | None) -> None:
    """An expert says whether a finding was right; None takes the judgement back."""
    candidate = finding.evaluation.candidate
    if (
        not permissions.may_review(by)
        or not Candidate.objects.visible_to(by).filter(pk=candidate.pk).exists()
    ):
        raise NotAllowed("only experts judge findings")
    before = finding.is_right
    finding.is_right, finding.judged_by, finding.judged_at = is_right, by, timezone.now()
    finding.save(update_fields=["is_right", "judged_by", "judged_at"])
    AuditEvent.objects.log(
        actor=by, verb="finding.judged", target=finding, before=before, after=is_right
    )


# The library


def pair_of(candidate: Candidate) -> tuple[Candidate, float] | None:
    """The correct parent that a candidate improves on most, with time before / time after; None without one."""
    parents = candidate.parents.filter(device_us__isnull=False, fidelity=candidate.fidelity)
    timed = [
        (parent, parent.device_us)
        for parent in parents.select_related("source")
        if parent.device_us
    ]
    if candidate.device_us is None or not timed:
        return None
    parent, before_us = min(timed, key=lambda pair: pair[1])
    return parent, before_us / candidate.device_us


@transaction.atomic
def nominate_entry(*, candidate: Candidate, by: User, content: EntryContent) -> ExperienceEntry:
    """Put a lesson forward, with the candidate and its parent as evidence where both are correct and timed."""
    if not permissions.may_nominate(by, candidate):
        raise NotAllowed("you may nominate from your own candidates; experts from what they see")
    entry = ExperienceEntry.objects.create(
        state=EntryState.NOMINATED, task=candidate.run.task, candidate=candidate, nominated_by=by
    )
    _add_version(entry, content, by, note="nominated")
    if pair := pair_of(candidate):
        _add_evidence(
            entry, Evidence.Role.NOMINATION, before=pair[0], after=candidate, ratio=pair[1]
        )
    AuditEvent.objects.log(actor=by, verb="entry.nominated", target=entry)
    return entry


def _add_evidence(
    entry: ExperienceEntry,
    role: Evidence.Role,
    *,
    before: Candidate,
    after: Candidate,
    ratio: float,
    low: float | None = None,
    high: float | None = None,
) -> Evidence:
    evaluation = after.latest_evaluation()
    return Evidence.objects.create(
        entry=entry,
        role=role,
        task=after.run.task,
        before=before,
        after=after,
        device=evaluation.device if evaluation else "",
        fidelity=after.fidelity,
        ratio=ratio,
        low=low,
        high=high,
    )


def _add_version(
    entry: ExperienceEntry, content: EntryContent, author: User | None, note: str
) -> EntryVersion:
    number = (entry.current.number if entry.current else 0) + 1
    version = EntryVersion.objects.create(
        entry=entry,
        number=number,
        title=content.title,
        kind=content.kind,
        content=content.model_dump(mode="json"),
        author=author,
        note=note,
    )
    entry.current = version
    entry.save(update_fields=["current", "changed_at"])
    return version


def _fresh(entry: ExperienceEntry, version: int) -> ExperienceEntry:
    """The entry, locked; Stale if `version` is not its newest."""
    entry = ExperienceEntry.objects.select_for_update().get(pk=entry.pk)
    if entry.current is None or entry.current.number != version:
        now = entry.current.number if entry.current else 0
        raise Stale(
            f"the entry is at version {now}, not {version}: look at what changed, then decide again"
        )
    return entry


@transaction.atomic
def edit_entry(
    *, entry: ExperienceEntry, by: User, version: int, content: EntryContent, note: str = ""
) -> EntryVersion:
    """Add a version; `version` is the number of the one that was edited. An approved version stays approved beside it."""
    if not permissions.may_edit_entry(by, entry):
        raise NotAllowed(
            "experts edit entries; you may edit what you nominated until it is approved"
        )
    entry = _fresh(entry, version)
    if entry.state in (EntryState.RETIRED, EntryState.REJECTED) and not permissions.may_review(by):
        raise Refused(f"the entry is {entry.state}")
    added = _add_version(entry, content, by, note or "edited")
    AuditEvent.objects.log(
        actor=by, verb="entry.edited", target=entry, before=version, after=added.number, why=note
    )
    return added


def waivers_needed(*, entry: ExperienceEntry, by: User) -> list[str]:
    """What an approval by this person would have to waive, in words for people; empty if nothing.

    Raises NotAllowed where no waiver helps.
    """
    if not permissions.may_review(by):
        raise NotAllowed("only experts review entries")
    needed = []
    if entry.nominated_by_id == by.pk:
        if not by.is_local_owner:
            raise NotAllowed("nobody approves what they nominated; ask another expert")
        needed.append("you nominated this entry yourself")
    if not entry.has_evidence():
        needed.append("no executed evidence shows a gain")
    return needed


@transaction.atomic
def approve_entry(
    *,
    entry: ExperienceEntry,
    by: User,
    version: int,
    reason: str = "",
    waiver: str = "",
    content: EntryContent | None = None,
) -> Review:
    """Let retrieval use an entry; with `content`, edit and approve in one step (the edit is the approver's).

    `version` is the number that the person read: Stale if there is a newer one. Missing evidence, or the local
    owner's own nomination, needs a `waiver` in words, which is kept.
    """
    entry = _fresh(entry, version)
    needed = waivers_needed(entry=entry, by=by)
    if entry.state in (EntryState.REJECTED, EntryState.RETIRED):
        raise Refused(f"the entry is {entry.state}; restore it first")
    if needed and not waiver.strip():
        raise Refused(f"{' and '.join(needed)}: say why it should be approved all the same")
    decision = Review.Decision.APPROVE
    if content is not None:
        _add_version(entry, content, by, note="edited while approving")
        decision = Review.Decision.EDIT_AND_APPROVE
    before = entry.state
    entry.state, entry.approved = EntryState.APPROVED, entry.current
    entry.save(update_fields=["state", "approved", "changed_at"])
    return _decide(entry, by, decision, before, reason, waiver if needed else "")


def _decide(
    entry: ExperienceEntry,
    by: User,
    decision: Review.Decision,
    before: Any,
    reason: str,
    waiver: str = "",
) -> Review:
    assert entry.current is not None
    review = Review.objects.create(
        entry=entry,
        version=entry.current,
        reviewer=by,
        decision=decision,
        reason=reason,
        waiver=waiver,
    )
    why = f"{reason} (waived: {waiver})".strip() if waiver else reason
    AuditEvent.objects.log(
        actor=by, verb=f"entry.{decision}", target=entry, before=before, after=entry.state, why=why
    )
    return review


def _reviewed(
    entry: ExperienceEntry,
    by: User,
    version: int,
    decision: Review.Decision,
    state: EntryState,
    reason: str,
) -> Review:
    """A decision that needs a reason and changes the state."""
    if not permissions.may_review(by):
        raise NotAllowed("only experts review entries")
    if not reason.strip():
        raise Refused("give a reason; whoever nominated the entry will read it")
    entry = _fresh(entry, version)
    before, entry.state = entry.state, state
    if state is not EntryState.APPROVED:
        entry.approved = entry.approved if state is EntryState.RETIRED else None
    entry.save(update_fields=["state", "approved", "changed_at"])
    return _decide(entry, by, decision, before, reason)


@transaction.atomic
def request_changes(*, entry: ExperienceEntry, by: User, version: int, reason: str) -> Review:
    """Back to a draft, which its author edits and submits again."""
    return _reviewed(entry, by, version, Review.Decision.REQUEST_CHANGES, EntryState.DRAFT, reason)


@transaction.atomic
def reject_entry(*, entry: ExperienceEntry, by: User, version: int, reason: str) -> Review:
    return _reviewed(entry, by, version, Review.Decision.REJECT, EntryState.REJECTED, reason)


@transaction.atomic
def retire_entry(*, entry: ExperienceEntry, by: User, version: int, reason: str) -> Review:
    """Take an entry out of use; its history stays."""
    return _reviewed(entry, by, version, Review.Decision.RETIRE, EntryState.RETIRED, reason)


@transaction.atomic
def restore_entry(*, entry: ExperienceEntry, by: User, version: int, reason: str) -> Review:
    """Put a rejected or retired entry back into the review queue."""
    if entry.merged_into_id is not None:
        raise Refused("the entry was merged into another one")
    return _reviewed(entry, by, version, Review.Decision.RESTORE, EntryState.NOMINATED, reason)


@transaction.atomic
def merge_entry(
    *, entry: ExperienceEntry, into: ExperienceEntry, by: User, version: int, reason: str
) -> Review:
    """Retire an entry in favour of another that says the same; both keep their history."""
    if into.pk == entry.pk or into.merged_into_id is not None:
        raise Refused("merge into another entry that is not merged itself")
    if not ExperienceEntry.objects.visible_to(by).filter(pk=into.pk).exists():
        raise NotAllowed("you cannot see the entry to merge into")
    review = _reviewed(entry, by, version, Review.Decision.MERGE, EntryState.RETIRED, reason)
    ExperienceEntry.objects.filter(pk=entry.pk).update(merged_into=into)
    return review


@transaction.atomic
def resubmit_entry(*, entry: ExperienceEntry, by: User, version: int) -> None:
    """Nominate a draft again after changes were requested."""
    if not permissions.may_edit_entry(by, entry):
        raise NotAllowed("only who nominated it, or an expert, submits an entry again")
    entry = _fresh(entry, version)
    if entry.state != EntryState.DRAFT:
        raise Refused(f"the entry is {entry.state}, not a draft")
    entry.state = EntryState.NOMINATED
    entry.save(update_fields=["state", "changed_at"])
    AuditEvent.objects.log(actor=by, verb="entry.resubmitted", target=entry)


@transaction.atomic
def share_entry(*, entry: ExperienceEntry, by: User, visibility: str) -> None:
    """Make an entry visible to more people than its task, or (empty) to the same ones again."""
    if visibility and visibility not in Task.Visibility.values:
        raise Refused(f"visibility is one of {', '.join(Task.Visibility.values)}")
    if not permissions.may_widen_entry(by, entry):
        raise NotAllowed(
            "only the owner of its task makes an entry more visible, unless the task is public"
        )
    before, entry.visibility = entry.visibility, visibility
    entry.save(update_fields=["visibility", "changed_at"])
    AuditEvent.objects.log(
        actor=by, verb="entry.visibility", target=entry, before=before, after=visibility
    )


@transaction.atomic
def import_entries(*, by: User, entries: Sequence[tuple[str, EntryContent]]) -> int:
    """Take over all entries, or none if one cannot be; how many changed something."""
    return sum(import_entry(by=by, uid=uid, content=content)[1] for uid, content in entries)


@transaction.atomic
def import_entry(*, by: User, uid: str, content: EntryContent) -> tuple[ExperienceEntry, bool]:
    """Take over an entry that was exported elsewhere; idempotent by uid and content.

    Returns:
        The entry, and whether anything changed. It arrives nominated, without evidence: nothing is
        approved because another installation approved it.
    """
    if not permissions.may_review(by):
        raise NotAllowed("only experts import entries")
    entry = ExperienceEntry.objects.select_for_update().filter(uid=uid).first()
    if (
        entry is not None
        and not ExperienceEntry.objects.visible_to(by).filter(pk=entry.pk).exists()
    ):
        raise NotAllowed("an entry of that uid exists that you cannot see")
    if entry is not None and entry.content == content:
        return entry, False
    if entry is None:
        entry = ExperienceEntry.objects.create(uid=uid, state=EntryState.NOMINATED, nominated_by=by)
    _add_version(entry, content, by, note="imported")
    AuditEvent.objects.log(actor=by, verb="entry.imported", target=entry)
    return entry, True


def readable(error: ValidationError) -> str:
    """A pydantic error in one line for people."""
    parts = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        parts.append(f"{where}: {message}" if where else message)
    return "; ".join(parts)
