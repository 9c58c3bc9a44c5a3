"""What ended an evaluation: the verdict on a player that was lost, and on an exception of submitted code."""

from gpu_runner.core.findings import Evidence, Finding, Location, Severity, Source
from gpu_runner.core.verdicts import Stage, Verdict
from gpu_runner.evaluation.child import genuineness
from gpu_runner.evaluation.child.links import PlayerLost
from gpu_runner.evaluation.protocol import Failed


class Stop(Exception):
    """The first failing gate: nothing after it is worth running."""

    def __init__(self, verdict: Verdict | None, finding: Finding) -> None:
        super().__init__(finding.title)
        self.verdict = verdict  # None: this device cannot tell
        self.finding = finding


def unevaluable(stage: Stage, reason: str) -> Finding:
    return Finding(
        stage=stage,
        kind="unevaluable",
        severity=Severity.WARNING,
        source=Source.INTERPRETER,
        title=f"this device cannot check it: {reason}"[:300],
        suggestion="Evaluate it on a GPU.",
    )


def why_lost(lost: PlayerLost, stage: Stage, step: str) -> Stop:
    """The verdict on a player that ended, hung or lied."""
    if lost.cause == "forgery":
        return Stop(Verdict.CHEATING, genuineness.forged(lost.detail))
    end = lost.link.close()
    if lost.cause == "hang":
        title = f"{step} did not end: {lost.detail}"
        return Stop(Verdict.TIMEOUT, _plain_finding(stage, step, title, end.output))
    title = f"{step} {end.in_words}"
    if end.is_out_of_memory:
        return Stop(Verdict.OUT_OF_MEMORY, _plain_finding(stage, "host", title, end.output))
    if end.signal:
        return Stop(Verdict.RUNTIME_ERROR, _plain_finding(stage, "crash", title, end.output))
    return Stop(Verdict.RUNTIME_ERROR, _plain_finding(stage, "exit", title, end.output))


def why_failed(failed: Failed, stage: Stage) -> Stop:
    """The verdict on an exception of submitted code."""
    verdict, kind = _verdict_of(failed)
    if verdict is None:
        return Stop(None, unevaluable(stage, failed.message))
    title = f"{failed.error}: {failed.message}".replace("\n", " ")[:300]
    evidence: Evidence = {"error": failed.error, "trace": failed.trace[-1500:]}
    finding = Finding(
        stage=stage,
        kind=kind,
        severity=Severity.GATE,
        source=Source.COMPILER if verdict is Verdict.COMPILE_ERROR else Source.PLAYER,
        title=title,
        evidence=evidence,
        location=Location(line=failed.line, kernel=failed.kernel),
    )
    return Stop(verdict, finding)


def _verdict_of(failed: Failed) -> tuple[Verdict | None, str]:
    by_cause: dict[str, tuple[Verdict | None, str]] = {
        "no_entry": (Verdict.INVALID, "no_entry"),
        "out_of_memory": (Verdict.OUT_OF_MEMORY, _memory_kind(failed)),
        "unsupported": (None, ""),
        "compile": (Verdict.COMPILE_ERROR, "frontend"),
        "launch": (Verdict.COMPILE_ERROR, "resources"),
        "device": (Verdict.RUNTIME_ERROR, "device_fault"),
    }
    if failed.cause in by_cause:
        return by_cause[failed.cause]
    if failed.error in ("SystemExit", "KeyboardInterrupt"):
        return Verdict.RUNTIME_ERROR, "exit"
    if failed.where == "load" and failed.error in ("SyntaxError", "IndentationError"):
        return Verdict.INVALID, "syntax"
    if failed.where == "construct":
        return Verdict.RUNTIME_ERROR, "constructor"
    return Verdict.RUNTIME_ERROR, "exception"


def _memory_kind(failed: Failed) -> str:
    return "device" if "CUDA" in failed.message else "host"


def _plain_finding(stage: Stage, kind: str, title: str, output: str) -> Finding:
    return Finding(
        stage=stage,
        kind=kind,
        severity=Severity.GATE,
        source=Source.JUDGE,
        title=title[:300],
        evidence={"output": output[-1500:]},
    )
