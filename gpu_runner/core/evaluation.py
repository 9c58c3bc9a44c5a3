"""The result of one evaluation: the object that `evaluate --json` prints, that the journal and the database keep."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpu_runner.core.findings import Finding
from gpu_runner.core.verdicts import (
    KINDS,
    Fidelity,
    Precision,
    Stage,
    State,
    Track,
    Verdict,
    VerifiedAt,
)

EVALUATOR_VERSION = 1
"""Raised whenever a verdict or a time could come out differently; cached results are kept per version."""


class Timing(BaseModel):
    """How long one call of one player takes. Modelled: `n` 0, `iqr_us` and `call_us` may be None."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device_us: float = Field(gt=0, allow_inf_nan=False)
    call_us: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    iqr_us: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    n: int = Field(ge=0)
    samples_us: tuple[tuple[float, ...], ...] | None = Field(
        default=None, description="device times, one tuple per block; kept for re-analysis"
    )
    peak_bytes: int | None = Field(
        default=None,
        ge=0,
        description="device memory that one call takes at most, its outputs included; claimed by the player",
    )


class Ratio(BaseModel):
    """Reference time / candidate time, above 1 is faster, with a 95 % interval when measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ratio: float = Field(gt=0, allow_inf_nan=False)
    low: float | None = None
    high: float | None = None


class Baselines(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    eager: Timing | None = None
    torch_compile: Timing | None = None
    user: Timing | None = None


class Speedup(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    eager: Ratio | None = None
    torch_compile: Ratio | None = None
    user: Ratio | None = None


class StageTime(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Stage
    seconds: float = Field(ge=0)


class Evaluation(BaseModel):
    """What was found out about one candidate. Findings are ordered, the leading one first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict | None
    kind: str | None = None
    state: State = State.FINISHED
    fidelity: Fidelity | None = None
    verified_at: VerifiedAt | None = None
    device: str
    track: Track
    precision: Precision
    findings: tuple[Finding, ...] = ()
    candidate: Timing | None = None
    baselines: Baselines = Baselines()
    speedup: Speedup = Speedup()
    stages: tuple[StageTime, ...] = ()
    environment: dict[str, Any] = {}
    profile: dict[str, Any] = Field(
        default={},
        description="per kernel: counts, registers, spills, shared memory, modelled parts; `timing_s` by step, `held_s` alone",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.verdict is None) != (self.state is not State.FINISHED):
            raise ValueError(f"verdict {self.verdict} does not go with state {self.state}")
        if self.verdict is None or self.verdict is Verdict.CORRECT:
            if self.kind is not None:
                raise ValueError(f"kind {self.kind} without a failing verdict")
        elif self.kind not in KINDS[self.verdict]:
            raise ValueError(f"{self.kind} is no kind of {self.verdict}")
        if self.candidate is not None and self.verdict is not Verdict.CORRECT:
            raise ValueError(f"a time for a candidate that is {self.verdict}")
        return self

    @property
    def is_correct(self) -> bool:
        return self.verdict is Verdict.CORRECT

    @property
    def fitness(self) -> float:
        """The speedup over eager that selection compares; 0 unless correct and timed."""
        return self.speedup.eager.ratio if self.is_correct and self.speedup.eager else 0.0

    @property
    def lead(self) -> Finding | None:
        return self.findings[0] if self.findings else None
