"""Reading a finding's evidence: everything in it is a claim of some child and may be absent or of another type."""

from dataclasses import dataclass, field
from typing import Any

from gpu_runner.core.findings import Cause, Evidence, Finding, Location


@dataclass(frozen=True)
class Advice:
    """What a module of the diagnosis knows about a finding; empty fields change nothing.

    Args:
        cause: one clause that is appended to the title.
        facts: added to the evidence.
        cause_kind: the cause as one of the words that rules and searches know.
        region: where, in words that say more than the finding's own, which they go before.
    """

    cause: str = ""
    suggestion: str = ""
    facts: Evidence = field(default_factory=dict)
    line: int | None = None
    kernel: str | None = None
    cause_kind: Cause | None = None
    region: str = ""


def text_of(finding: Finding) -> str:
    """Title and every text of the evidence, in which error messages are looked for."""
    parts = [finding.title]
    for value in finding.evidence.values():
        if isinstance(value, str):
            parts.append(value)
        elif isinstance(value, list):
            parts += [item for item in value if isinstance(item, str)]
    return "\n".join(parts)


def number(finding: Finding, *names: str) -> float | None:
    """The first of these that is a number."""
    for name in names:
        value = finding.evidence.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def word(finding: Finding, name: str) -> str:
    value: Any = finding.evidence.get(name)
    return value if isinstance(value, str) else ""


def advised(finding: Finding, advice: Advice) -> Finding:
    """The finding with the advice; what it already says is kept, an own suggestion first."""
    title = finding.title
    if advice.cause and advice.cause not in title:
        title = f"{title}: {advice.cause}"
    place = finding.location
    cause: Evidence = {"cause": advice.cause_kind.value} if advice.cause_kind else {}
    location = Location(
        kernel=place.kernel or advice.kernel,
        line=place.line or advice.line,
        tensor=place.tensor,
        region=_joined(advice.region, place.region),
    )
    suggestion = finding.suggestion
    if advice.suggestion and advice.suggestion not in suggestion:
        suggestion = f"{suggestion} {advice.suggestion}".strip()
    return finding.model_copy(
        update={
            "title": title[:300],
            "location": location,
            "suggestion": suggestion[:1000],
            "evidence": _maps_last({**cause, **advice.facts, **finding.evidence}),
        }
    )


def _maps_last(evidence: Evidence) -> Evidence:
    """Whoever reads only the beginning, as a prompt does, finds the numbers there."""
    return dict(sorted(evidence.items(), key=lambda item: item[0].startswith("error_map")))


def _joined(added: str, known: str | None) -> str | None:
    if not added or (known or "").startswith(added):
        return known
    return f"{added}: {known}"[:200] if known and known != "everywhere" else added[:200]


def texts(finding: Finding, name: str) -> list[str]:
    value = finding.evidence.get(name)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def lines_of(finding: Finding, name: str) -> list[int]:
    value = finding.evidence.get(name)
    return [line for line in value if isinstance(line, int)] if isinstance(value, list) else []
