"""In what capacity somebody decides on an entry, and where the table of decisions leads; refusals in words for people."""

from evolution_app import permissions
from evolution_app.models import ExperienceEntry, User
from evolution_app.services.errors import NotAllowed, Refused
from gpu_runner.core.entries import EntryState
from gpu_runner.core.entry_states import Actor, Decision, NotAllowedNow, next_state


def actor_of(entry: ExperienceEntry, by: User) -> Actor:
    """In what capacity a person decides on an entry; raises NotAllowed where it may not at all.

    Whoever nominated an entry is its author. Only the local owner, who is alone, reviews such an entry all the same.
    """
    is_author = entry.nominated_by_id == by.pk and not by.is_local_owner
    if permissions.may_review(by) and not is_author:
        return Actor.EXPERT
    if permissions.may_edit_entry(by, entry):
        return Actor.AUTHOR
    raise NotAllowed("only experts review entries")


def state_after(
    entry: ExperienceEntry, decision: Decision, actor: Actor, reason: str = ""
) -> EntryState:
    """Where a decision leads; Refused, in the table's words, where the state does not admit it."""
    try:
        return next_state(EntryState(entry.state), decision, actor, reason=reason)
    except NotAllowedNow as error:
        if "needs a reason" in str(error):
            raise Refused("give a reason; whoever nominated the entry will read it") from error
        if entry.state in (EntryState.REJECTED, EntryState.RETIRED):
            raise Refused(f"the entry is {entry.state}; restore it first") from error
        raise Refused(str(error)) from error
