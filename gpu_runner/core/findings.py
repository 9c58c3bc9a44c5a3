"""A finding: one typed statement of a diagnosis, with its evidence and where that came from."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gpu_runner.core.verdicts import Stage

Evidence = dict[str, float | int | str | bool | None | list[float] | list[int] | list[str]]


class Severity(StrEnum):
    """`gate` decided the verdict; `warning` should be acted on; `hint` may gain speed; `note` explains."""

    GATE = "gate"
    WARNING = "warning"
    HINT = "hint"
    NOTE = "note"


class Source(StrEnum):
    """Who vouches for a finding: see section 2 of the design. `player` counters are claims."""

    JUDGE = "judge"
    HOOK = "hook"
    PLAYER = "player"
    COMPILER = "compiler"
    INTERPRETER = "interpreter"
    MODEL = "model"
    RUNNER = "runner"


class Location(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel: str | None = Field(default=None, max_length=200)
    line: int | None = Field(default=None, ge=1, description="in the candidate's source, from 1")
    tensor: str | None = Field(default=None, max_length=200)
    region: str | None = Field(default=None, max_length=200)


class Finding(BaseModel):
    """One statement of a diagnosis. Titles are one line that a non-expert can read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Stage
    kind: str = Field(max_length=60)
    severity: Severity
    source: Source
    title: str = Field(max_length=300)
    evidence: Evidence = {}
    location: Location = Location()
    suggestion: str = Field(default="", max_length=1000)
    entries: Annotated[tuple[str, ...], Field(description="ids of library entries")] = ()
