"""What models are asked besides code: to edit the plan, to put a lesson into words, to order what the library has.

Called in worker threads; each answer carries the requests that it took and what was set aside for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.entries import EntryContent
from gpu_runner.core.search import Idea, IdeaState
from gpu_runner.core.task import TaskSpec
from gpu_runner.experience import Retrieved
from gpu_runner.proposals.models import Role, Team
from gpu_runner.proposals.models.advice import (
    PlanEdit,
    ask_for_order,
    ask_for_plan,
    ask_for_summary,
    read_order,
    read_plan,
    summarised,
)
from gpu_runner.proposals.models.writer import Consulted
from gpu_runner.purse import ForAdvice, Purse


@dataclass(frozen=True)
class Planned:
    """What the planner wants changed."""

    consulted: Consulted[PlanEdit]


@dataclass(frozen=True)
class Summarised:
    """A lesson in a model's words."""

    consulted: Consulted[EntryContent]


@dataclass(frozen=True)
class Ordered:
    """Entries in the order in which a model would show them; as they were where it gave none."""

    hits: tuple[Retrieved, ...]
    consulted: Consulted[tuple[str, ...]]


class Adviser:
    """The advice that the models of one run give; every question needs one that plays the role."""

    def __init__(self, team: Team, task: TaskSpec, purse: Purse) -> None:
        self._team = team
        self._task = task
        self._funds = ForAdvice(purse)

    def has(self, role: Role) -> bool:
        return self._team.adviser(role) is not None

    def plan(self, bases: Sequence[Candidate], ideas: Sequence[Idea]) -> Planned:
        """
        Args:
            bases: candidates that ideas may be for, the best first.
            ideas: all of the plan, the oldest first.
        """
        numbers = {base.id for base in bases}
        still_open = {idea.id for idea in ideas if idea.state is IdeaState.OPEN}
        messages = ask_for_plan(self._task, bases, ideas)
        writer = self._team.adviser(Role.PLANNER)
        if writer is None:
            return Planned(Consulted())
        return Planned(
            writer.consult(
                Role.PLANNER,
                messages,
                lambda text: read_plan(text, numbers, still_open),
                self._funds,
            )
        )

    def summarise(self, content: EntryContent) -> Summarised:
        writer = self._team.adviser(Role.SUMMARISER)
        if writer is None:
            return Summarised(Consulted())
        messages = ask_for_summary(content)
        return Summarised(
            writer.consult(
                Role.SUMMARISER, messages, lambda text: summarised(content, text), self._funds
            )
        )

    def order(self, question: str, hits: Sequence[Retrieved]) -> Ordered:
        """The same hits, ranked again; with fewer than two there is nothing to ask."""
        writer = self._team.adviser(Role.RERANKER)
        if writer is None or len(hits) < 2:
            return Ordered(tuple(hits), Consulted())
        by_id = {hit.entry.id: hit for hit in hits}
        consulted = writer.consult(
            Role.RERANKER,
            ask_for_order(question, [hit.entry for hit in hits]),
            lambda text: read_order(text, tuple(by_id)),
            self._funds,
        )
        order = consulted.advice or tuple(by_id)
        ranked = tuple(replace(by_id[name], rank=n) for n, name in enumerate(order, start=1))
        return Ordered(ranked, consulted)
