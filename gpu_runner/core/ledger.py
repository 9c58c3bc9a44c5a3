"""The contract of a run's memory, kept by `journal` (files) and by `store` (the database) alike."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from gpu_runner.core.candidate import Candidate, Proposal
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import Budget, RunSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import RunState, Stage


class LeaseLost(RuntimeError):
    """Another runner has taken the run over; stop working on it and write nothing more."""


class ModelCall(BaseModel):
    """One request to a model and its answer; keys never appear here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    role: str
    island: int | None = None
    candidate_id: int | None = None
    prompt: str
    reply: str
    outcome: str = Field(
        max_length=80, description="ok, truncated, refused, malformed, unreachable"
    )
    tokens_in: int | None = None
    tokens_out: int | None = None
    money_usd: float | None = None
    seconds: float = Field(ge=0)


class Ledger(Protocol):
    """Remembers one run. Every write is durable when the method returns and visible to watchers in the same order.

    All writing methods raise `LeaseLost` once the run belongs to somebody else.
    """

    @property
    def spec(self) -> RunSpec: ...

    def budget(self) -> Budget:
        """The run's limits as they are now; people may have raised those that it started with."""

    def together(self) -> AbstractContextManager[None]:
        """What is written inside is durable as a whole or not at all; an inner use adds nothing."""

    def report(self, report: TaskReport) -> None:
        """What inspecting the task found out."""

    def candidates(self) -> list[Candidate]:
        """All candidates in the order of their ids, whatever their state."""

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """The payloads of one kind of note in the order in which they were written; for resuming."""

    def add(self, proposal: Proposal) -> Candidate:
        """Give a proposal its id and queue it."""

    def stage(self, candidate_id: int, stage: Stage) -> None:
        """The candidate is being evaluated and has reached this gate."""

    def requeue(self, candidate_id: int, reason: str) -> None:
        """We failed, not the candidate: back to the queue."""

    def finish(self, candidate_id: int, evaluation: Evaluation) -> None:
        """The evaluation is over; its `state` and everything else is the candidate's."""

    def abandon(self, candidate_id: int, reason: str) -> None:
        """We failed three times on this candidate; never its fault."""

    def note(self, kind: str, payload: dict[str, Any]) -> None:
        """Anything else that happened: migration, best, island, log, answer (the engine's order of answers), and what
        the search knows: plan, strategy, shares, restart (see `core.search`)."""

    def model_call(self, call: ModelCall) -> None: ...

    def has_injected(self) -> bool:
        """Whether `injected` may return something; cheap, since it is asked after every step."""

    def injected(self) -> list[Proposal]:
        """Proposals by people since the last call; each is returned once."""

    def hints(self, island: int) -> list[str]:
        """What people want the next proposals of an island to consider, the newest first."""

    def wanted(self) -> RunState:
        """What people want of the run: RUNNING, PAUSING, STOPPING (after the current) or CANCELLED."""

    def set_state(self, state: RunState, reason: str = "") -> None: ...

    def spend(self, **amounts: float) -> None:
        """Add to what the run has spent: evaluations, tokens, money_usd, gpu_s, wall_s."""

    def spent(self) -> dict[str, float]: ...
