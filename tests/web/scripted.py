"""A pool and sources of drafts that do nothing but what a test needs; as a program, a worker process that uses them."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Stage
from gpu_runner.driver import Driven, Driver
from gpu_runner.evolution.types import Operator, Request
from gpu_runner.proposals.types import Draft
from gpu_runner.settings import WorkerSettings
from gpu_runner.sources import Pool, Sources
from gpu_runner.worker import Worker

if TYPE_CHECKING:
    from gpu_runner.store import Store


class ScriptedPool:
    """Every candidate is correct, and faster the longer its source."""

    device = SimpleNamespace(name="scripted", kind="cpu", fingerprint={"cpu": "scripted"})

    def __init__(self, pause_s: float = 0.0, slots: int = 1) -> None:
        self.pause_s = pause_s
        self.slots = slots

    def inspect(self, task: TaskSpec) -> TaskReport:
        return TaskReport(inputs=(), outputs=(), probe=None)

    def evaluate(
        self, task: TaskSpec, source: str, *, on_stage: Callable[[Stage], None] | None = None
    ) -> Evaluation:
        from tests.web import samples

        if on_stage is not None:
            on_stage(Stage.PROBE)
        time.sleep(self.pause_s)
        return samples.correct(1.0 + len(source) / 1000)

    def call(self, entry: str, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        raise NotImplementedError

    def close(self) -> None:
        pass


def draft(number: int) -> Draft:
    """Drafts of larger numbers are longer."""
    from tests.web import samples

    return Draft(source=f"{samples.KERNEL}\nPAD = '{'x' * number}'\n", origin="tune", move="pad")


def _first(*_: Any) -> list[Draft]:
    return [draft(number) for number in range(3)]


def _step(
    pool: Pool, task: TaskSpec, report: TaskReport, request: Request, rng: random.Random
) -> list[Draft]:
    return [draft(request.number + 3)]


SOURCES = Sources({"compiler": _first}, {Operator.TUNE: _step})


def begin(driver: Driver, claim: "Store") -> Driven:
    """The real driver, with drafts as long as the budget lasts."""
    return driver.add(claim, sources=SOURCES)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "foundry_web.settings")
    import django

    django.setup()
    pause_s = float(os.environ.get("SCRIPTED_PAUSE_S", "0.01"))
    worker = Worker(
        WorkerSettings(idle_s=0.05, grace_s=float(os.environ.get("SCRIPTED_GRACE_S", "10"))),
        lambda: ScriptedPool(pause_s),
        begin,
    )
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=worker.leave).start())
    worker.run()


if __name__ == "__main__":
    main()
