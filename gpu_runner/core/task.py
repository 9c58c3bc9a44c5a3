"""A task as the runner sees it, and the run that works on it: what a submission fixes and a budget limits."""

import hashlib
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gpu_runner.core.search import Method
from gpu_runner.core.source import without_mark
from gpu_runner.core.verdicts import Precision, Track


class TaskSpec(BaseModel):
    """A PyTorch reference in the KernelBench form with every option that a verdict or a time depends on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(max_length=120)
    source: str = Field(description="the reference module's source, at most 64 KiB")
    track: Track = Track.OWN_KERNELS
    precision: Precision = Precision.REFERENCE
    target: str = Field(default="h200", description="the GPU that modelled speed is for")
    baseline_source: str | None = Field(
        default=None, description="the user's own ModelNew: a named baseline and first candidate"
    )

    @field_validator("source", "baseline_source")
    @classmethod
    def _without_mark(cls, text: str | None) -> str | None:
        return text and without_mark(text)

    @property
    def key(self) -> str:
        """Equal for tasks whose results are interchangeable on one device."""
        parts = (self.source, self.track, self.precision, self.target, self.baseline_source or "")
        return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:24]


class Budget(BaseModel):
    """Hard limits of a run; None means no limit, but at least one of evaluations and seconds is set.

    An evaluation is a candidate through the gates, each tuning configuration included, baselines and duplicates not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    evaluations: int | None = Field(default=24, ge=1)
    iterations: int | None = Field(default=None, ge=1, description="requests of the search")
    wall_s: float | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, ge=1)
    money_usd: float | None = Field(default=None, gt=0)
    gpu_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.evaluations is None and self.wall_s is None:
            raise ValueError("a budget limits evaluations or wall_s; give at least one of them")
        return self


class RunSpec(BaseModel):
    """Everything a run needs to be started, resumed or replayed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: TaskSpec
    seed: int = Field(default=0, ge=0)
    islands: int = Field(default=3, ge=1, le=16)
    budget: Budget = Budget()
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    model: str | None = Field(default=None, description="a profile of models.toml; None: no model")
    more_models: tuple[str, ...] = Field(
        default=(), max_length=7, description="further profiles; islands take turns with them"
    )
    method: Method = Field(default=Method.EVOLUTION, description="or the control arm")
    use_initialisers: bool = True
    use_diagnosis: bool = True
    use_library: bool = True

    @model_validator(mode="after")
    def _first_model_first(self) -> Self:
        if self.more_models and self.model is None:
            raise ValueError("more_models come after model; name that one too")
        return self

    @property
    def models(self) -> tuple[str, ...]:
        """All profiles that take part, each once, in the order in which islands take turns with them."""
        return tuple(dict.fromkeys((self.model, *self.more_models))) if self.model else ()


def best_of_10(spec: RunSpec) -> RunSpec:
    """The protocol that results of models are reported by: ten answers from the reference alone, the best one counts.

    An answer that cannot be used, or repeats another, is one of the ten.
    """
    return spec.model_copy(
        update={
            "method": Method.SAMPLING,
            "islands": 1,
            "more_models": (),
            "budget": spec.budget.model_copy(update={"evaluations": 10, "iterations": 10}),
            "use_initialisers": False,
            "use_diagnosis": False,
            "use_library": False,
        }
    )
