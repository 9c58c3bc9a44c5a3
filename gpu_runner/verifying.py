"""What the runner does for the library while no run waits: drafts of the system are reduced, nominations are run again.

One piece of work a call, so that a run that comes meanwhile waits for at most one of them. Django must be set up.
"""

from collections.abc import Callable, Iterator, Sequence

from evolution_app.services import distilling, errors, verification
from gpu_runner.core.entry_states import NotAllowedNow
from gpu_runner.core.task import TaskSpec
from gpu_runner.evaluation.errors import InvalidTask, RunnerError
from gpu_runner.experience.interfaces import same_interface
from gpu_runner.experience.reducing import reduced
from gpu_runner.experience.verification import Trial, Verification, verify
from gpu_runner.sources import Pool


def work_on_library(pool: Pool, is_over: Callable[[], bool]) -> bool:
    """Reduce one draft or verify one nomination; False if none waits.

    Args:
        is_over: whether something more urgent waits; what was found until then decides.
    """
    try:
        return _reduce_one(pool) or _verify_one(pool, is_over)
    except (errors.Stale, NotAllowedNow):
        # Somebody edited it or decided on it meanwhile: what was found belongs to what it said before.
        return True


def _reduce_one(pool: Pool) -> bool:
    entry = distilling.next_draft()
    if entry is None:
        return False
    assert entry.current is not None
    version, content = entry.current.number, entry.content
    try:
        smaller, note = reduced(content, pool, verification.own_task(entry)), ""
    except (InvalidTask, RunnerError) as error:
        smaller, note = content, f"not reduced: {error}"
    distilling.record_reduction(entry=entry, version=version, content=smaller, note=note)
    return True


def _verify_one(pool: Pool, is_over: Callable[[], bool]) -> bool:
    entry = verification.next_to_verify(is_modelled=pool.device.kind != "cuda")
    if entry is None:
        return False
    assert entry.current is not None
    version, content, own = entry.current.number, entry.content, verification.own_task(entry)
    try:
        others = _usable(pool, own, verification.other_tasks(entry))
        found = verify(content, pool, own, others, is_over=is_over)
    except InvalidTask as error:
        found = Verification(accepted=False, reason=f"its own task cannot be used: {error}")
    except RunnerError as error:
        found = Verification(
            accepted=False, reason=f"the evaluator failed: {error}; submit the entry again"
        )
    verification.record_verification(
        entry=entry,
        version=version,
        accepted=found.accepted,
        reason=found.reason,
        trials=[_recorded(trial) for trial in found.trials],
    )
    return True


def _usable(pool: Pool, own: TaskSpec, others: Sequence[TaskSpec]) -> Iterator[TaskSpec]:
    """Tasks that are called like an entry's own and can be evaluated at all."""
    for other in others:
        if same_interface(own.source, other.source):
            try:
                pool.inspect(other)
            except InvalidTask:
                continue
            yield other


def _recorded(trial: Trial) -> verification.Trial:
    return verification.Trial(
        task_key=trial.task_key,
        device=trial.device,
        fidelity=trial.fidelity,
        ratio=trial.ratio,
        low=trial.low,
        high=trial.high,
    )
