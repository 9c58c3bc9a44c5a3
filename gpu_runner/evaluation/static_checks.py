"""What can be told of a candidate before anything runs: its size, its nesting, its syntax, its entry."""

from gpu_runner.core.contract import check_candidate
from gpu_runner.core.findings import Finding, Location, Severity, Source
from gpu_runner.core.verdicts import Stage

_SUGGESTIONS = {
    "syntax": "Correct the line; the message is the Python parser's.",
    "no_entry": "Define `class ModelNew(nn.Module)` with the constructor and forward of `Model`.",
    "too_large": "Shorten the source; constants belong into the module's state.",
}


def check(source: str) -> Finding | None:
    """Why a source is no candidate at all, or None. Costs milliseconds, whatever the source."""
    problem = check_candidate(source)
    if problem is None:
        return None
    return Finding(
        stage=Stage.STATIC,
        kind=problem.kind,
        severity=Severity.GATE,
        source=Source.JUDGE,
        title=problem.message[:300],
        location=Location(line=problem.line),
        suggestion=_SUGGESTIONS.get(problem.kind, ""),
    )
