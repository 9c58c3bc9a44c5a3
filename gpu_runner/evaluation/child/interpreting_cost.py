"""How long a task's correctness trials take on the interpreter, estimated from the reference's operations at that size."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

ELEMENTS_PER_S: Final = 1.5e6
"""Of a kernel with blocks of 1,024 elements, every access checked."""
FLOPS_PER_S: Final = 2.0e8
"""Of `tl.dot` with tiles of 64, its loads checked."""
CALLS: Final = 6
LIMIT_S: Final = 60.0
"""For the full size, where nothing makes it smaller."""
PROBE_LIMIT_S: Final = 20.0
"""For a probe; where it takes longer, what is between inputs and outputs is far larger than they are."""
_WITH_DOTS: Final = ("matmul", "convolution", "attention")


def trials_s(operations: Sequence[Mapping[str, Any]]) -> float:
    """Seconds for all trials of a candidate that does what these operations (`counting.Operation` as JSON) do."""
    flops = sum(float(op["flops"]) for op in operations if op["kind"] in _WITH_DOTS)
    elements = sum(float(op["written_bytes"]) for op in operations if op["kind"] != "view") / 4
    return CALLS * (elements / ELEMENTS_PER_S + flops / FLOPS_PER_S)
