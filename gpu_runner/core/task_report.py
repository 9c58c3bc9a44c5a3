"""What is known of a task after its reference ran once: shapes, dtypes, the probe, the traced graph, warnings."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from gpu_runner.core.findings import Finding

UNTESTABLE: Final = "untestable"


class TensorSpec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[int, ...]
    dtype: str = Field(description="as torch prints it without 'torch.': float32, bfloat16, int64")
    stride: tuple[int, ...] | None = None


class TaskReport(BaseModel):
    """Filled by `pool.inspect`; raises `InvalidTask` instead where the reference cannot be used at all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: tuple[TensorSpec | None, ...] = Field(
        description="full size; None for what is no tensor"
    )
    outputs: tuple[TensorSpec, ...]
    probe: dict[str, int] | None = Field(
        description="module-level integers of the probe task; None: probe is full size"
    )
    probe_source: str | None = None
    graph: dict[str, Any] = Field(default={}, description="see core.graph")
    warnings: tuple[Finding, ...] = ()

    @property
    def untestable(self) -> Finding | None:
        """Why no candidate can be judged: the reference answers the same inputs differently each time."""
        return next((w for w in self.warnings if w.kind == UNTESTABLE), None)
