"""The plan outlives bad code, learns from every attempt, and never grows without bound."""

import pytest

from gpu_runner.core.findings import Finding, Severity, Source
from gpu_runner.core.search import Idea, IdeaState
from gpu_runner.core.verdicts import Stage
from gpu_runner.evolution import plans
from gpu_runner.evolution.plans import Suggestion
from gpu_runner.evolution.types import Plan
from tests.evolution.making import candidate, evaluation


def finding(kind: str = "launches", severity: Severity = Severity.HINT, **more: object) -> Finding:
    fields = {"title": kind, "suggestion": "fuse", "evidence": {"predicted_gain": 1.5}}
    return Finding(
        stage=Stage.PROFILE, kind=kind, severity=severity, source=Source.JUDGE, **(fields | more)
    )


def planned(*suggestions: Suggestion) -> Plan:
    return plans.proposed(Plan(), candidate(1, 2.0), suggestions)


FUSE = Suggestion("fuse", "fuse both kernels", "planner", expected_gain=1.5, difficulty=0.5)


def only(plan: Plan) -> Idea:
    (idea,) = plan.ideas.values()
    return idea


def test_the_diagnosis_of_a_correct_candidate_gives_ideas() -> None:
    found = (finding(), finding("tail", Severity.NOTE), finding("spills", evidence={}))
    good = candidate(1, evaluation=evaluation(2.0, findings=found))
    assert [(s.key, s.expected_gain) for s in plans.from_findings(good)] == [
        ("launches", 1.5),
        ("spills", plans.UNKNOWN_GAIN),
    ]
    bad = candidate(1, evaluation=evaluation(verdict="incorrect", kind="values", findings=found))
    assert plans.from_findings(bad) == []


def test_a_candidate_has_an_idea_once() -> None:
    plan = plans.proposed(planned(FUSE), candidate(1, 2.0), [FUSE])
    assert len(plan.ideas) == 1
    assert len(plans.proposed(plan, candidate(2, 2.0), [FUSE]).ideas) == 2


def test_an_idea_survives_broken_code_a_bounded_number_of_times() -> None:
    plan = planned(FUSE)
    for attempt in range(1, plans.MAX_ATTEMPTS + 1):
        assert plans.promising(plan, {1}) == [only(plan)]
        child = candidate(10 + attempt)
        plan = plans.tried(plan, 1, [child])
        assert plans.promising(plan, {1}) == []
        plan = plans.judged(plan, 1, child)
        assert only(plan).attempts == attempt
    assert only(plan).state is IdeaState.DROPPED
    assert plans.promising(plan, {1}) == []


@pytest.mark.parametrize(
    ("speedup", "state", "gain"), [(3.0, IdeaState.GAINED, 1.5), (1.0, IdeaState.REFUTED, 0.5)]
)
def test_code_that_works_decides_on_its_idea(speedup: float, state: IdeaState, gain: float) -> None:
    child = candidate(10, speedup)
    plan = plans.judged(plans.tried(planned(FUSE), 1, [child]), 1, child)
    assert (only(plan).state, only(plan).gain, only(plan).in_flight) == (state, gain, 0)


def test_a_draft_that_never_came_is_an_attempt_and_a_failure_of_ours_is_none() -> None:
    assert only(plans.tried(planned(FUSE), 1, [])).attempts == 1
    plan = plans.forgotten(plans.tried(planned(FUSE), 1, [candidate(10)]), 1)
    assert (only(plan).attempts, only(plan).in_flight) == (0, 0)


def test_what_follows_from_a_child_hangs_below_its_idea() -> None:
    child = candidate(10, 3.0)
    plan = plans.judged(plans.tried(planned(FUSE), 1, [child]), 1, child)
    plan = plans.proposed(plan, child, [Suggestion("tile", "tile it", "planner")])
    assert plan.ideas[2].parent == 1


def test_an_attempt_teaches_ideas_of_its_kind_elsewhere() -> None:
    other = Suggestion("tile", "tile it", "planner", expected_gain=1.5, difficulty=0.5)
    plan = planned(FUSE)
    plan = plans.proposed(plan, candidate(2, 2.0), [FUSE, other])
    before = plans.score(plan, plan.ideas[2])
    assert before == plans.score(plan, plan.ideas[3])
    broken = plans.judged(plan, 1, candidate(10))
    assert plans.score(broken, broken.ideas[2]) < before == plans.score(broken, broken.ideas[3])
    gained = plans.judged(plan, 1, candidate(10, 4.0))
    assert plans.score(gained, gained.ideas[2]) > before
    refuted = plans.judged(plan, 1, candidate(10, 1.0))
    assert plans.score(refuted, refuted.ideas[2]) < before


def test_ideas_for_faster_candidates_come_first() -> None:
    plan = plans.proposed(planned(FUSE), candidate(2, 3.0), [FUSE])
    assert [idea.base for idea in plans.promising(plan, {1, 2})] == [2, 1]
    assert [idea.base for idea in plans.promising(plan, {1})] == [1]


def test_a_plan_has_a_bounded_number_of_open_ideas() -> None:
    plan = Plan()
    for number in range(1, 30):
        many = [Suggestion(f"{n}", "try", "planner", 1 + n / 10) for n in range(1, 5)]
        plan = plans.proposed(plan, candidate(number, 1.0), many)
    states = [idea.state for idea in plan.ideas.values()]
    assert states.count(IdeaState.OPEN) == plans.MAX_OPEN
    kept = [i.expected_gain for i in plan.ideas.values() if i.state is IdeaState.OPEN]
    assert min(kept) > 1.1
