"""First candidates from `torch.compile`'s own fusion, rewritten as standalone Triton in a sandboxed child."""

from collections.abc import Sequence
from typing import Any, Final

from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.proposals.types import Caller, Draft

VARIANTS: Final = ("default", "looped", "split")
"""How the compiler may be told to work; the names are those of `child.compiler_capture.VARIANTS`."""

TIMEOUT_S: Final = 120.0
BEGIN_WITHIN_S: Final = TIMEOUT_S / 3
"""A variant begun later might not end in time, and take those before it with it."""


def drafts(
    pool: Caller, task: TaskSpec, report: TaskReport, variants: Sequence[str] | None = None
) -> list[Draft]:
    """One draft per variant that the compiler can write for the task, the most promising first; equal ones once.

    Args:
        variants: some of `VARIANTS`; None for all.

    Raises:
        Whatever the pool raises when the child fails or takes more than two minutes.
    """
    request = request_for(task, report, VARIANTS if variants is None else variants)
    answer = pool.call(
        "gpu_runner.proposals.child.compiler:compile_source",
        request,
        nursery="compile",
        timeout_s=TIMEOUT_S,
    )
    return [
        Draft(
            source=str(draft["source"]),
            origin=f"compiler:{draft['variant']}"[:80],
            move=str(draft["move"])[:300],
        )
        for draft in answer["drafts"]
    ]


def request_for(task: TaskSpec, report: TaskReport, variants: Sequence[str]) -> dict[str, Any]:
    """What the child needs to know."""
    unknown = set(variants) - set(VARIANTS)
    if unknown:
        raise ValueError(f"no variant of the compiler: {', '.join(sorted(unknown))}")
    return {
        "source": task.source,
        "probe": report.probe,
        "track": task.track.value,
        "precision": task.precision.value,
        "variants": list(variants),
        "begin_within_s": BEGIN_WITHIN_S,
    }
