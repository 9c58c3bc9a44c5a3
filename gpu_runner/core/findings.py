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


class Cause(StrEnum):
    """Why a candidate fails, as far as a rule can tell: `evidence["cause"]` of a gate finding."""

    # it does not compile
    SHAPE_MISMATCH = "shape_mismatch"
    NOT_A_POWER_OF_TWO = "not_a_power_of_two"
    WRONG_TYPE = "wrong_type"
    UNKNOWN_NAME = "unknown_name"
    NOT_CONSTEXPR = "not_constexpr"
    UNSUPPORTED_PYTHON = "unsupported_python"
    TILE_TOO_LARGE = "tile_too_large"
    TILE_TOO_SMALL = "tile_too_small"
    SHARED_MEMORY = "shared_memory"
    REGISTERS = "registers"
    THREADS = "threads"
    LAUNCH_ARGUMENTS = "launch_arguments"
    # its numbers are wrong
    MISSING_MASK = "missing_mask"
    WRONG_MASK = "wrong_mask"
    WRONG_FILL = "wrong_fill"
    UNMASKED_REDUCTION = "unmasked_reduction"
    SKIPPED_ELEMENTS = "skipped_elements"
    LOW_PRECISION = "low_precision"
    TRANSPOSED_STRIDES = "transposed_strides"
    WRONG_AXIS = "wrong_axis"
    WRONG_TILE = "wrong_tile"
    SCALED = "scaled"
    LARGE_MAGNITUDES = "large_magnitudes"
    UNDEFINED_VALUE = "undefined_value"
    # its memory is
    RACE = "race"
    SHORT_GRID = "short_grid"
    NOT_CLEARED = "not_cleared"
    READ_BEFORE_WRITTEN = "read_before_written"


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

    @property
    def predicted_gain(self) -> float | None:
        """Of a performance finding: time now / time without the named loss."""
        gain = self.evidence.get("predicted_gain")
        is_number = isinstance(gain, int | float) and not isinstance(gain, bool)
        return float(gain) if is_number and gain > 0 else None  # type: ignore[arg-type, operator]
