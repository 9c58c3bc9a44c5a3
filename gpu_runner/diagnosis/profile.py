"""The facts of a profile that performance rules read: modelled parts of a call, compiled kernels. All of it claims."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.targets import TARGETS


class Part(BaseModel):
    """The fields of `evaluation.child.roofline.Part` that are read here; times in microseconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    kind: str
    us: float
    launch_us: float = 0.0
    dram_us: float = 0.0
    l2_us: float = 0.0
    dot_us: float = 0.0
    alu_us: float = 0.0
    bound: str = ""
    dram_bytes: float = 0.0
    minimum_bytes: float = 0.0
    blocks_per_sm: int = 0
    occupancy: float = 0.0
    limiter: str = ""
    waves: float = 0.0
    tail: float = 1.0
    parallelism: float = 1.0
    bytes_per_wanted_byte: float = 1.0
    line: int | None = None
    flops_a_dot: float = 0.0
    dot_efficiency: float = 1.0
    spread_tensor: str = ""
    spread_line: int | None = None
    reread_tensor: str = ""
    reread_line: int | None = None
    reread_times: float = 1.0

    @property
    def is_own(self) -> bool:
        return self.kind == "kernel"

    @property
    def only_passes(self) -> bool:
        """It reads and writes memory, and computes little meanwhile."""
        return self.dram_us >= max(self.dot_us, self.alu_us)


_TIMES = tuple(name for name in Part.model_fields if name == "us" or name.endswith("_us"))


class Kernel(BaseModel):
    """The facts of a compiled kernel that are read here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kernel: str
    registers: int = 0
    spill_bytes: int = 0
    spill_bytes_in_loops: int = 0
    shared_bytes: int = 0
    num_warps: int = 4
    is_chosen: bool = True
    uses_tensor_cores: bool = False


def parts_of(profile: dict[str, Any], player: str) -> list[Part]:
    """The parts of one player's modelled call; empty where there are none or they are not readable."""
    modelled = profile.get(player)
    raw = modelled.get("parts") if isinstance(modelled, dict) else modelled
    try:
        return [Part.model_validate(one) for one in raw] if isinstance(raw, list) else []
    except ValidationError:
        return []


def filling(parts: Sequence[Part], total_us: float) -> list[Part]:
    """The same parts, all their times stretched or shrunk alike, so that together they take `total_us`."""
    modelled_us = sum(part.us for part in parts)
    if modelled_us <= 0:
        return list(parts)
    factor = total_us / modelled_us
    return [
        part.model_copy(update={name: getattr(part, name) * factor for name in _TIMES})
        for part in parts
    ]


def kernels_of(profile: dict[str, Any]) -> dict[str, Kernel]:
    raw = profile.get("kernels")
    try:
        read = [Kernel.model_validate(one) for one in raw] if isinstance(raw, list) else []
    except ValidationError:
        return {}
    return {kernel.kernel: kernel for kernel in read if kernel.is_chosen}


def ceiling_of(evaluation: Evaluation) -> float | None:
    """Bytes a microsecond that a large copy reaches on the target; None where no target is modelled."""
    target = TARGETS.get(str(evaluation.environment.get("target")))
    return target.bandwidth * target.copy_fraction / 1e6 if target else None


def least_bytes_of(profile: dict[str, Any]) -> float | None:
    """Bytes that any answer to the task moves."""
    value = profile.get("least_bytes")
    return float(value) if isinstance(value, int | float) and value > 0 else None
