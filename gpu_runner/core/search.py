"""What the search knows and shows: its plan, what its ways of making candidates earn, its strategies' texts.

These are the payloads of notes in the ledger. `plan` holds `{"ideas": [Idea, ...]}`, those that a step added or changed; the
latest of an id is the idea as it is. `strategy` holds one `StrategyText` as it is now, the latest of an id counts. `shares`
holds `{"ways": [WayShare, ...]}`, all of them. `restart` holds `{"island", "from": [candidate ids]}`.
"""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Method(StrEnum):
    """How a run spends its budget: the search, or its control arm, which samples and never builds on what it found."""

    EVOLUTION = "evolution"
    SAMPLING = "sampling"


class IdeaState(StrEnum):
    """`open` may be tried, again if its code broke; the others are over: it gained, it worked for nothing, it never worked."""

    OPEN = "open"
    GAINED = "gained"
    REFUTED = "refuted"
    DROPPED = "dropped"


class Idea(BaseModel):
    """A change that may pay, apart from the code that tries it.

    `parent` is the idea that led to the candidate `base`, which makes the ideas of a run a tree.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int = Field(ge=1)
    key: str = Field(max_length=80, description="equal for one kind of change on any candidate")
    text: str = Field(max_length=1000, description="what a writer of code is told")
    origin: str = Field(max_length=40, description="diagnosis, planner or person")
    base: int = Field(ge=1, description="the candidate that it is to be applied to")
    island: int = Field(ge=0)
    parent: int | None = None
    base_speedup: float = Field(ge=0)
    expected_gain: float = Field(gt=0, description="ratio over the base")
    difficulty: float = Field(default=0.4, ge=0, le=1, description="chance that its code breaks")
    state: IdeaState = IdeaState.OPEN
    attempts: int = Field(default=0, ge=0, description="drafts that were evaluated or failed")
    in_flight: int = Field(default=0, ge=0)
    candidates: tuple[int, ...] = ()
    gain: float | None = Field(default=None, description="ratio over the base once it worked")


class StrategyText(BaseModel):
    """What a model is told to look for, with what candidates written under it gained; texts have children that are tried."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int = Field(ge=1)
    island: int = Field(ge=0)
    text: str = Field(max_length=1000)
    parents: tuple[int, ...] = ()
    tries: int = 0
    gain: float = Field(default=0.0, description="sum of the logarithms of gains, losses as 0")
    is_retired: bool = False


class WayShare(BaseModel):
    """What one way of making candidates earned so far, and its chance to be drawn next where it applies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operator: str
    model: str = Field(description="profile of the model; empty for a way that needs none")
    tries: int
    gain: float = Field(description="sum of the logarithms of gains, losses as 0")
    cost: float = Field(description="in units of one evaluation's share of the budget")
    share: float = Field(ge=0, le=1)
