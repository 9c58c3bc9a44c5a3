"""Runs: start, pause, stop, steer."""

import random
from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone
from pydantic import ValidationError

from evolution_app import events, permissions
from evolution_app.models import (
    AuditEvent,
    Candidate,
    Island,
    Run,
    SourceText,
    Steering,
    Task,
    User,
)
from evolution_app.services.errors import NotAllowed, Refused, readable
from gpu_runner.core.contract import check_candidate
from gpu_runner.core.search import Method
from gpu_runner.core.task import Budget, RunSpec, best_of_10
from gpu_runner.core.verdicts import RunState

MAX_HINT = 2000


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
    more_models: Sequence[str] = (),
    method: Method = Method.EVOLUTION,
    use_initialisers: bool = True,
    use_diagnosis: bool = True,
    use_library: bool = True,
    is_best_of_10: bool = False,
) -> Run:
    """Queue a run of the task; `seed` None draws one, which the run records.

    `is_best_of_10` sets method, islands, evaluations and parts as that protocol wants them.
    """
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
            more_models=tuple(more_models),
            method=method,
            use_initialisers=use_initialisers,
            use_diagnosis=use_diagnosis,
            use_library=use_library,
        )
    except ValidationError as error:
        raise Refused(readable(error)) from error
    if is_best_of_10:
        if spec.model is None:
            raise Refused("ten answers are asked of a model; name one")
        spec = best_of_10(spec)
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
    agent: str = "",
) -> Steering:
    """Hand the run a kernel to evaluate, or a hint for its next proposals.

    `agent` names the program that wrote it on the person's behalf.
    """
    if not permissions.may_steer(by, run):
        raise NotAllowed("only its owner, or an expert it is shared with, steers a run")
    run = Run.objects.select_for_update().get(pk=run.pk)
    if run.is_over:
        raise Refused(f"the run is already {run.state}; start another one with this kernel")
    if source and (problem := check_candidate(source)):
        raise Refused("the kernel cannot be evaluated", [problem])
    if not source and not hint.strip():
        raise Refused("give a kernel or a hint")
    if not source and run.options.get("model") is None:
        raise Refused(
            "no model takes part in this run, so nobody would read a hint; send a kernel, or start a run with a model"
        )
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
        agent=agent.strip(),
    )
    author = f"{agent.strip()} for {by.display_name}" if agent.strip() else by.display_name
    payload = {"author": author, "island": island, "what": "kernel" if source else "hint"}
    events.emit(run.pk, events.STEERING, payload)
    AuditEvent.objects.log(actor=by, verb="run.steered", target=run, after=payload)
    return steering
