"""A candidate: one kernel source proposed for a task, with where it came from."""

from pydantic import BaseModel, ConfigDict, Field

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.verdicts import State

RUN_ENDED = "the run ended first"
"""How the reason begins for which a candidate is abandoned whose turn never came: nobody failed."""


class Proposal(BaseModel):
    """A source put forward for evaluation, before it has an id."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    island: int = Field(ge=0)
    parents: tuple[int, ...] = Field(default=(), max_length=2)
    generation: int = Field(default=0, ge=0)
    origin: str = Field(
        max_length=80,
        description="who made it: compiler:default, catalogue:gemm, rewrite:fuse, tune, model:NAME, person",
    )
    move: str = Field(
        default="", max_length=300, description="what was changed, one line for people"
    )
    plan: str | None = Field(default=None, max_length=80)
    predicted_gain: float | None = Field(default=None, description="ratio over the parent")
    entries: tuple[str, ...] = Field(default=(), description="library entries that were shown")
    arm: str = Field(
        default="", max_length=40, description="with or without retrieval, for the library's worth"
    )


class Candidate(Proposal):
    """A proposal with an id (from 1, in the order of the run) and, once finished, its evaluation."""

    id: int = Field(ge=1)
    state: State = State.QUEUED
    evaluation: Evaluation | None = None

    @property
    def fitness(self) -> float:
        return self.evaluation.fitness if self.evaluation else 0.0
