"""What every source of proposals returns, before the evolution gives it an island and parents."""

from pydantic import BaseModel, ConfigDict, Field


class Draft(BaseModel):
    """A new candidate source and what was done to make it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    origin: str = Field(max_length=80, description="compiler:default, catalogue:gemm, rewrite:fuse, tune, model:NAME")
    move: str = Field(max_length=300, description="what was changed, one line for people")
    predicted_gain: float | None = Field(default=None, description="expected ratio over the parent")
