"""A pool and a driver that do nothing but what a test needs; as a program, a worker process that uses them."""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import RunState, Stage, State
from gpu_runner.settings import WorkerSettings
from gpu_runner.worker import ClosablePool, Reporting, Worker


class ScriptedPool:
    """Every candidate is correct, and faster the longer its first line."""

    slots = 1
    device = SimpleNamespace(name="scripted", kind="cpu", fingerprint={"cpu": "scripted"})

    def inspect(self, task: TaskSpec) -> TaskReport:
        return TaskReport(inputs=(), outputs=(), probe=None)

    def evaluate(
        self, task: TaskSpec, source: str, *, on_stage: Callable[[Stage], None] | None = None
    ) -> Evaluation:
        from tests.web import samples

        if on_stage is not None:
            on_stage(Stage.PROBE)
        return samples.correct(1.0 + len(source) / 1000)

    def call(
        self,
        entry: str,
        request: dict[str, Any],
        *,
        nursery: str = "compile",
        timeout_s: float = 60,
    ) -> dict[str, Any]:
        raise NotImplementedError

    def close(self) -> None:
        pass


def scripted_work(claim: Any, pool: ClosablePool, pause_s: float = 0.0) -> None:
    """A driver in small: the budget's number of candidates, each added, evaluated and finished once."""
    from tests.web import samples

    spec = claim.spec
    Reporting(pool, claim).inspect(spec.task)
    claim.set_state(RunState.RUNNING)
    for number in range(1, (spec.budget.evaluations or 0) + 1):
        wanted = claim.wanted()
        if wanted is RunState.PAUSING:
            claim.set_state(RunState.PAUSED, "asked to")
            return
        if wanted in (RunState.STOPPING, RunState.CANCELLED):
            break
        known = {candidate.id: candidate for candidate in claim.candidates()}
        candidate = known.get(number) or claim.add(samples.proposal(number))
        if candidate.state is State.FINISHED:
            continue
        evaluation = pool.evaluate(
            spec.task,
            candidate.source,
            on_stage=lambda stage, number=number: claim.stage(number, stage),
        )
        claim.finish(number, evaluation)
        claim.note("answer", {"event": "told", "candidate": number})
        time.sleep(pause_s)
    claim.set_state(RunState.FINISHED, "budget")


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "foundry_web.settings")
    import django

    django.setup()
    pause_s = float(os.environ.get("SCRIPTED_PAUSE_S", "0.01"))
    worker = Worker(
        WorkerSettings(idle_s=0.05, grace_s=float(os.environ.get("SCRIPTED_GRACE_S", "10"))),
        ScriptedPool,
        lambda claim, pool: scripted_work(claim, pool, pause_s=pause_s),
    )
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=worker.leave).start())
    worker.run()


if __name__ == "__main__":
    main()
