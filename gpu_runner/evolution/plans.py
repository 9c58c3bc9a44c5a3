"""The plan: ideas apart from the code that tries them, so that a good idea outlives bad code.

An idea belongs to a candidate, its base. It is open until it worked (it gained, or is refuted) or broke `MAX_ATTEMPTS` times.
What an attempt shows counts for ideas of the same key elsewhere. Ideas come from the diagnosis of every correct candidate, or
from a planner or a person through `proposed`.

Source: the separation of plans from programs follows K-Search; scores, bounds and the sharing by key are ours.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.findings import Finding, Severity
from gpu_runner.core.search import Idea, IdeaState
from gpu_runner.evolution.fitness import is_correct
from gpu_runner.evolution.types import Lesson, Plan

MAX_ATTEMPTS: Final = 3
MAX_OPEN: Final = 60
"""Open ideas of one run; beyond, the untried ones with the lowest score are dropped."""
PRIOR_WEIGHT: Final = 1.0
"""How many attempts an estimate of gain or difficulty weighs against what was seen."""
MAX_LOSS: Final = 0.5
"""A loss, as a logarithm, counts no more than this against the other ideas of its kind."""
UNKNOWN_GAIN: Final = 1.1
"""Expected of a suggestion that comes without a figure."""


@dataclass(frozen=True)
class Suggestion:
    """An idea before it has a place in the plan."""

    key: str
    text: str
    origin: str
    expected_gain: float = UNKNOWN_GAIN
    difficulty: float = 0.4


def from_findings(candidate: Candidate) -> list[Suggestion]:
    """What the diagnosis of a correct candidate suggests."""
    if candidate.evaluation is None or not is_correct(candidate):
        return []
    wanted = (Severity.HINT, Severity.WARNING)
    return [
        Suggestion(
            key=f"{finding.kind} {finding.location.kernel or ''}".strip()[:80],
            text=finding.suggestion,
            origin="diagnosis",
            expected_gain=_predicted(finding),
        )
        for finding in candidate.evaluation.findings
        if finding.suggestion and finding.severity in wanted
    ]


def proposed(plan: Plan, base: Candidate, suggestions: Iterable[Suggestion]) -> Plan:
    """The plan with ideas for a candidate; one that the candidate already has is not added again."""
    known = {idea.key for idea in plan.ideas.values() if idea.base == base.id}
    led_by = next((i.id for i in plan.ideas.values() if base.id in i.candidates), None)
    ideas = dict(plan.ideas)
    for suggestion in suggestions:
        if suggestion.key not in known:
            known.add(suggestion.key)
            number = len(ideas) + 1
            ideas[number] = Idea(
                id=number,
                key=suggestion.key,
                text=suggestion.text,
                origin=suggestion.origin,
                base=base.id,
                island=base.island,
                parent=led_by,
                base_speedup=base.fitness,
                expected_gain=suggestion.expected_gain,
                difficulty=suggestion.difficulty,
            )
    return _bounded(replace(plan, ideas=MappingProxyType(ideas)))


def promising(plan: Plan, bases: Collection[int], reserved: Collection[int] = ()) -> list[Idea]:
    """Open ideas for these candidates that nobody is trying just now, the best prospect first."""
    free = [
        idea
        for idea in plan.ideas.values()
        if idea.base in bases
        and idea.state is IdeaState.OPEN
        and not idea.in_flight
        and idea.id not in reserved
    ]
    return sorted(free, key=lambda idea: (-prospect(plan, idea), idea.id))


def prospect(plan: Plan, idea: Idea) -> float:
    """The logarithm of the speedup that one more attempt promises: an idea for a slow kernel must gain more."""
    return math.log(max(idea.base_speedup, 0.01)) + score(plan, idea)


def score(plan: Plan, idea: Idea) -> float:
    """The logarithm of the gain to be expected of one more attempt, by its estimate and what its kind has shown."""
    lesson = plan.lessons.get(idea.key, Lesson())
    worked = lesson.tries - lesson.broke
    gain = (PRIOR_WEIGHT * math.log(idea.expected_gain) + lesson.gain) / (PRIOR_WEIGHT + worked)
    breaks = (PRIOR_WEIGHT * idea.difficulty + lesson.broke) / (PRIOR_WEIGHT + lesson.tries)
    return gain * (1 - breaks) / (1 + idea.attempts)


def tried(plan: Plan, idea_id: int, candidates: Iterable[Candidate]) -> Plan:
    """An attempt at an idea is in flight; without candidates it failed before anything could be evaluated."""
    idea = plan.ideas[idea_id]
    made = tuple(candidate.id for candidate in candidates)
    if not made:
        return _put(plan, _broken(idea))
    return _put(
        plan, _edited(idea, in_flight=idea.in_flight + len(made), candidates=idea.candidates + made)
    )


def forgotten(plan: Plan, idea_id: int) -> Plan:
    """An attempt could not be evaluated, by our fault: it does not count."""
    idea = plan.ideas[idea_id]
    return _put(plan, _edited(idea, in_flight=max(0, idea.in_flight - 1)))


def judged(plan: Plan, idea_id: int, candidate: Candidate) -> Plan:
    """The plan after an attempt was evaluated: the idea's state, and what it says of its kind."""
    idea = _edited(plan.ideas[idea_id], in_flight=max(0, plan.ideas[idea_id].in_flight - 1))
    lesson = plan.lessons.get(idea.key, Lesson())
    if not is_correct(candidate):
        lesson = replace(lesson, tries=lesson.tries + 1, broke=lesson.broke + 1)
        return _learnt(_put(plan, _broken(idea)), idea.key, lesson)
    ratio = candidate.fitness / idea.base_speedup if idea.base_speedup else 1.0
    step = max(-MAX_LOSS, math.log(ratio)) if ratio > 0 else 0.0
    lesson = replace(lesson, tries=lesson.tries + 1, gain=lesson.gain + step)
    state = IdeaState.GAINED if ratio > 1 else IdeaState.REFUTED
    over = _edited(idea, state=state, attempts=idea.attempts + 1, gain=ratio)
    return _learnt(_put(plan, over), idea.key, lesson)


def withdrawn(plan: Plan, numbers: Collection[int]) -> Plan:
    """The plan without open ideas that somebody thinks nothing of any more; those being tried stay."""
    gone = {
        number: _edited(plan.ideas[number], state=IdeaState.DROPPED)
        for number in numbers
        if plan.ideas[number].state is IdeaState.OPEN and not plan.ideas[number].in_flight
    }
    return replace(plan, ideas=MappingProxyType({**plan.ideas, **gone}))


def changed(before: Plan, after: Plan) -> list[Idea]:
    """Ideas that are new or not what they were, for the ledger."""
    return [idea for number, idea in after.ideas.items() if before.ideas.get(number) is not idea]


def _broken(idea: Idea) -> Idea:
    attempts = idea.attempts + 1
    is_over = idea.state is IdeaState.OPEN and attempts >= MAX_ATTEMPTS
    return _edited(idea, attempts=attempts, state=IdeaState.DROPPED if is_over else idea.state)


def _bounded(plan: Plan) -> Plan:
    untried = [
        idea
        for idea in plan.ideas.values()
        if idea.state is IdeaState.OPEN and not idea.attempts and not idea.in_flight
    ]
    if len(untried) <= MAX_OPEN:
        return plan
    excess = sorted(untried, key=lambda idea: (-score(plan, idea), -idea.id))[MAX_OPEN:]
    dropped = {idea.id: _edited(idea, state=IdeaState.DROPPED) for idea in excess}
    return replace(plan, ideas=MappingProxyType({**plan.ideas, **dropped}))


def _predicted(finding: Finding) -> float:
    figure = finding.evidence.get("predicted_gain")
    return float(figure) if isinstance(figure, int | float) and figure > 0 else UNKNOWN_GAIN


def _edited(idea: Idea, **changes: object) -> Idea:
    return idea.model_copy(update=changes)


def _put(plan: Plan, idea: Idea) -> Plan:
    return replace(plan, ideas=MappingProxyType({**plan.ideas, idea.id: idea}))


def _learnt(plan: Plan, key: str, lesson: Lesson) -> Plan:
    lessons: Mapping[str, Lesson] = MappingProxyType({**plan.lessons, key: lesson})
    return replace(plan, lessons=lessons)
