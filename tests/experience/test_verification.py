"""An entry is admitted by what running it finds, on its own task and on another one that it fits."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpu_runner.core.entries import EntryContent, EntryKind, When
from gpu_runner.core.evaluation import Evaluation, Ratio, Speedup, Timing
from gpu_runner.core.findings import Finding, Severity, Source
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport, TensorSpec
from gpu_runner.core.verdicts import Fidelity, Precision, Stage, Track, Verdict
from gpu_runner.experience.interfaces import same_interface
from gpu_runner.experience.verification import verify

MODEL = """
class Model(nn.Module):
    def forward(self, x):
        return {what}
"""
OWN = TaskSpec(name="own", source=MODEL.format(what="x.softmax(-1)"))
OTHER = TaskSpec(name="other", source=MODEL.format(what="x.softmax(0)"))
THIRD = TaskSpec(name="third", source=MODEL.format(what="x.sum()"))
ENTRY = EntryContent(
    kind=EntryKind.TECHNIQUE,
    title="read once",
    action="do",
    before="slow",
    after="fast",
    when=When(operators=("softmax",), dtypes=("float32",)),
)

Outcome = float | str
"""A modelled time in microseconds, or `verdict/kind`."""


class Scripted:
    """A pool with an outcome for each task's name and source."""

    def __init__(
        self, outcomes: Mapping[tuple[str, str], Outcome], measured: Mapping[str, Ratio] = {}
    ) -> None:
        self._outcomes, self._measured = outcomes, measured
        self.evaluated: list[tuple[str, str, str | None]] = []

    def inspect(self, task: TaskSpec) -> TaskReport:
        op = "aten.sum.default" if task.name == "third" else "aten.softmax.int"
        spec = TensorSpec(shape=(8,), dtype="float32")
        nodes = [{"name": "y", "kind": "call", "op": op}]
        return TaskReport(inputs=(spec,), outputs=(spec,), probe=None, graph={"nodes": nodes})

    def evaluate(self, task: TaskSpec, source: str) -> Evaluation:
        self.evaluated.append((task.name, source, task.baseline_source))
        outcome = self._outcomes[task.name, source]
        common: dict[str, Any] = {
            "device": "h200",
            "track": Track.OWN_KERNELS,
            "precision": Precision.REFERENCE,
            "fidelity": Fidelity.MODELLED,
        }
        if isinstance(outcome, str):
            verdict, kind = outcome.split("/")
            lead = Finding(
                stage=Stage.CORRECTNESS,
                kind=kind,
                severity=Severity.GATE,
                source=Source.JUDGE,
                title="half of it is wrong",
            )
            return Evaluation(verdict=Verdict(verdict), kind=kind, findings=(lead,), **common)
        beside = self._measured.get(task.name) if task.baseline_source else None
        return Evaluation(
            verdict=Verdict.CORRECT,
            candidate=Timing(device_us=outcome, n=0),
            speedup=Speedup(user=beside),
            **common,
        )


def outcomes(**by_task: tuple[Outcome, Outcome]) -> dict[tuple[str, str], Outcome]:
    return {
        (name, source): outcome
        for name, pair in by_task.items()
        for source, outcome in zip(("slow", "fast"), pair, strict=True)
    }


def test_a_gain_on_its_own_and_on_another_task_is_accepted() -> None:
    pool = Scripted(outcomes(own=(10.0, 5.0), other=(8.0, 4.0)))
    found = verify(ENTRY, pool, OWN, [THIRD, OTHER])
    assert found.accepted
    assert [(t.task_name, t.is_own, t.ratio, t.holds) for t in found.trials] == [
        ("own", True, 2.0, True),
        ("other", False, 2.0, True),
    ]
    assert ("own", "fast", "slow") in pool.evaluated, "the code before is the baseline"


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ((10.0, 9.95), "the modelled gain is 1.005, below 1.02"),
        ((10.0, "incorrect/values"), "the code after is incorrect/values: half of it is wrong"),
        (("incorrect/nan", 5.0), "the code before is incorrect/nan: half of it is wrong"),
    ],
)
def test_what_fails_on_its_own_task_says_why(pair: tuple[Outcome, Outcome], reason: str) -> None:
    found = verify(ENTRY, Scripted(outcomes(own=pair)), OWN, [OTHER])
    assert not found.accepted
    assert found.reason == f"on its own task {reason}"
    assert len(found.trials) == 1


def test_a_lesson_that_holds_on_its_own_task_only_is_refused_and_both_results_are_kept() -> None:
    found = verify(ENTRY, Scripted(outcomes(own=(10.0, 5.0), other=(5.0, 10.0))), OWN, [OTHER])
    assert not found.accepted
    assert "holds on its own task only: on other the modelled gain is 0.500" in found.reason
    assert [trial.holds for trial in found.trials] == [True, False]


def test_a_task_on_which_the_code_does_not_run_at_all_says_nothing() -> None:
    wrong = ("incorrect/values", "incorrect/values")
    found = verify(ENTRY, Scripted(outcomes(own=(10.0, 5.0), other=wrong)), OWN, [OTHER])
    assert found.accepted
    assert [trial.task_name for trial in found.trials] == ["own"]


def test_a_measured_gain_must_be_above_one_beyond_its_interval() -> None:
    times = outcomes(own=(10.0, 5.0))
    unsure = {"own": Ratio(ratio=1.2, low=0.98, high=1.5)}
    sure = {"own": Ratio(ratio=1.2, low=1.1, high=1.3)}
    assert "within its interval" in verify(ENTRY, Scripted(times, unsure), OWN).reason
    found = verify(ENTRY, Scripted(times, sure), OWN)
    assert found.accepted
    assert (found.trials[0].ratio, found.trials[0].low) == (1.2, 1.1)


def test_a_cure_needs_the_failure_that_it_names() -> None:
    cure = ENTRY.model_copy(update={"cures": "incorrect/nan"})
    assert verify(cure, Scripted(outcomes(own=("incorrect/nan", 5.0))), OWN).accepted
    found = verify(cure, Scripted(outcomes(own=("incorrect/values", 5.0))), OWN)
    assert found.reason == "on its own task the code before is incorrect/values, not incorrect/nan"


def test_without_code_nothing_can_be_run_and_a_spent_budget_ends_the_search() -> None:
    pool = Scripted(outcomes(own=(10.0, 5.0)))
    assert "no code" in verify(ENTRY.model_copy(update={"before": ""}), pool, OWN).reason
    assert pool.evaluated == []
    assert verify(ENTRY, pool, OWN, [OTHER], is_over=lambda: True).accepted
    assert {name for name, _, _ in pool.evaluated} == {"own"}


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("class Model:\n def forward(self, y): pass", True),
        ("class Model:\n def forward(self, x, y): pass", False),
        ("class Model:\n def __init__(self, n): self.w = n\n def forward(self, x): pass", False),
        ("class Other:\n def forward(self, x): pass", False),
        ("class Model(:", False),
    ],
)
def test_interfaces_are_compared_by_what_they_take_and_hold(other: str, same: bool) -> None:
    assert same_interface(OWN.source, other) is same
