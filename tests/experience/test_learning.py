"""What is learned from an expert's kernel is run again before it becomes an entry, and all of it is written down."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_runner.core.entry_lines import Outcome, planned
from gpu_runner.core.evaluation import Evaluation, Ratio, Speedup, Timing
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport, TensorSpec
from gpu_runner.core.verdicts import Fidelity, Precision, Track, Verdict
from gpu_runner.learning import Learned, learn, write

TASK = TaskSpec(name="rows", source="class Model: ...")
TIMES = {"WP": 10.0, "wP": 15.0, "Wp": 14.0}
"""A time of each source; capital letters are techniques."""


class Pool:
    """A GPU on which one gain does not hold when both are timed beside each other."""

    def inspect(self, task: TaskSpec) -> TaskReport:
        return TaskReport(
            inputs=(),
            outputs=(TensorSpec(shape=(4,), dtype="float32"),),
            probe=None,
            graph={"nodes": []},
        )

    def call(self, target: str, request: dict[str, Any]) -> dict[str, Any]:
        names = {"W": "enough_warps", "P": "many_pieces"}
        source = request["source"]
        steps = [
            {
                "technique": name,
                "site": "k",
                "source": source.replace(c, c.lower()),
                "move": f"no {name}",
            }
            for c, name in names.items()
            if c in source
        ]
        return {"steps": steps}

    def evaluate(self, task: TaskSpec, source: str, **_: object) -> Evaluation:
        before = task.baseline_source
        beside = None
        if before == "wP":
            beside = Ratio(ratio=1.6, low=1.5, high=1.7)
        elif before == "Wp":
            beside = Ratio(ratio=1.1, low=0.9, high=1.3)
        return Evaluation(
            verdict=Verdict.CORRECT,
            candidate=Timing(device_us=TIMES.get(source, 30.0), n=5),
            speedup=Speedup(user=beside),
            device="NVIDIA H200",
            track=Track.OWN_KERNELS,
            precision=Precision.REFERENCE,
            fidelity=Fidelity.MEASURED,
        )


@pytest.fixture
def learned() -> Learned:
    return learn(Pool(), TASK, "WP", evaluations=3)  # type: ignore[arg-type]


def test_only_a_gain_that_holds_beside_the_simpler_kernel_becomes_an_entry(
    learned: Learned,
) -> None:
    assert [t.cost for t in learned.lineage.alone] == [1.5, 1.4]
    (entry,) = learned.entries
    assert (entry.before, entry.after) == ("wP", "WP")
    (effect,) = entry.effects
    assert (effect.device, effect.ratio, effect.low, effect.high) == ("NVIDIA H200", 1.6, 1.5, 1.7)
    (refused,) = [lesson for lesson in learned.lessons if not lesson.verification.accepted]
    assert "within its interval" in refused.verification.reason


def test_everything_is_written_and_the_entries_can_be_imported(
    learned: Learned, tmp_path: Path
) -> None:
    write(learned, tmp_path / "found")
    reports = planned((tmp_path / "found/entries.jsonl").read_text(), {})
    assert [report.outcome for report in reports] == [Outcome.NEW]
    lineage = json.loads((tmp_path / "found/lineage.json").read_text())
    assert [step["cost"] for step in lineage["alone"]] == [1.5, 1.4]
    lessons = json.loads((tmp_path / "found/lessons.json").read_text())
    assert [lesson["accepted"] for lesson in lessons] == [True, False]
    assert lessons[0]["trials"][0]["low"] == 1.5


def test_each_step_is_told_as_it_is_done() -> None:
    lines: list[str] = []

    learn(Pool(), TASK, "WP", evaluations=3, told=lines.append)  # type: ignore[arg-type]

    assert lines[0] == "evaluation 1 of at most 3: correct, 10.0 us measured"
    assert [line.split(":")[0] for line in lines[1:3]] == [
        f"evaluation {n} of at most 3" for n in (2, 3)
    ]
    assert [line.startswith("running again on fresh seeds: ") for line in lines[3:]] == [True, True]
