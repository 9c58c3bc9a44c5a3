"""What the interpreter says of forty small kernels: each fault with its place, and nothing of those that only look guilty."""

from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.scripts import answer_of

HERE = Path(__file__).parent
KERNELS = (HERE / "safety_kernels.py").read_text().splitlines()
Found = tuple[str, str, str, int, bool]

# Kind, access, tensor, index, and whether it is certain; in the order in which they are seen.
FAULTS: dict[str, list[Found]] = {
    "stores_beyond": [("out_of_bounds", "store", "o", 100, True)],
    "stores_before": [("out_of_bounds", "store", "o", -1, True)],
    "scalar_load": [("out_of_bounds", "load", "x", 10, True)],
    "scalar_load negative": [("out_of_bounds", "load", "x", -1, True)],
    "scalar_load in padding": [("outside_view", "load", "x", 12, False)],
    "gathers": [("out_of_bounds", "load", "x", 20, True)],
    "adds_beyond": [("out_of_bounds", "atomic", "o", 20, True)],
    "swaps_beyond": [("out_of_bounds", "atomic", "o", 4, True)],
    "block_store": [("out_of_bounds", "store", "o", 20, True)],
    "block_lies": [("out_of_bounds", "load", "x", 20, True)],
    "descriptor_lies": [("out_of_bounds", "load", "x", 320, True)],
    "host_descriptor lies": [("out_of_bounds", "load", "d", 320, True)],
    "rows past end": [("out_of_bounds", "load", "x", 256, True)],
    "last_row_only": [("out_of_bounds", "load", "x", 160, True)],
    "wraps": [("out_of_bounds", "load", "x", -(2**31), True)],
    "double_bytes": [("out_of_bounds", "load", "x", 20, True)],
    "all_write": [("race", "write-write", "o", 0, True)],
    "all_write empty": [("race", "write-write", "o", 0, True)],
    "adds_without_atomics": [
        ("race", "read-write", "o", 0, False),
        ("race", "write-write", "o", 0, True),
    ],
    "overlapping_tiles": [("race", "write-write", "o", 16, True)],
    "shifts": [("race", "read-write", "x", 32, False)],
    "stores_plainly_what_others_add": [
        ("race", "write-atomic", "o", 0, True),
        ("race", "write-atomic", "o", 0, True),
    ],
    "one_lane_twice": [("race", "write-write", "o", 0, False)],
    "adds_with_atomics empty": [("unwritten", "atomic", "o", 0, True)],
    "copies unwritten": [("unwritten", "load", "x", 0, False)],
    "copies partly": [("unwritten", "load", "x", 90, False)],
    "accumulates": [("unwritten", "load", "o", 0, False)],
    "reads_tail": [("unwritten", "load", "x", 95, False)],
}
HONEST = (
    "scalar_load fine",
    "gathers fine",
    "gathers_masked",
    "adds_masked",
    "block_checked",
    "descriptor_checked",
    "host_descriptor",
    "rows padded view",
    "all_write_same",
    "adds_with_atomics",
    "overlapping_but_equal",
    "shifts one program",
    "copies",
    "copies of written by kernel",
    "copies view of written",
    "accumulates zeros",
)


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return answer_of("memory_safety.py", interprets=True)


def lines_of(fault: str) -> set[int]:
    return {i for i, line in enumerate(KERNELS, 1) if line.endswith(f"# fault: {fault}")}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_found_with_line_tensor_and_index(seen: dict[str, Any], case: str) -> None:
    findings = seen[case]["findings"]

    found = [
        tuple(f[k] for k in ("kind", "access", "tensor", "index", "certain")) for f in findings
    ]
    assert found == FAULTS[case]
    if kernel_lines := lines_of(case.split()[0]):
        assert {f["line"] for f in findings} <= kernel_lines
    assert all(case.startswith(f["kernel"]) for f in findings)


@pytest.mark.parametrize("case", HONEST)
def test_what_is_safe_is_not_accused(seen: dict[str, Any], case: str) -> None:
    assert seen[case] == {"findings": [], "errors": [], "unevaluable": None}
