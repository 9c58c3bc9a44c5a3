"""Putting the diagnosis of one evaluation together and in order."""

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.findings import Severity

_ORDER = {Severity.GATE: 0, Severity.WARNING: 1, Severity.HINT: 2, Severity.NOTE: 3}


def diagnose(evaluation: Evaluation, source: str) -> Evaluation:
    """The evaluation with enriched findings, the leading one first; verdict, kind and times are untouched."""
    return evaluation
