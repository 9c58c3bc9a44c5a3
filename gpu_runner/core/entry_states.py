"""The life of a library entry as one table: who may decide what, in which states, and where it leads.

Rights that need more than the decision (who sees the entry, whose nomination it is, the version that was read) are the
caller's to check; here is what holds for every entry. `next_state` is the only way to a new state.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpu_runner.core.entries import EntryState


class Actor(StrEnum):
    """In what capacity somebody decides. An expert who nominated the entry is its author in this respect."""

    SYSTEM = "system"
    AUTHOR = "author"
    EXPERT = "expert"


class Decision(StrEnum):
    """ADMIT and DISPROVE are what running an entry that comes with the project decides, in nobody's name."""

    SUBMIT = "submit"
    ADMIT = "admit"
    DISPROVE = "disprove"
    REVISE = "revise"
    VERIFY = "verify"
    FAIL_VERIFICATION = "fail_verification"
    APPROVE = "approve"
    EDIT_AND_APPROVE = "edit_and_approve"
    REQUEST_CHANGES = "request_changes"
    REJECT = "reject"
    RETIRE = "retire"
    RESTORE = "restore"
    MERGE = "merge"


class NotAllowedNow(ValueError):
    """The decision is not open to this actor in this state; the message says what is."""


@dataclass(frozen=True)
class Transition:
    """Args:
    to: None leaves the state as it is.
    needs_reason: the decision is refused without words that the nominator will read.
    """

    who: frozenset[Actor]
    sources: frozenset[EntryState]
    to: EntryState | None
    needs_reason: bool = False


_D, _N, _V, _C, _A, _J, _T = (
    EntryState.DRAFT,
    EntryState.NOMINATED,
    EntryState.VERIFIED,
    EntryState.CHECKED,
    EntryState.APPROVED,
    EntryState.REJECTED,
    EntryState.RETIRED,
)
_SYSTEM, _AUTHOR, _EXPERT = (frozenset({actor}) for actor in Actor)
OPEN: Final = frozenset({_N, _V})
"""What waits for a decision."""
IN_USE: Final = frozenset({_C, _A})
"""What runs are shown; a checked entry waits besides for a person to confirm it, which is to approve it."""

TRANSITIONS: Final[dict[Decision, Transition]] = {
    Decision.SUBMIT: Transition(_AUTHOR | _EXPERT | _SYSTEM, frozenset({_D}), _N),
    Decision.ADMIT: Transition(_SYSTEM, frozenset({_D}), _C),
    Decision.DISPROVE: Transition(_SYSTEM, frozenset({_D}), _J, needs_reason=True),
    # A new version was not executed yet: what was verified has to be verified again. A version in use stays so beside the
    # newer one.
    Decision.REVISE: Transition(_AUTHOR | _EXPERT, frozenset({_D, _N, _V}) | IN_USE, None),
    Decision.VERIFY: Transition(_SYSTEM, OPEN, _V),
    Decision.FAIL_VERIFICATION: Transition(_SYSTEM, OPEN, _D, needs_reason=True),
    Decision.APPROVE: Transition(_EXPERT, OPEN | IN_USE, _A),
    Decision.EDIT_AND_APPROVE: Transition(_EXPERT, OPEN | IN_USE, _A),
    Decision.REQUEST_CHANGES: Transition(_EXPERT, OPEN | {_C}, _D, needs_reason=True),
    Decision.REJECT: Transition(_EXPERT, OPEN | {_D, _C}, _J, needs_reason=True),
    Decision.RETIRE: Transition(_EXPERT, IN_USE, _T, needs_reason=True),
    Decision.RESTORE: Transition(_EXPERT, frozenset({_J, _T}), _N, needs_reason=True),
    Decision.MERGE: Transition(_EXPERT, OPEN | IN_USE | {_D}, _T, needs_reason=True),
}


def next_state(
    state: EntryState, decision: Decision, actor: Actor, *, reason: str = ""
) -> EntryState:
    """Where a decision leads from a state.

    Raises:
        NotAllowedNow: the actor may not, the state does not admit it, or a reason is missing.
    """
    transition = TRANSITIONS[decision]
    what = decision.replace("_", " ")
    if actor not in transition.who:
        who = " or ".join(sorted(transition.who))
        raise NotAllowedNow(f"{what} is for {who}, not for {actor}")
    if state not in transition.sources:
        possible = ", ".join(decisions_open(state, actor)) or "nothing"
        raise NotAllowedNow(f"the entry is {state}: {what} is not possible, but {possible} is")
    if transition.needs_reason and not reason.strip():
        raise NotAllowedNow(f"{what} needs a reason; whoever nominated the entry will read it")
    if decision is Decision.REVISE:
        return _N if state is _V else state
    return transition.to or state


def decisions_open(state: EntryState, actor: Actor) -> tuple[Decision, ...]:
    """What an actor may decide about an entry in this state, in the order of the table."""
    return tuple(
        decision
        for decision, transition in TRANSITIONS.items()
        if actor in transition.who and state in transition.sources
    )
