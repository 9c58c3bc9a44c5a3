"""What every source of proposals takes and returns, before the evolution gives it an island and parents."""

from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field


class Draft(BaseModel):
    """A new candidate source and what was done to make it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    origin: str = Field(
        max_length=80,
        description="compiler:default, catalogue:gemm, rewrite:fuse, tune, model:NAME",
    )
    move: str = Field(max_length=300, description="what was changed, one line for people")
    predicted_gain: float | None = Field(default=None, description="expected ratio over the parent")


class Caller(Protocol):
    """The part of an evaluation pool that proposals use: functions of ours run in a fresh sandboxed child."""

    def call(
        self, entry: str, request: dict[str, Any], *, nursery: str = ..., timeout_s: float = ...
    ) -> dict[str, Any]:
        """Run `function(request) -> dict` of "package.module:function"; raises `ChildFailed` if it does not return."""
