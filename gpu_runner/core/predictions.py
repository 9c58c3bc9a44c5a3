"""Did predictions hold? A parent's leading finding says what would be gained; a child made from it shows what was."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.findings import Finding, Severity

HELD_SHARE: Final = 0.5
"""Of the predicted gain, in logarithms, that must come for a prediction to have held. More than predicted holds too."""

REMOVED_SHARE: Final = 0.5
"""A loss was acted on if at least this share of its time is gone in the child."""


@dataclass(frozen=True)
class Outcome:
    """One prediction and what came of it: ratios of times, parent / child.

    Args:
        kind: of the finding that predicted.
        was_acted_on: whether the child has lost most of the loss that the finding named; a gain without that was
            another idea's.
    """

    kind: str
    predicted: float
    gained: float
    was_acted_on: bool

    @property
    def held(self) -> bool:
        return math.log(self.gained) >= HELD_SHARE * math.log(self.predicted)


@dataclass(frozen=True)
class Record:
    """How often one kind of prediction held, over the children that acted on it."""

    kind: str
    tried: int
    held: int
    faster: int
    median_predicted: float
    median_gained: float


def outcome(parent: Evaluation, child: Evaluation) -> Outcome | None:
    """What came of the parent's leading prediction; None where it made none or the two cannot be compared."""
    lead, times = parent.lead, (parent.candidate, child.candidate)
    if lead is None or lead.predicted_gain is None or lead.predicted_gain <= 1:
        return None
    if times[0] is None or times[1] is None or not _comparable(parent, child):
        return None
    return Outcome(
        kind=lead.kind,
        predicted=lead.predicted_gain,
        gained=times[0].device_us / times[1].device_us,
        was_acted_on=_is_removed(lead, child),
    )


def records(outcomes: Iterable[Outcome]) -> list[Record]:
    """By kind, the most tried first."""
    by_kind: dict[str, list[Outcome]] = {}
    for one in outcomes:
        if one.was_acted_on:
            by_kind.setdefault(one.kind, []).append(one)
    found = [_record(kind, ones) for kind, ones in by_kind.items()]
    return sorted(found, key=lambda record: (-record.tried, record.kind))


def _record(kind: str, outcomes: Sequence[Outcome]) -> Record:
    return Record(
        kind=kind,
        tried=len(outcomes),
        held=sum(one.held for one in outcomes),
        faster=sum(one.gained > 1 for one in outcomes),
        median_predicted=median(one.predicted for one in outcomes),
        median_gained=median(one.gained for one in outcomes),
    )


def _comparable(parent: Evaluation, child: Evaluation) -> bool:
    """Times of one device, one fidelity and one set of rules."""
    same = ("fidelity", "device", "track", "precision")
    targets = [one.environment.get("target") for one in (parent, child)]
    return targets[0] == targets[1] and all(
        getattr(parent, name) == getattr(child, name) for name in same
    )


def _is_removed(lead: Finding, child: Evaluation) -> bool:
    before = _lost_us(lead)
    after = sum(
        _lost_us(finding)
        for finding in child.findings
        if finding.kind == lead.kind and finding.severity is Severity.HINT
    )
    return after <= (1 - REMOVED_SHARE) * before


def _lost_us(finding: Finding) -> float:
    lost = finding.evidence.get("lost_us")
    return float(lost) if isinstance(lost, int | float) else 0.0
