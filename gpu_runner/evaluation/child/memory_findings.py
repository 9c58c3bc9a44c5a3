"""What the interpreter saw of a candidate's memory accesses, as findings."""

from typing import Any

from gpu_runner.core.findings import Evidence, Finding, Location, Severity, Source
from gpu_runner.core.verdicts import Stage, Verdict
from gpu_runner.evaluation.child.failures import Stop


def finding_of(stage: Stage, seen: dict[str, Any], kind: str) -> Finding:
    kernel, tensor = str(seen.get("kernel"))[:120], str(seen.get("tensor"))[:120]
    words = {
        "out_of_bounds": f"{kernel} {_verb(seen)} {tensor}[{seen.get('index')}], which has {seen.get('extent')} elements",
        "outside_view": f"{kernel} {_verb(seen)} {tensor}[{seen.get('index')}], inside the memory but outside"
        f" the view, which has {seen.get('extent')} elements",
        "race": _race_in_words(seen, kernel, tensor),
        "unwritten": f"{kernel} reads {tensor}[{seen.get('index')}], which nobody has written",
        "launch": f"{kernel} is launched with a grid that no GPU accepts",
    }
    suggestions = {
        "out_of_bounds": "Mask the access with the tensor's size.",
        "race": "Give each element one writer, or use an atomic operation.",
        "unwritten": "Write the whole buffer before reading it, or start from zeros.",
        "launch": "Keep grid sizes within 2**31-1, 65535, 65535.",
    }
    keep = ("access", "index", "extent", "count", "program", "other_program", "certain")
    evidence: Evidence = {k: _plain(seen[k]) for k in keep if k in seen}
    line = seen.get("line")
    return Finding(
        stage=stage,
        kind=kind if kind != "launch" else "launch",
        severity=Severity.GATE,
        source=Source.INTERPRETER,
        title=words.get(kind, kind)[:300],
        evidence=evidence,
        location=Location(
            kernel=kernel, line=line if isinstance(line, int) and line > 0 else None, tensor=tensor
        ),
        suggestion=suggestions.get(kind, ""),
    )


def _race_in_words(seen: dict[str, Any], kernel: str, tensor: str) -> str:
    if seen.get("other_program") == seen.get("program"):
        return f"two lanes of one store in {kernel} write different values to {tensor}[{seen.get('index')}]"
    return f"two programs of {kernel} touch {tensor}[{seen.get('index')}] and one of them writes"


def outside_at_full_size(seen: dict[str, Any]) -> Stop:
    """The verdict on an access of a full-size launch, of which a few programs were interpreted."""
    finding = finding_of(Stage.TIMING, seen, "out_of_bounds")
    title = f"at full size {finding.title}"[:300]
    suggestion = "Compute offsets beyond 2**31 in tl.int64, and mask the access."
    return Stop(
        Verdict.RUNTIME_ERROR, finding.model_copy(update={"title": title, "suggestion": suggestion})
    )


def _verb(seen: dict[str, Any]) -> str:
    return {"load": "reads", "store": "writes"}.get(str(seen.get("access")), "accesses")


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [int(v) for v in value]
    return value if isinstance(value, int | float | str | bool | None) else str(value)[:100]
