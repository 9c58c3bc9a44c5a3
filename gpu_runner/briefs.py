"""What a person or an outside agent needs to know of a run to write a kernel for it."""

from pathlib import Path
from typing import Any

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.findings import Finding
from gpu_runner.evolution.fitness import is_correct, rank_key
from gpu_runner.evolution.strategies import strategy_of
from gpu_runner.journal import history

MAX_FAILED = 8
MAX_FINDINGS = 3


def brief_of(folder: Path, best: int) -> dict[str, Any]:
    """The task, the best kernels with their findings, what failed lately, and how to submit.

    Raises:
        JournalError: the folder holds no run.
    """
    run = history(folder)
    ranked = sorted(filter(is_correct, run.candidates.values()), key=rank_key)
    failed = [c for c in run.candidates.values() if c.evaluation and not is_correct(c)]
    return {
        "task": run.spec.task.model_dump(mode="json"),
        "islands": [
            {"island": index, "looks_for": strategy_of(index).lens}
            for index in range(run.spec.islands)
        ],
        "evaluated": sum(c.evaluation is not None for c in run.candidates.values()),
        "best": [_kernel(candidate) for candidate in ranked[:best]],
        "failed": [_failure(candidate) for candidate in failed[-MAX_FAILED:]],
        "submit": f"python -m gpu_runner submit {folder} KERNEL.py --author NAME --island N --parent ID",
    }


def as_text(told: dict[str, Any]) -> str:
    task = told["task"]
    parts = [
        f"Task {task['name']}, track {task['track']}, precision {task['precision']}, speed for {task['target']}",
        _fenced(task["source"]),
        f"{told['evaluated']} candidates were evaluated. The best:",
    ]
    for kernel in told["best"]:
        speed = (
            f"{kernel['speedup']:.3f} times as fast as eager" if kernel["speedup"] else "correct"
        )
        parts += [f"Candidate {kernel['candidate']}, {speed} ({kernel['fidelity']})"]
        parts += [f"- {finding}" for finding in kernel["findings"]]
        parts += [_fenced(kernel["source"])]
    if not told["best"]:
        parts += ["None is correct yet."]
    if told["failed"]:
        parts += ["Tried lately without success:"]
        parts += [f"- {f['verdict']}: {f['move']} ({f['why']})" for f in told["failed"]]
    parts += ["Islands:"]
    parts += [f"- {island['island']}: {island['looks_for']}" for island in told["islands"]]
    return "\n".join([*parts, f"Submit with: {told['submit']}"])


def _kernel(candidate: Candidate) -> dict[str, Any]:
    evaluation = candidate.evaluation
    assert evaluation is not None
    return {
        "candidate": candidate.id,
        "island": candidate.island,
        "speedup": candidate.fitness or None,
        "fidelity": str(evaluation.fidelity or "not timed"),
        "origin": candidate.origin,
        "findings": [_told(finding) for finding in evaluation.findings[:MAX_FINDINGS]],
        "source": candidate.source,
    }


def _failure(candidate: Candidate) -> dict[str, Any]:
    evaluation = candidate.evaluation
    assert evaluation is not None
    return {
        "candidate": candidate.id,
        "move": candidate.move,
        "verdict": _verdict(evaluation),
        "why": _told(evaluation.lead) if evaluation.lead else "",
    }


def _verdict(evaluation: Evaluation) -> str:
    return f"{evaluation.verdict or evaluation.state}" + (
        f"/{evaluation.kind}" if evaluation.kind else ""
    )


def _told(finding: Finding) -> str:
    line = f"line {finding.location.line}: " if finding.location.line else ""
    advice = f" {finding.suggestion}" if finding.suggestion else ""
    return f"{line}{finding.title}.{advice}"


def _fenced(source: str) -> str:
    return f"```python\n{source.rstrip()}\n```"
