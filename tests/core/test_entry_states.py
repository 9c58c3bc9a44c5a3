"""The life of an entry: every decision in every state by everybody either leads where the table says or is refused."""

from itertools import product

import pytest

from gpu_runner.core.entries import EntryState
from gpu_runner.core.entry_states import (
    TRANSITIONS,
    Actor,
    Decision,
    NotAllowedNow,
    decisions_open,
    next_state,
)

S, D = EntryState, Decision


@pytest.mark.parametrize(
    ("state", "decision", "actor", "leads_to"),
    [
        (S.DRAFT, D.SUBMIT, Actor.AUTHOR, S.NOMINATED),
        (S.NOMINATED, D.VERIFY, Actor.SYSTEM, S.VERIFIED),
        (S.NOMINATED, D.FAIL_VERIFICATION, Actor.SYSTEM, S.DRAFT),
        (S.VERIFIED, D.APPROVE, Actor.EXPERT, S.APPROVED),
        (S.NOMINATED, D.APPROVE, Actor.EXPERT, S.APPROVED),
        (S.VERIFIED, D.REVISE, Actor.AUTHOR, S.NOMINATED),
        (S.APPROVED, D.REVISE, Actor.EXPERT, S.APPROVED),
        (S.VERIFIED, D.REQUEST_CHANGES, Actor.EXPERT, S.DRAFT),
        (S.APPROVED, D.RETIRE, Actor.EXPERT, S.RETIRED),
        (S.RETIRED, D.RESTORE, Actor.EXPERT, S.NOMINATED),
        (S.APPROVED, D.MERGE, Actor.EXPERT, S.RETIRED),
        (S.DRAFT, D.ADMIT, Actor.SYSTEM, S.CHECKED),
        (S.DRAFT, D.DISPROVE, Actor.SYSTEM, S.REJECTED),
        (S.CHECKED, D.APPROVE, Actor.EXPERT, S.APPROVED),
        (S.CHECKED, D.REVISE, Actor.EXPERT, S.CHECKED),
        (S.CHECKED, D.REJECT, Actor.EXPERT, S.REJECTED),
        (S.CHECKED, D.RETIRE, Actor.EXPERT, S.RETIRED),
    ],
)
def test_a_decision_leads_to(
    state: EntryState, decision: Decision, actor: Actor, leads_to: EntryState
) -> None:
    assert next_state(state, decision, actor, reason="because") is leads_to


def test_what_is_not_in_the_table_is_refused() -> None:
    for state, decision, actor in product(S, D, Actor):
        transition = TRANSITIONS[decision]
        is_open = actor in transition.who and state in transition.sources
        assert (decision in decisions_open(state, actor)) is is_open
        if not is_open:
            with pytest.raises(NotAllowedNow):
                next_state(state, decision, actor, reason="because")


def test_nobody_but_an_expert_decides_and_only_execution_verifies() -> None:
    for state in S:
        assert set(decisions_open(state, Actor.AUTHOR)) <= {D.SUBMIT, D.REVISE}
        assert not {D.VERIFY, D.FAIL_VERIFICATION} & set(decisions_open(state, Actor.EXPERT))
        by_system = decisions_open(state, Actor.SYSTEM)
        reached = {next_state(state, d, Actor.SYSTEM, reason="because") for d in by_system}
        assert S.APPROVED not in reached


@pytest.mark.parametrize("decision", [d for d in D if TRANSITIONS[d].needs_reason])
def test_a_decision_against_an_entry_needs_a_reason(decision: Decision) -> None:
    transition = TRANSITIONS[decision]
    state, actor = next(iter(transition.sources)), next(iter(transition.who))
    with pytest.raises(NotAllowedNow, match="reason"):
        next_state(state, decision, actor, reason="  ")


def test_a_refusal_says_what_is_possible() -> None:
    with pytest.raises(NotAllowedNow, match="the entry is retired: approve is not possible"):
        next_state(S.RETIRED, D.APPROVE, Actor.EXPERT)
