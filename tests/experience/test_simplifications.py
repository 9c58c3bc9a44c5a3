"""Steps back from five experts' kernels: each takes one technique out of the text and nothing else."""

import ast
import re
from pathlib import Path

import pytest

from gpu_runner.core.starting_entries import Starting, read_all
from gpu_runner.proposals.child.simplifications import simplifications

EXPERTS = {
    path.stem: path.read_text() for path in sorted((Path(__file__).parent / "experts").glob("*.py"))
}


def steps(source: str) -> dict[tuple[str, str], str]:
    return {
        (s["technique"], s["site"]): s["source"]
        for s in simplifications({"source": source})["steps"]
    }


def changed(before: str, after: str) -> tuple[set[str], set[str]]:
    """Lines that went and lines that came, without indentation."""
    old, new = ({line.strip() for line in text.splitlines()} for text in (before, after))
    return old - new, new - old


@pytest.mark.parametrize(
    ("expert", "techniques"),
    [
        (
            "tiled_gemm",
            "grouped_tiles mask_specialisation pipelining enough_warps large_tiles axes_on_the_grid products_of_tiles"
            " sums_in_registers",
        ),
        (
            "online_attention",
            "powers_of_two pipelining enough_warps early_end large_tiles axes_on_the_grid running_maximum sums_in_registers",
        ),
        (
            "one_pass_layer_norm",
            "reciprocal_root enough_warps row_in_registers fused_trailing_work fused_statistics",
        ),
        (
            "split_reduction",
            "large_blocks long_pieces many_pieces contiguous_lanes axes_on_the_grid sums_in_registers",
        ),
        (
            "fused_epilogue",
            "pipelining enough_warps large_tiles axes_on_the_grid products_of_tiles sums_in_registers fused_trailing_work",
        ),
    ],
)
def test_an_experts_techniques_are_found(expert: str, techniques: str) -> None:
    found = {technique for technique, _ in steps(EXPERTS[expert])}
    assert found == set(techniques.split())


def test_a_smaller_tile_takes_its_own_axis_of_the_grid_with_it() -> None:
    simpler = steps(EXPERTS["tiled_gemm"])["large_tiles", "product.BN"]
    gone, come = changed(EXPERTS["tiled_gemm"], simpler)
    assert len(gone) == len(come) == 2
    assert any("BN=32" in line and "BM=128" in line for line in come)
    assert "grid = (triton.cdiv(M, 128), triton.cdiv(N, 32))" in come


def test_lanes_across_a_matrix_keep_the_size_of_the_block_as_far_as_the_piece_admits() -> None:
    simpler = steps(EXPERTS["split_reduction"])["contiguous_lanes", "piece_sum.BC"]
    _, come = changed(EXPERTS["split_reduction"], simpler)
    assert come == {
        "piece_sum[(triton.cdiv(C, 1), pieces)](x, parts, R, C, PIECE=1024, BR=1024, BC=1)"
    }


def test_an_axis_of_the_grid_becomes_a_loop_around_the_whole_body() -> None:
    simpler = steps(EXPERTS["online_attention"])["axes_on_the_grid", "attention"]
    _, come = changed(EXPERTS["online_attention"], simpler)
    assert come == {
        "def attention(q, k, v, out, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, programs_1):",
        "for place_1 in range(programs_1):",
        "base = (tl.program_id(1) + place_1).to(tl.int64) * T * D",
        "grid = (triton.cdiv(T, 128), 1)",
        "attention[grid](q, k, v, out, T, D**-0.5, D=D, BM=128, BN=64, num_warps=8, num_stages=3, programs_1=B * H)",
    }


def test_programs_counted_within_the_kernel_are_those_of_the_loop() -> None:
    simpler = steps(EXPERTS["tiled_gemm"])["axes_on_the_grid", "product"]
    _, come = changed(EXPERTS["tiled_gemm"], simpler)
    places = "tl.program_id(0), (tl.program_id(1) + place_1), tl.num_programs(0), programs_1, 8"
    assert places in come


def test_a_grid_that_another_launch_shares_stays_as_it_is() -> None:
    shared = EXPERTS["fused_epilogue"].replace(
        "        return out", "        print(grid)\n        return out"
    )
    assert ("axes_on_the_grid", "linear_gelu") in steps(EXPERTS["fused_epilogue"])
    assert ("axes_on_the_grid", "linear_gelu") not in steps(shared)


def test_a_product_of_tiles_becomes_outer_products() -> None:
    simpler = steps(EXPERTS["tiled_gemm"])["products_of_tiles", "product"]
    _, come = changed(EXPERTS["tiled_gemm"], simpler)
    assert "acc = acc + ta.to(tl.float32) * tb.to(tl.float32)" in come
    assert any("BK=1," in line for line in come)


def test_the_maximum_is_looked_for_before_the_sums() -> None:
    simpler = steps(EXPERTS["online_attention"])["running_maximum", "attention"]
    first, second = simpler.split("    for start in ")[1:]
    assert "tl.exp2" not in first
    assert first.rstrip().endswith("most = tl.maximum(most, tl.max(scores, axis=1))")
    assert "shrink" not in second
    assert "acc = acc + tl.dot(weights.to(tv.dtype), tv)" in second


def test_a_correction_that_has_no_name_goes_as_well() -> None:
    source = """
@triton.jit
def softmax(x, out, C, BLOCK: tl.constexpr):
    largest = -3.0e38
    whole = 0.0
    for start in range(0, C, BLOCK):
        value = tl.load(x + start + tl.arange(0, BLOCK))
        higher = tl.maximum(largest, tl.max(value, axis=0))
        whole = whole * tl.exp(largest - higher) + tl.sum(tl.exp(value - higher), axis=0)
        largest = higher
    tl.store(out, whole)
"""
    gone, come = changed(source, steps(source)["running_maximum", "softmax"])
    assert len(gone) == 3
    assert come == {
        "largest = tl.maximum(largest, tl.max(value, axis=0))",
        "whole = whole + tl.sum(tl.exp(value - largest), axis=0)",
    }


def test_a_correction_that_is_more_than_a_factor_leaves_the_loop_as_it_is() -> None:
    source = EXPERTS["online_attention"].replace(
        "acc * shrink[:, None]", "acc / (1 / shrink[:, None])"
    )
    assert ("running_maximum", "attention") not in steps(source)


def test_what_a_loop_sums_goes_to_memory_and_back_in_each_step() -> None:
    simpler = steps(EXPERTS["split_reduction"])["sums_in_registers", "join"]
    kernel = re.search(r"def join.*?(?=\n\n\n)", simpler, re.DOTALL)
    assert kernel is not None
    assert [line.strip() for line in kernel[0].splitlines()[2:]] == [
        "total = tl.zeros((BLOCK,), tl.float32)",
        "tl.store(out + c, total.to(out.dtype.element_ty), mask=c < C)",
        "tl.debug_barrier()",
        "for piece in range(pieces):",
        "total = tl.load(out + c, mask=c < C).to(tl.float32)",
        "total += tl.load(parts + piece * C + c, mask=c < C, other=0.0)",
        "tl.store(out + c, total.to(out.dtype.element_ty), mask=c < C)",
        "tl.debug_barrier()",
        "total = tl.load(out + c, mask=c < C).to(tl.float32)",
        "tl.store(out + c, total, mask=c < C)",
    ]


def test_a_sum_whose_place_follows_from_the_loop_stays_in_registers() -> None:
    moved = EXPERTS["split_reduction"].replace(
        "tl.store(out + c, total", "tl.store(out + c + piece, total"
    )
    assert ("sums_in_registers", "join") not in steps(moved)


def test_statistics_go_to_a_kernel_of_their_own_and_the_row_is_read_again() -> None:
    simpler = steps(EXPERTS["one_pass_layer_norm"])["fused_statistics", "layer_norm"]
    first, second = re.findall(r"@triton.jit\ndef .*?(?=\n\n\n|\nclass )", simpler, re.DOTALL)
    assert first.count("tl.store(parts + tl.program_id(0) * 2 + ") == 2
    assert "tl.sum" not in second
    assert "tl.load(x + " in second
    assert (
        "layer_norm_parts = torch.empty((rows, 2), device=x.device, dtype=torch.float32)" in simpler
    )


def test_a_loop_that_ends_early_walks_over_everything() -> None:
    simpler = steps(EXPERTS["online_attention"])["early_end", "attention"]
    _, come = changed(EXPERTS["online_attention"], simpler)
    assert come == {"for start in range(0, T, BN):"}


def test_a_row_is_read_again_for_each_reduction() -> None:
    simpler = steps(EXPERTS["one_pass_layer_norm"])["row_in_registers", "layer_norm"]
    assert simpler.count("tl.load(x ") == 3 * EXPERTS["one_pass_layer_norm"].count("tl.load(x ")
    assert simpler.count("for start in range(0, BLOCK, 1024):") == 3
    assert simpler.count("tl.store(") == 1


def test_trailing_work_moves_to_a_second_kernel_with_the_same_parameters() -> None:
    simpler = steps(EXPERTS["fused_epilogue"])["fused_trailing_work", "linear_gelu"]
    first, second = re.findall(r"@triton.jit\ndef .*?(?=\n\n\n|\nclass )", simpler, re.DOTALL)
    assert "erf" not in first
    assert "tl.dot" in first
    assert "erf" in second
    assert "tl.dot" not in second
    assert simpler.count("linear_gelu_rest[grid](") == 1


def test_partial_sums_are_reduced_in_each_step() -> None:
    source = """
@triton.jit
def row_sum(x, out, C, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, C, BLOCK):
        total += tl.load(x + start + tl.arange(0, BLOCK))
    tl.store(out, tl.sum(total, axis=0))
"""
    gone, come = changed(source, steps(source)["sums_in_lanes", "row_sum"])
    assert len(gone) == 3
    assert come == {
        "total = 0.0",
        "total += tl.sum(tl.load(x + start + tl.arange(0, BLOCK)), axis=0)",
        "tl.store(out, total)",
    }


def test_fewer_programs_with_more_work_each() -> None:
    simpler = steps(EXPERTS["split_reduction"])["many_pieces", "piece_sum.PIECE"]
    assert "PIECE=16384" in simpler
    assert "triton.cdiv(R, 16384)" in simpler


@pytest.mark.parametrize("starting", read_all(), ids=lambda starting: starting.slug)
def test_every_kernel_of_the_library_is_read_and_each_step_is_another_source(
    starting: Starting,
) -> None:
    for part in ("Before", "After"):
        source = starting.text[part]
        found = simplifications({"source": source})["steps"]
        assert (
            len(
                {ast.dump(ast.parse(step["source"])) for step in found}
                | {ast.dump(ast.parse(source))}
            )
            == len(found) + 1
        )


@pytest.mark.parametrize(
    "source",
    ["", "def f(:", "class ModelNew: pass", "@triton.jit\ndef k(x):\n    tl.store(x, 1.0)\n"],
)
def test_what_has_no_technique_has_no_step(source: str) -> None:
    assert simplifications({"source": source})["steps"] == []
