"""What a kernel and a torch operation did: bytes, operations and accesses, as counts that the roofline reads.

All counts are floats, because a sample of programs is scaled by the grid (`Counts.scaled`).
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

SECTOR_BYTES = 32
"""The unit in which DRAM and L2 serve a request."""


@dataclass
class TensorTraffic:
    """Bytes that one kernel argument's memory supplied and received; `wanted` and `sectors` as in `Counts`.

    `memory` names the first argument whose memory meets this one's, mostly itself; `memory_bytes` says how many different
    bytes all of those have, in whole sectors. `footprint` is the largest stretch of that memory, in bytes, that one program
    touches. `lines` has for each line of the source that accesses it the bytes loaded, wanted and moved in sectors by the
    programs whose sectors were counted.
    """

    loaded: float = 0.0
    stored: float = 0.0
    wanted: float = 0.0
    sectors: float = 0.0
    memory: str = ""
    memory_bytes: int = 0
    footprint: int = 0
    lines: dict[str, list[float]] = field(default_factory=dict)

    @property
    def spread(self) -> float:
        return _spread(self.sectors, self.wanted)

    def note_line(self, line: int | None, loaded: float, wanted: float, sectors: float) -> None:
        known = self.lines.setdefault(str(line or 0), [0.0, 0.0, 0.0])
        for i, value in enumerate((loaded, wanted, sectors)):
            known[i] += value


@dataclass
class Counts:
    """Totals over the programs of one launch.

    `loads` and `dot_calls` count executions of `tl.load` and `tl.dot` by a program, however large the block. `flops`
    counts an addition, a multiplication or a comparison of floats as one, a fused multiply-add as two; `special` counts
    exp, log, sin, sqrt, division and the like; `dots` holds the operations of `tl.dot` by numeric path, "tf32", "ieee"
    (float32 on ordinary units), "bf16", "fp16", "fp8", "int8", "fp64". `dot_orders` splits them by how the operands lie in
    memory: "tf32 kn" has its left operand contiguous along K and its right one along N; "r" is from registers.
    `wanted_bytes` and `sector_bytes` are of the accesses whose sectors were counted; their quotient is the coalescing.
    """

    programs: float = 0.0
    loads: float = 0.0
    dot_calls: float = 0.0
    load_bytes: float = 0.0
    store_bytes: float = 0.0
    atomic_bytes: float = 0.0
    atomics: float = 0.0
    flops: float = 0.0
    special: float = 0.0
    integer_ops: float = 0.0
    dots: dict[str, float] = field(default_factory=dict)
    dot_orders: dict[str, float] = field(default_factory=dict)
    wanted_bytes: float = 0.0
    sector_bytes: float = 0.0
    tensors: dict[str, TensorTraffic] = field(default_factory=dict)

    @property
    def dot_flops(self) -> float:
        return sum(self.dots.values())

    @property
    def bytes_per_wanted_byte(self) -> float:
        """Bytes moved in whole sectors for each byte asked for: 1 when coalesced, up to 8 for float32."""
        return _spread(self.sector_bytes, self.wanted_bytes)

    def scaled(self, factor: float) -> "Counts":
        """The counts of `factor` times as many programs."""
        tensors = {
            name: replace(t, loaded=t.loaded * factor, stored=t.stored * factor)
            for name, t in self.tensors.items()
        }
        return Counts(
            programs=self.programs * factor,
            loads=self.loads * factor,
            dot_calls=self.dot_calls * factor,
            load_bytes=self.load_bytes * factor,
            store_bytes=self.store_bytes * factor,
            atomic_bytes=self.atomic_bytes * factor,
            atomics=self.atomics * factor,
            flops=self.flops * factor,
            special=self.special * factor,
            integer_ops=self.integer_ops * factor,
            dots={path: flops * factor for path, flops in self.dots.items()},
            dot_orders={order: flops * factor for order, flops in self.dot_orders.items()},
            wanted_bytes=self.wanted_bytes,
            sector_bytes=self.sector_bytes,
            tensors=tensors,
        )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "bytes_per_wanted_byte": self.bytes_per_wanted_byte}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Counts":
        """Read what `as_json` wrote; a KeyError, TypeError or ValueError says that it is not that."""
        names = set(cls.__dataclass_fields__) - {"dots", "dot_orders", "tensors"}
        return cls(
            **{name: float(raw[name]) for name in names},
            dots={str(path): float(flops) for path, flops in raw["dots"].items()},
            dot_orders={str(order): float(flops) for order, flops in raw["dot_orders"].items()},
            tensors={
                str(name): TensorTraffic(
                    loaded=float(t["loaded"]),
                    stored=float(t["stored"]),
                    wanted=float(t["wanted"]),
                    sectors=float(t["sectors"]),
                    memory=str(t["memory"]),
                    memory_bytes=int(t["memory_bytes"]),
                    footprint=int(t["footprint"]),
                    lines={
                        str(line): [float(v) for v in values]
                        for line, values in t.get("lines", {}).items()
                    },
                )
                for name, t in raw["tensors"].items()
            },
        )


def _spread(sector_bytes: float, wanted_bytes: float) -> float:
    """Below 1 where a block asks for the same element more than once."""
    return max(sector_bytes / wanted_bytes, 0.01) if wanted_bytes else 1.0


def sectors(addresses: np.ndarray) -> int:
    """How many different sectors the addresses (uint64) fall into."""
    return int(np.unique(addresses >> np.uint64(5)).size)


@dataclass
class Operation:
    """One torch operation of a call, as the roofline sees it. Costs nothing when it is a view.

    `kind` is "matmul", "convolution", "attention", "reduction", "pointwise", "copy", "allocation", "view" or "random".
    """

    op: str
    kind: str
    read_bytes: float
    written_bytes: float
    flops: float
    dtype: str
    shapes: list[list[int]]
    out_shapes: list[list[int]]
    special: float = 0.0
    line: int | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Operation":
        """Read what `as_json` wrote; a KeyError, TypeError or ValueError says that it is not that."""
        return cls(
            op=str(raw["op"]),
            kind=str(raw["kind"]),
            read_bytes=float(raw["read_bytes"]),
            written_bytes=float(raw["written_bytes"]),
            flops=float(raw["flops"]),
            dtype=str(raw["dtype"]),
            shapes=[[int(n) for n in shape] for shape in raw["shapes"]],
            out_shapes=[[int(n) for n in shape] for shape in raw["out_shapes"]],
            special=float(raw["special"]),
            line=None if raw["line"] is None else int(raw["line"]),
        )
