"""A real pool with short deadlines, and a way to evaluate without ceremony."""

from typing import Any

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.evaluation.pool import LocalPool
from gpu_runner.evaluation.pool import open_pool as _open
from gpu_runner.evaluation.settings import EvaluationSettings

DEADLINES = {
    "imports": 8.0,
    "construct": 8.0,
    "call": 8.0,
    "noop": 4.0,
    "compile_start": 8.0,
    "compile": 8.0,
}


def quick_pool() -> LocalPool:
    """On the CPU, in the sandbox; hangs end after seconds."""
    pool = _open(EvaluationSettings(device="cpu"))
    options = pool._options

    def with_deadlines() -> dict[str, Any]:
        return {**options(), "deadlines": DEADLINES}

    pool._options = with_deadlines  # type: ignore[method-assign]
    return pool


def told(evaluation: Evaluation) -> str:
    """One line for a failed assertion: the verdict and what led to it."""
    lead = evaluation.lead
    shown = f"{lead.title} {lead.evidence}"[:800] if lead else ""
    return f"{evaluation.verdict} {evaluation.kind} {evaluation.state}: {shown}"


def task(source: str, **options: Any) -> TaskSpec:
    return TaskSpec(name="test", source=source, **options)
