"""An expert's kernel is walked backwards; what costs becomes a lesson, what breaks says what it rests on, rules say where."""

from collections.abc import Mapping

import pytest

from gpu_runner.core.evaluation import Evaluation, Timing
from gpu_runner.core.findings import Finding, Location, Severity, Source
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport, TensorSpec
from gpu_runner.core.verdicts import Fidelity, Precision, Stage, Track, Verdict
from gpu_runner.experience.lineage import (
    Lineage,
    Step,
    Tried,
    UnfitExpert,
    kinds_of,
    lessons,
    spread,
    trace,
)
from gpu_runner.experience.rules import Rule, learned
from gpu_runner.experience.techniques import TECHNIQUES
from gpu_runner.proposals.child import simplifications

TASK = TaskSpec(name="rows", source="class Model: ...")
REPORT = TaskReport(
    inputs=(),
    outputs=(TensorSpec(shape=(4,), dtype="float32"),),
    probe=None,
    graph={"nodes": [{"name": "y", "kind": "call", "op": "aten.sum.default"}]},
)
TIMES: Mapping[str, float | None] = {
    "WPB": 10.0,
    "wPB": 15.0,
    "WpB": 10.1,
    "WPb": None,
    "wpB": 16.0,
}
"""Capital letters are techniques: warps, pieces, a block that must cover the row."""
NAMES = {"W": "enough_warps", "P": "many_pieces", "B": "large_blocks"}


def finding(kind: str, severity: Severity = Severity.HINT) -> Finding:
    return Finding(
        stage=Stage.PROFILE, kind=kind, severity=severity, source=Source.INTERPRETER, title=kind
    )


def evaluate(source: str) -> Evaluation:
    time = TIMES[source]
    common = {
        "device": "modelled",
        "track": Track.OWN_KERNELS,
        "precision": Precision.REFERENCE,
        "fidelity": Fidelity.MODELLED,
    }
    if time is None:
        lead = (finding("values", Severity.GATE),)
        return Evaluation(verdict=Verdict.INCORRECT, kind="values", findings=lead, **common)
    shown = ["bound_by_dram", *(["spills"] if "w" in source else [])]
    return Evaluation(
        verdict=Verdict.CORRECT,
        candidate=Timing(device_us=time, n=0),
        findings=tuple(map(finding, shown)),
        **common,
    )


def simplify(source: str) -> tuple[Step, ...]:
    return tuple(
        Step(
            technique=name,
            site="k",
            source=source.replace(letter, letter.lower()),
            move=f"no {name}",
        )
        for letter, name in NAMES.items()
        if letter in source
    )


def test_each_technique_is_measured_alone_and_then_on_top_of_each_other() -> None:
    found = trace("WPB", evaluate, simplify, evaluations=20)
    alone = [(t.step.technique, t.verdict, t.cost, t.findings) for t in found.alone]
    assert alone == [
        ("enough_warps", "correct", 1.5, ("spills",)),
        ("many_pieces", "correct", 1.01, ()),
        ("large_blocks", "incorrect/values", None, ()),
    ]
    walk = [(t.step.source, t.cost) for t in found.walk]
    assert walk == [("WpB", 1.01), ("wpB", 16.0 / 10.1)], "what costs least goes first"
    assert found.left_out == 0


def test_a_small_budget_sees_every_technique_once() -> None:
    steps = [
        Step(technique=name, site=site, source="", move="")
        for name, site in ("a1", "a2", "b1", "a3", "b2")
    ]
    assert ["".join((s.technique, s.site)) for s in spread(steps)] == ["a1", "b1", "a2", "b2", "a3"]


def test_what_is_found_in_another_kernel_says_nothing_about_a_step() -> None:
    def found(kind: str, kernel: str | None) -> Finding:
        return finding(kind).model_copy(update={"location": Location(kernel=kernel)})

    findings = (
        found("spills", "k"),
        found("tail", "k_rest"),
        found("little_in_flight", "join"),
        found("extra_kernels", "join"),
        found("few_trials", None),
        found("spills", "join"),
    )
    shown = evaluate("WPB").model_copy(update={"findings": findings})
    assert kinds_of(shown, "k") == ("spills", "tail", "extra_kernels", "few_trials")
    assert kinds_of(shown) == ("spills", "tail", "little_in_flight", "extra_kernels", "few_trials")


def test_the_budget_is_kept() -> None:
    asked = []

    def counted(source: str) -> Evaluation:
        asked.append(source)
        return evaluate(source)

    found = trace("WPB", counted, simplify, evaluations=3)
    assert len(asked) == 3
    assert (len(found.alone), found.walk, found.left_out) == (2, (), 1)


def test_an_expert_that_does_not_pass_teaches_nothing() -> None:
    with pytest.raises(UnfitExpert, match="incorrect/values: values"):
        trace("WPb", evaluate, simplify)


def test_a_step_that_costs_becomes_a_lesson_with_what_broke() -> None:
    (lesson,) = lessons(trace("WPB", evaluate, simplify), TASK, REPORT)
    assert lesson.title == "Give a block as many warps as its registers ask for (k in rows)"
    assert (lesson.before, lesson.after) == ("wPB", "WPB")
    assert lesson.when.bottlenecks == ("spills",)
    assert lesson.when.operators == ("sum",)
    assert [effect.ratio for effect in lesson.effects] == [1.5]
    assert lesson.if_violated == "no large_blocks: incorrect/values, values"


def tried(technique: str, cost: float | None, *shown: str) -> Tried:
    step = Step(technique=technique, site="k", source="", move="")
    return Tried(step=step, verdict="correct", cost=cost, shown=shown)


def test_a_rule_goes_by_the_findings_that_tell_gain_from_idleness() -> None:
    rules = learned(
        [
            tried("enough_warps", 1.5, "spills", "bound_by_dram"),
            tried("enough_warps", 1.4, "occupancy", "bound_by_dram"),
            tried("enough_warps", 1.0, "bound_by_dram"),
            tried("enough_warps", 1.0, "bound_by_dram", "tail"),
            tried("enough_warps", None, "tail"),
        ]
    )
    assert rules["enough_warps"] == Rule(frozenset({"spills", "occupancy"}), 2, 2)
    assert rules["enough_warps"].applies(["spills", "tail"])
    assert not rules["enough_warps"].applies(["bound_by_dram", "tail"])


def test_while_a_technique_always_gained_it_applies_wherever_it_is_missing() -> None:
    rule = learned([tried("many_pieces", 4.0, "little_in_flight")])["many_pieces"]
    assert rule == Rule(None, 1, 0)
    assert rule.is_learned
    assert rule.applies([])
    assert not rule.applies(["at_memory_ceiling"]), "nothing is left to gain"


def test_without_a_gain_a_rule_is_what_is_known_less_what_said_nothing() -> None:
    rules = learned([tried("large_blocks", 1.0, "little_in_flight")])
    known = frozenset(TECHNIQUES["large_blocks"].shows)
    assert rules["large_blocks"] == Rule(known - {"little_in_flight"}, 0, 1)
    assert not rules["large_blocks"].is_learned
    assert rules["pipelining"] == Rule(frozenset(TECHNIQUES["pipelining"].shows))


def test_every_technique_that_can_be_taken_out_is_described() -> None:
    assert set(simplifications._TECHNIQUES) == set(TECHNIQUES)
    assert Lineage(expert="").alone == ()
