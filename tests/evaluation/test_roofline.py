"""Modelled time: the rankings that must hold, and how far it is from what was measured on an H200."""

import json
import statistics
from math import exp, log
from pathlib import Path
from typing import Any

import pytest

from gpu_runner.core.targets import TARGETS, target_named
from gpu_runner.evaluation.child.counting import Counts, Operation
from gpu_runner.evaluation.child.roofline import ModelledCall, modelled_us, residency
from tests.evaluation.scripts import answer_of

HERE = Path(__file__).parent
MEASURED = json.loads((HERE / "measured_h200.json").read_text())
H200 = TARGETS["h200"]


@pytest.fixture(scope="module")
def counted() -> dict[str, Any]:
    """Counts of each case of modelled.py, by its name."""
    return answer_of("modelled.py", interprets=True)


def modelled(
    counted: dict[str, Any], name: str, target: str = "h200", **compiled: Any
) -> ModelledCall:
    """A kernel case's modelled call; `compiled` replaces facts of the compiled kernel."""
    case = counted["kernels"][name]
    facts = {**MEASURED["kernels"].get(name, {}).get("compiled", {}), **compiled}
    kernels = [
        {"failure": None, "num_warps": 4, "kernel": launch["kernel"], **facts}
        | {"constexprs": launch["constexprs"]}
        for launch in case["launches"]
    ]
    return modelled_us(case["launches"], [], kernels, TARGETS[target])


def operation(op: str, kind: str, read: float, written: float, **more: Any) -> Operation:
    return Operation(
        op=op,
        kind=kind,
        read_bytes=read,
        written_bytes=written,
        flops=more.pop("flops", read / 4),
        dtype=more.pop("dtype", "float32"),
        shapes=more.pop("shapes", [[4096, 4096]]),
        out_shapes=[[4096, 4096]],
        **more,
    )


def test_counting_full_size_is_quick_and_clean(counted: dict[str, Any]) -> None:
    cases = counted["kernels"] | counted["eager"]
    assert all(not case["findings"] and not case["errors"] for case in cases.values())
    assert max(case["seconds"] for case in cases.values()) < 30
    assert all(launch["is_complete"] for case in cases.values() for launch in case["launches"])


@pytest.mark.parametrize(
    ("faster", "slower", "factor"),
    [
        ("scaled_silu", "scaled_then_silu", 1.8),
        ("softmax_once", "softmax_thrice", 1.1),
        ("silu_1024", "silu_128", 2.0),
        ("silu_128", "silu_32", 2.0),
        ("matmul_bf16_128", "matmul_bf16_64", 1.4),
        ("matmul_bf16_256", "matmul_bf16_128", 1.02),
        ("matmul_tf32_128", "matmul_tf32_16", 3.0),
        ("matmul_tf32_128", "matmul_ieee_64", 1.5),
        ("matmul_bf16_128", "matmul_tf32_128", 2.0),
        ("transpose_by_tiles", "transpose_by_columns", 2.0),
    ],
)
def test_what_is_known_to_be_faster_is_modelled_faster(
    counted: dict[str, Any], faster: str, slower: str, factor: float
) -> None:
    assert modelled(counted, faster).us * factor < modelled(counted, slower).us


def test_one_kernel_beats_the_eager_operations_it_replaces(counted: dict[str, Any]) -> None:
    size = 4.0 * (1 << 26)
    eager = [operation("mul", "pointwise", size, size), operation("silu", "pointwise", size, size)]
    own = modelled(counted, "scaled_silu").us
    assert own * 1.8 < modelled_us([], eager, [], H200).us


@pytest.mark.parametrize("name", sorted(MEASURED["kernels"]))
def test_a_kernel_is_modelled_within_a_factor_of_two(counted: dict[str, Any], name: str) -> None:
    ratio = modelled(counted, name).us / MEASURED["kernels"][name]["us"]
    assert 0.5 < ratio < 2.0


@pytest.mark.parametrize("name", sorted(MEASURED["eager"]))
def test_eager_is_modelled_within_a_factor_of_two_and_a_bit(
    counted: dict[str, Any], name: str
) -> None:
    call = modelled_us([], counted["eager"][name]["operations"], [], H200)
    assert 0.45 < call.us / MEASURED["eager"][name] < 2.2


def test_the_typical_error_is_below_a_quarter(counted: dict[str, Any]) -> None:
    errors = [
        abs(log(modelled(counted, name).us / fact["us"]))
        for name, fact in MEASURED["kernels"].items()
    ] + [
        abs(log(modelled_us([], counted["eager"][name]["operations"], [], H200).us / us))
        for name, us in MEASURED["eager"].items()
    ]
    assert exp(statistics.mean(errors)) < 1.25


def test_spills_cost_time(counted: dict[str, Any]) -> None:
    clean = modelled(counted, "matmul_bf16_128").us
    spills = {"spill_bytes": 512, "spill_bytes_in_loops": 512}
    assert modelled(counted, "matmul_bf16_128", **spills).us > 1.3 * clean


def test_spills_outside_loops_are_paid_once(counted: dict[str, Any]) -> None:
    clean = modelled(counted, "matmul_bf16_128")
    spills = {"spill_bytes": 512, "spill_bytes_in_loops": 0}
    part = modelled(counted, "matmul_bf16_128", **spills).parts[0]
    moved = 2 * 512 * 8 * 32 * (4096 // 128) ** 2
    assert part.l2_us - clean.parts[0].l2_us == pytest.approx(
        1e6 * moved / (H200.l2_bandwidth * 0.8)
    )


def test_a_lack_of_pipelining_costs_time(counted: dict[str, Any]) -> None:
    clean = modelled(counted, "matmul_bf16_128").us
    assert modelled(counted, "matmul_bf16_128", num_stages=1).us > 1.1 * clean


def test_one_warp_cannot_feed_the_tensor_cores(counted: dict[str, Any]) -> None:
    clean = modelled(counted, "matmul_bf16_128").us
    assert modelled(counted, "matmul_bf16_128", num_warps=1).us > 1.3 * clean


def test_registers_limit_how_many_blocks_fit() -> None:
    few = residency(H200, num_warps=8, registers=255, shared_bytes=0)
    many = residency(H200, num_warps=8, registers=32, shared_bytes=0)
    assert (few.blocks_per_sm, few.limiter) == (1, "registers")
    assert (many.blocks_per_sm, many.occupancy) == (8, 1.0)


def test_shared_memory_limits_how_many_blocks_fit() -> None:
    held = residency(H200, num_warps=4, registers=32, shared_bytes=100 << 10)
    assert (held.blocks_per_sm, held.limiter) == (2, "shared memory")


def test_a_newer_gpu_is_faster(counted: dict[str, Any]) -> None:
    times = [
        modelled(counted, "silu_1024", target).us for target in ("a100", "h100", "h200", "b200")
    ]
    assert times == sorted(times, reverse=True)


def test_the_precision_decides_about_tensor_cores_for_float32() -> None:
    product = operation("mm", "matmul", 2 * 2.0**26, 2.0**26, flops=2.0 * 4096**3)
    ieee = modelled_us([], [product], [], H200, matmul="ieee").us
    tf32 = modelled_us([], [product], [], H200, matmul="tf32").us
    assert 5 < ieee / tf32 < 10


def test_views_and_noops_cost_nothing(counted: dict[str, Any]) -> None:
    launch = {**counted["kernels"]["silu_1024"]["launches"][0], "is_noop": True}
    view = operation("t", "view", 0.0, 0.0)
    assert modelled_us([launch], [view], [], H200).us == 0.0


def test_the_parts_add_up_and_name_their_bound(counted: dict[str, Any]) -> None:
    call = modelled(counted, "scaled_then_silu")
    assert call.us == pytest.approx(sum(part.us for part in call.parts))
    assert [part.name for part in call.parts] == ["scaled", "silu"]
    assert {part.bound for part in call.parts} == {"dram"}
    assert modelled(counted, "tiny").parts[0].bound == "launch"
    assert modelled(counted, "matmul_ieee_64").parts[0].bound == "dot"


def test_uncoalesced_access_is_seen(counted: dict[str, Any]) -> None:
    assert modelled(counted, "transpose_by_tiles").parts[0].bytes_per_wanted_byte < 1.1
    assert modelled(counted, "transpose_by_columns").parts[0].bytes_per_wanted_byte > 3


def test_the_minimum_is_every_byte_once(counted: dict[str, Any]) -> None:
    part = modelled(counted, "softmax_thrice").parts[0]
    assert part.minimum_bytes == pytest.approx(2 * 16384 * 4096 * 4, rel=0.01)
    assert part.dram_bytes > part.minimum_bytes


@pytest.mark.parametrize(("name", "tensors"), [("attention_bf16", 4), ("attention_of_itself", 2)])
def test_what_arguments_share_is_read_once_and_the_rest_of_its_storage_never(
    counted: dict[str, Any], name: str, tensors: int
) -> None:
    part = modelled(counted, name).parts[0]
    assert part.minimum_bytes == tensors * 128 * 1024 * 64 * 2
    assert part.dram_bytes < 1.1 * part.minimum_bytes


def test_counts_survive_json(counted: dict[str, Any]) -> None:
    raw = counted["kernels"]["matmul_bf16_128"]["launches"][0]["counts"]
    assert Counts.from_json(raw).as_json() == raw


@pytest.mark.parametrize("missing", ["flops", "dots", "tensors", "programs"])
def test_counts_that_lack_something_are_refused(counted: dict[str, Any], missing: str) -> None:
    raw = dict(counted["kernels"]["silu_1024"]["launches"][0]["counts"])
    del raw[missing]
    with pytest.raises(KeyError):
        Counts.from_json(raw)


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="h200"):
        target_named("h300")
