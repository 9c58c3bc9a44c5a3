"""What is observed while a call runs: launches, findings, errors. `interpreter.session` is the way in."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton.language as tl

from gpu_runner.evaluation.child.counting import Counts
from gpu_runner.evaluation.child.touching import Touched
from gpu_runner.evaluation.child.traced_memory import Allocations

Program = tuple[int, int, int]
MOST_FINDINGS = 40


class Unevaluable(Exception):
    """The interpreter cannot judge this candidate; `reason` says why. Not the candidate's fault."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OutOfTime(Exception):
    """A sampled program ran into the time limit of `Sampling`; what was counted until then is kept."""


@dataclass(frozen=True)
class Sampling:
    """Interpret a part of each launch only: `programs` instances, and of each long loop a few iterations.

    Counts are scaled to the whole grid and all iterations; values are not meaningful.
    """

    programs: int = 10
    iterations: int = 3
    seconds: float = (
        2.0  # of this thread, per launch; so it does not matter how busy the machine is
    )


@dataclass
class Launch:
    """One launch. `args` describes each argument: tensors by shape, dtype, strides; scalars by value."""

    kernel: str
    line: int | None
    grid: Program
    args: list[dict[str, Any]]
    constexprs: dict[str, Any]
    options: dict[str, Any]  # num_warps, num_stages, ... as given or chosen by autotune
    config: dict[str, Any] | None = None  # the autotune configuration
    is_noop: bool = False
    is_complete: bool = True  # False when a sampled program ran out of time
    computes: set[str] = field(
        default_factory=set
    )  # of "float", "math", "reduce" and "dot", what it does to blocks
    counts: Counts = field(default_factory=Counts)

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def as_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "line": self.line,
            "grid": list(self.grid),
            "args": self.args,
            "constexprs": {name: plain(value) for name, value in self.constexprs.items()},
            "options": {name: plain(value) for name, value in self.options.items()},
            "config": self.config and {name: plain(v) for name, v in self.config.items()},
            "is_noop": self.is_noop,
            "is_complete": self.is_complete,
            "counts": self.counts.as_json(),
        }


def describe(name: str, value: Any) -> dict[str, Any]:
    """A kernel argument as JSON: a tensor by its shape, dtype, strides and bytes; anything else by its value."""
    value = getattr(value, "base", value) if hasattr(value, "data_ptr") else value
    if isinstance(value, torch.Tensor):
        return {
            "name": name,
            "shape": list(value.shape),
            "dtype": str(value.dtype).removeprefix("torch."),
            "strides": list(value.stride()),
            "bytes": value.numel() * value.element_size(),
            "aligned": value.data_ptr() % 16 == 0,
        }
    return {"name": name, "value": plain(value)}


def plain(value: Any) -> Any:
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (int, float, bool, str, type(None))) else str(value)[:200]


class Session:
    """What is seen of the launches between entering and leaving `session(...)`.

    `findings` are dicts with:

    - `kind`: "out_of_bounds", "outside_view" (of a tensor, inside its memory), "race", "unwritten" or "launch"
    - `access`: "load", "store", "atomic"; for a race "write-write", "write-atomic" or "read-write"
    - `kernel`, `line` (in the candidate's file), `tensor` (name of the kernel's argument), `program` [x, y, z]
    - `index` (in elements from the tensor's first, may be negative), `extent` (how many elements there are from there)
    - `other_program` for a race; the same as `program` where two lanes of one store write different values
    - `count` of elements, `launch` (position in `launches`), `certain` (False: harmless if the value is never used)

    One per kernel, line, tensor and kind.
    """

    def __init__(
        self,
        *,
        noop_kernels: frozenset[str] = frozenset(),
        poison: float | None = None,
        sampling: Sampling | None = None,
        reverse: bool = False,
        config: int | Mapping[str, int] = 0,
        tracks: bool = True,
    ) -> None:
        self.noop_kernels = noop_kernels
        self.sampling = sampling
        self.reverse = reverse
        self.config = config
        self.tracks = tracks and sampling is None
        self.allocations = Allocations(poison)
        self.touched = Touched()
        self.launches: list[Launch] = []
        self.errors: list[dict[str, Any]] = []
        self.unevaluable: str | None = None
        self.read_addresses: frozenset[int] = frozenset()
        """Where the memory begins that the last launch read."""
        self._findings: dict[tuple[Any, ...], dict[str, Any]] = {}

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(self._findings.values())

    @property
    def counts(self) -> dict[str, list[Counts]]:
        """Counts of each launch, by kernel name."""
        by_kernel: dict[str, list[Counts]] = {}
        for launch in self.launches:
            by_kernel.setdefault(launch.kernel, []).append(launch.counts)
        return by_kernel

    @property
    def computes(self) -> dict[str, tuple[str, ...]]:
        """What the launches did to blocks, by kernel name."""
        by_kernel: dict[str, set[str]] = {}
        for launch in self.launches:
            by_kernel.setdefault(launch.kernel, set()).update(launch.computes)
        return {name: tuple(sorted(kinds)) for name, kinds in by_kernel.items()}

    def unwritten_share(self, tensor: torch.Tensor) -> float:
        return self.allocations.unwritten_share(tensor)

    def config_of(self, kernel: str) -> int:
        return self.config if isinstance(self.config, int) else self.config.get(kernel, 0)

    def record(self, launch: Launch) -> None:
        self.launches.append(launch)
        self.read_addresses = frozenset()

    def report(self, count: int, **finding: Any) -> None:
        key = tuple(finding.get(name) for name in ("kind", "access", "kernel", "line", "tensor"))
        if key in self._findings:
            self._findings[key]["count"] += count
        elif len(self._findings) < MOST_FINDINGS:
            position = max(0, len(self.launches) - 1)
            self._findings[key] = {**finding, "count": count, "launch": position}


class _Outside(Session):
    """Protects launches that nobody watches, and keeps no record of them."""

    def record(self, launch: Launch) -> None:
        return


_session: Session = _Outside(tracks=False)


@contextlib.contextmanager
def session(
    *,
    noop_kernels: frozenset[str] = frozenset(),
    poison: float | None = None,
    sampling: Sampling | None = None,
    reverse: bool = False,
    config: int | Mapping[str, int] = 0,
) -> Iterator[Session]:
    """Observe the launches inside; sessions nest, the innermost sees them.

    Args:
        noop_kernels: kernels of these names are recorded but not executed.
        poison: fills fresh memory of `torch.empty` and its kin; None leaves it as it comes. Use two different ones in
            two runs: what differs between the outputs was never written.
        sampling: interpret a part of each launch only (full-size arguments over untouched memory).
        reverse: run program instances from last to first; outputs that then differ show an order dependence.
        config: which autotune configuration runs, the first is 0; a mapping says so by kernel name (others run the first).
    """
    global _session
    outer, inner = (
        _session,
        Session(
            noop_kernels=noop_kernels,
            poison=poison,
            sampling=sampling,
            reverse=reverse,
            config=config,
        ),
    )
    _session = inner
    try:
        with inner.allocations if inner.tracks else contextlib.nullcontext():
            yield inner
    finally:
        _session = outer


def active() -> Session:
    """The innermost session; outside any, one whose record nobody reads."""
    return _session
