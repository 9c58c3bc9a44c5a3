"""What was predicted against what came: pairs of parents and children, and how often predictions hold."""

from typing import Any

import pytest

from gpu_runner.core.evaluation import Evaluation, Timing
from gpu_runner.core.findings import Finding, Severity, Source
from gpu_runner.core.predictions import Outcome, Record, outcome, records
from gpu_runner.core.verdicts import Stage, Verdict
from tests.evolution.making import evaluation


def hint(kind: str = "uncoalesced", gain: float | None = 4.0, lost_us: float = 75.0) -> Finding:
    evidence: dict[str, Any] = {"lost_us": lost_us} | ({"predicted_gain": gain} if gain else {})
    return Finding(
        stage=Stage.PROFILE,
        kind=kind,
        severity=Severity.HINT,
        source=Source.INTERPRETER,
        title=kind,
        evidence=evidence,
    )


def timed(us: float, *findings: Finding, **more: Any) -> Evaluation:
    made = evaluation(1.0, findings=findings)
    return made.model_copy(update={"candidate": Timing(device_us=us, n=0), **more})


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        (timed(40.0), Outcome("uncoalesced", 4.0, 2.5, True)),
        (timed(40.0, hint(lost_us=30.0)), Outcome("uncoalesced", 4.0, 2.5, True)),
        (timed(80.0, hint(lost_us=70.0)), Outcome("uncoalesced", 4.0, 1.25, False)),
        (timed(200.0, hint("launches")), Outcome("uncoalesced", 4.0, 0.5, True)),
        (timed(40.0, device="other"), None),
        (timed(40.0, environment={"target": "a100"}), None),
        (evaluation(verdict=Verdict.INCORRECT, kind="values"), None),
    ],
)
def test_a_child_shows_what_came_of_its_parents_lead(
    child: Evaluation, expected: Outcome | None
) -> None:
    assert outcome(timed(100.0, hint()), child) == expected


@pytest.mark.parametrize(
    "parent", [timed(100.0), timed(100.0, hint(gain=None)), timed(100.0, hint(gain=1.0))]
)
def test_without_a_prediction_there_is_no_outcome(parent: Evaluation) -> None:
    assert outcome(parent, timed(50.0)) is None


@pytest.mark.parametrize(
    ("gained", "holds"), [(4.0, True), (9.0, True), (2.0, True), (1.9, False), (0.5, False)]
)
def test_half_of_the_gain_in_logarithms_holds(gained: float, holds: bool) -> None:
    assert Outcome("launches", 4.0, gained, True).held == holds


def test_only_what_was_acted_on_counts() -> None:
    outcomes = [
        Outcome("launches", 2.0, 1.5, True),
        Outcome("launches", 2.0, 1.1, True),
        Outcome("launches", 2.0, 3.0, False),
        Outcome("spills", 4.0, 0.8, True),
    ]
    assert records(outcomes) == [
        Record("launches", tried=2, held=1, faster=2, median_predicted=2.0, median_gained=1.3),
        Record("spills", tried=1, held=0, faster=0, median_predicted=4.0, median_gained=0.8),
    ]
    assert records([]) == []
