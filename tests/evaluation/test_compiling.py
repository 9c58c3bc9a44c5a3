"""Cross-compilation of full-size launches: what came out, and failures with the candidate's line."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.scripts import answer_of

HERE = Path(__file__).parent
SOURCE = (HERE / "compiled_candidates.py").read_text().splitlines()


def compiled(target: str, *names: str) -> dict[str, Any]:
    return answer_of("compiled.py", target, *names, interprets=False)


@pytest.fixture(scope="module")
def h200() -> dict[str, Any]:
    return compiled("h200")


def line_of(fault: str) -> int:
    return next(i for i, line in enumerate(SOURCE, 1) if f"# fault: {fault}" in line)


def test_a_gigabyte_is_compiled_for_and_launches_are_gathered(h200: dict[str, Any]) -> None:
    (kernel,) = h200["double"]
    assert kernel["kernel"] == "double"
    assert kernel["grids"] == [[1 << 18, 1, 1]] * 2
    assert kernel["args"][0]["shape"] == [1 << 28]
    assert kernel["num_warps"] == 8
    assert 8 <= kernel["registers"] <= 255
    assert kernel["spill_bytes"] == kernel["shared_bytes"] == 0
    assert kernel["failure"] is None
    assert kernel["computes"] == ["float"]


def test_the_first_configuration_that_fits_is_chosen(h200: dict[str, Any]) -> None:
    first, second, third = h200["tf32"]
    assert first["failure"]["kind"] == "resources"
    assert first["failure"]["required"] > first["failure"]["limit"] == 227 << 10
    assert [kernel["is_chosen"] for kernel in (first, second, third)] == [False, True, False]
    assert [kernel["config"]["BM"] for kernel in (first, second, third)] == [256, 64, 32]
    assert second["shared_bytes"] > 0


def test_spills_in_loops_are_told_from_others(h200: dict[str, Any]) -> None:
    (inside,), (after,) = h200["spills_in_its_loop"], h200["spills_after_its_loop"]
    assert 0.5 * inside["spill_bytes"] < inside["spill_bytes_in_loops"] <= inside["spill_bytes"]
    assert after["spill_bytes"] > 100
    assert after["spill_bytes_in_loops"] == 0


@pytest.mark.parametrize(
    ("case", "dtype", "precision", "cores"),
    [("tf32", "f32", "tf32", True), ("ieee", "f32", "ieee", False), ("bf16", "bf16", "ieee", True)],
)
def test_precision_is_read_from_what_was_compiled(
    h200: dict[str, Any], case: str, dtype: str, precision: str, cores: bool
) -> None:
    kernel = next(kernel for kernel in h200[case] if kernel["is_chosen"])
    assert kernel["dots"] == [{"dtype": dtype, "precision": precision}]
    assert kernel["uses_tensor_cores"] is cores
    assert "dot" in kernel["computes"]
    assert "math" not in kernel["computes"]


@pytest.mark.parametrize(
    ("case", "fact"),
    [
        ("in_helper", "has no attribute 'row_softmax'"),
        ("unlike_shapes", "incompatible dimensions at index 0: 128 and 64"),
        ("unknown_name", "undefined_name is not defined"),
        ("bad_block", "power of 2"),
    ],
)
def test_frontend_errors_carry_line_and_fact(h200: dict[str, Any], case: str, fact: str) -> None:
    (kernel,) = h200[case]
    assert kernel["failure"]["kind"] == "frontend"
    assert fact in kernel["failure"]["message"]
    assert kernel["failure"]["line"] == line_of(case)


def test_a_failure_that_the_host_swallows_is_still_seen(h200: dict[str, Any]) -> None:
    (kernel,) = h200["falls_back"]
    assert kernel["failure"]["line"] == line_of("in_helper")


def test_a_grid_beyond_the_limits_is_a_lack_of_resources(h200: dict[str, Any]) -> None:
    (kernel,) = h200["grid"]
    assert kernel["failure"]["kind"] == "resources"
    assert kernel["failure"]["resource"] == "grid dimension y"


def test_host_code_can_ask_for_registers(h200: dict[str, Any]) -> None:
    (kernel,) = h200["registers"]
    assert kernel["failure"] is None
    assert kernel["grids"][0][0] % 132 == 0


def test_a_launch_of_a_warmed_up_kernel_is_seen(h200: dict[str, Any]) -> None:
    (kernel,) = h200["warmed"]
    assert kernel["grids"] == [[1 << 19, 1, 1]]
    assert kernel["num_warps"] == 2


def test_the_hosts_own_errors_rise(h200: dict[str, Any]) -> None:
    assert "the host's own" in h200["host_error"]


def test_the_caller_is_told_what_is_being_compiled(h200: dict[str, Any]) -> None:
    assert h200["started"][:2] == ["double", "double"]
    assert "matmul" in h200["started"]


@pytest.mark.parametrize("target", ["a100", "b200", "mi300x"])
def test_other_targets_compile_too(target: str) -> None:
    seen = compiled(target, "double", "in_helper")
    (kernel,) = seen["double"]
    assert kernel["target"] == target
    assert kernel["registers"] > 0
    assert seen["in_helper"][0]["failure"]["kind"] == "frontend"


def test_an_interpreting_process_refuses_to_compile() -> None:
    code = (
        "from gpu_runner.core.targets import TARGETS\n"
        "from gpu_runner.evaluation.child import compiling\n"
        "compiling.install(TARGETS['h200'])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode != 0
    assert "cannot compile" in ran.stderr
