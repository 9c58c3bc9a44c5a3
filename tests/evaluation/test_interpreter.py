"""What the instrumented interpreter sees, and what it lets pass. All cases run in one child; see interpreted.py."""

from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.scripts import answer_of

HERE = Path(__file__).parent
KERNELS = (HERE / "interpreted_kernels.py").read_text().splitlines()


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What each case of interpreted.py saw, by its name."""
    return answer_of("interpreted.py", interprets=True)


def line_of(fault: str) -> int:
    return next(i for i, line in enumerate(KERNELS, 1) if line.endswith(f"# fault: {fault}"))


def is_clean(case: dict[str, Any]) -> bool:
    return not case["findings"] and not case["errors"] and case["unevaluable"] is None


def test_a_right_kernel_is_run_and_nothing_is_found(seen: dict[str, Any]) -> None:
    assert is_clean(seen["right"])
    assert seen["right"]["off"] == 0.0


def test_bytes_and_operations_are_counted(seen: dict[str, Any]) -> None:
    counts = seen["right"]["launches"][0]["counts"]
    assert (counts["load_bytes"], counts["store_bytes"]) == (4000.0, 4000.0)
    assert counts["flops"] == 4 * 256
    assert counts["bytes_per_wanted_byte"] == 1.0
    assert counts["tensors"]["x"]["loaded"] == 4000.0


def test_a_launch_is_described(seen: dict[str, Any]) -> None:
    launch = seen["right"]["launches"][0]
    assert launch["kernel"] == "double"
    assert launch["grid"] == [4, 1, 1]
    assert launch["constexprs"] == {"BLOCK": 256}
    assert [argument["name"] for argument in launch["args"]] == ["x", "o", "n"]
    assert launch["args"][0]["shape"] == [1000]
    assert launch["args"][2]["value"] == 1000


@pytest.mark.parametrize(
    ("case", "access", "tensor", "index", "count"),
    [
        ("reads_beyond", "load", "x", 1000, 24),
        ("writes_far", "store", "o", 1 << 33, 999),
        ("reads_before", "load", "x", -3, 3),
        ("block_pointer", "load", "x", 160, 96),
    ],
)
def test_strays_are_found_with_their_place(
    seen: dict[str, Any], case: str, access: str, tensor: str, index: int, count: int
) -> None:
    (finding,) = seen[case]["findings"]
    assert finding["kind"] == "out_of_bounds"
    assert (finding["access"], finding["tensor"], finding["index"]) == (access, tensor, index)
    assert finding["line"] == line_of(case)
    assert finding["count"] == count


def test_different_values_to_one_address_are_a_race(seen: dict[str, Any]) -> None:
    (finding,) = seen["all_write_one"]["findings"]
    assert (finding["kind"], finding["access"]) == ("race", "write-write")
    assert finding["certain"]
    assert finding["line"] == line_of("all_write_one")
    assert finding["program"] != finding["other_program"]


def test_reading_what_a_neighbour_overwrites_is_an_uncertain_race(seen: dict[str, Any]) -> None:
    (finding,) = seen["shifts_in_place"]["findings"]
    assert (finding["kind"], finding["access"]) == ("race", "read-write")
    assert not finding["certain"]
    assert finding["line"] == line_of("shifts_in_place")


def test_running_backwards_shows_that_a_race_matters(seen: dict[str, Any]) -> None:
    assert seen["reversed_order"]["differs"]


@pytest.mark.parametrize(
    "case", ["all_write_the_same", "all_add_one", "doubles_in_place", "last_block_sums"]
)
def test_what_is_safe_is_no_race(seen: dict[str, Any], case: str) -> None:
    assert is_clean(seen[case])
    assert seen[case].get("off", 0.0) < 1e-4


def test_unwritten_outputs_keep_the_poison(seen: dict[str, Any]) -> None:
    case = seen["unwritten_output"]
    assert case["share"] == pytest.approx(0.1)
    assert case["poisoned"] == 10
    assert case["findings"] == []


def test_reading_fresh_memory_is_found(seen: dict[str, Any]) -> None:
    (finding,) = seen["unwritten_input"]["findings"]
    assert (finding["kind"], finding["access"], finding["tensor"]) == ("unwritten", "load", "x")
    assert finding["count"] == 100


def test_what_torch_wrote_is_written(seen: dict[str, Any]) -> None:
    assert is_clean(seen["written_by_torch"])


def test_atomics_on_fresh_memory_are_certainly_wrong(seen: dict[str, Any]) -> None:
    (finding,) = seen["atomics_on_unwritten"]["findings"]
    assert (finding["kind"], finding["access"], finding["certain"]) == ("unwritten", "atomic", True)


def test_a_noop_kernel_is_recorded_but_not_run(seen: dict[str, Any]) -> None:
    assert seen["noop"]["launches"][0]["is_noop"]
    assert seen["noop"]["sum"] == 0.0


@pytest.mark.parametrize(
    "case",
    "softmax many_functions bfloat16 bfloat16_reductions block_pointers descriptors".split(),
)
def test_results_agree_with_torch(seen: dict[str, Any], case: str) -> None:
    assert is_clean(seen[case])
    assert seen[case]["off"] < 1e-5


def test_tables_of_pointers_are_followed(seen: dict[str, Any]) -> None:
    assert is_clean(seen["tables_of_pointers"])
    assert seen["tables_of_pointers"]["off"] < 1e-5


def test_generic_reductions_and_scans_are_right(seen: dict[str, Any]) -> None:
    assert is_clean(seen["reductions"])
    assert max(seen["reductions"][name] for name in ("mean", "variance", "maximum")) < 1e-5


def test_an_error_in_a_kernel_carries_its_line(seen: dict[str, Any]) -> None:
    (error,) = seen["unknown_function"]["errors"]
    assert error["type"] == "AttributeError"
    assert "row_softmax" in error["message"]
    assert error["line"] == line_of("unknown_function")


def test_dots_are_counted_by_numeric_path(seen: dict[str, Any]) -> None:
    paths = {
        name: list(case["launches"][0]["counts"]["dots"]) for name, case in seen["matmul"].items()
    }
    assert paths["ieee"] == ["ieee"]
    assert paths["tf32"] == ["tf32"]
    assert paths["bf16"] == ["bf16"]
    assert paths["fp16"] == ["fp16"]


def test_tf32_rounds_its_operands(seen: dict[str, Any]) -> None:
    assert seen["matmul"]["ieee"]["off"] < 1e-4
    assert 1e-3 < seen["matmul"]["tf32"]["off"] < 0.1
    assert seen["matmul"]["bf16"]["off"] < 1e-4


def test_autotune_takes_the_configuration_asked_for(seen: dict[str, Any]) -> None:
    chosen = {name: case["launches"][0]["config"]["BM"] for name, case in seen["matmul"].items()}
    assert chosen["tf32"] == chosen["other"] == 32
    assert chosen["second"] == chosen["named"] == 16
    assert seen["matmul"]["second"]["launches"][0]["options"]["num_warps"] == 8


def test_waiting_for_another_program_is_unevaluable(seen: dict[str, Any]) -> None:
    assert "waits for another program" in seen["waits"]["unevaluable"]


def test_rereading_a_scalar_is_not_waiting(seen: dict[str, Any]) -> None:
    assert is_clean(seen["rereads_a_scale"])
    assert seen["rereads_a_scale"]["off"] == 0.0


def test_inline_assembly_is_unevaluable(seen: dict[str, Any]) -> None:
    assert seen["assembly"]["unevaluable"] == "inline assembly"


def test_scalar_arguments_arrive(seen: dict[str, Any]) -> None:
    assert is_clean(seen["scalars"])
    assert seen["scalars"]["value"] == -103.5


def test_host_code_meets_a_gpu_and_we_do_not(seen: dict[str, Any]) -> None:
    case = seen["host_code"]
    assert is_clean(case)
    assert case["off"] == 0.0
    assert case["created_on"] == ["cuda"]
    assert not case["is_cuda"]


def test_an_impossible_grid_is_refused(seen: dict[str, Any]) -> None:
    kinds = [finding["kind"] for finding in seen["too_large_grid"]["findings"]]
    assert kinds == ["launch"]
    assert seen["too_large_grid"]["sum"] == 0.0


def test_a_warmed_up_kernel_can_be_launched(seen: dict[str, Any]) -> None:
    assert is_clean(seen["warmed"])
    assert seen["warmed"]["off"] == 0.0
    assert seen["warmed"]["launches"][0]["options"]["num_warps"] == 2


def test_atomics_that_triton_lacks_are_supplied(seen: dict[str, Any]) -> None:
    assert is_clean(seen["atomics"])
    assert seen["atomics"]["values"] == [0.0, 5.0, 7, 48.0]


def test_launches_outside_a_session_run(seen: dict[str, Any]) -> None:
    assert seen["outside_a_session"]["sum"] == 200.0


def test_a_full_size_launch_is_sampled_and_scaled(seen: dict[str, Any]) -> None:
    (launch,) = seen["full_size"]["launches"]
    counts = launch["counts"]
    assert launch["grid"] == [256, 256, 1]
    assert launch["is_complete"]
    assert counts["dots"]["ieee"] == pytest.approx(2 * 8192 * 8192 * 4096, rel=0.01)
    assert counts["store_bytes"] == pytest.approx(8192 * 8192 * 4, rel=0.01)
    assert counts["tensors"]["a"]["loaded"] == pytest.approx(8192 * 4096 * 4 * 256, rel=0.01)
    assert seen["full_size"]["findings"] == []


def test_a_program_that_the_sample_has_no_time_for_does_not_count(seen: dict[str, Any]) -> None:
    (launch,) = seen["cut_short"]["launches"]
    counts = launch["counts"]
    assert not launch["is_complete"]
    assert counts["programs"] == 4
    assert counts["load_bytes"] == counts["store_bytes"] == 256 * 4


def test_full_size_torch_operations_are_recorded(seen: dict[str, Any]) -> None:
    operations = seen["full_size"]["operations"]
    assert [operation["op"] for operation in operations] == ["relu_"]
    assert operations[0]["read_bytes"] == operations[0]["written_bytes"] == 8192 * 8192 * 4
