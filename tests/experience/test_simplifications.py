"""Steps back from five experts' kernels: each takes one technique out of the text and nothing else."""

import re
from pathlib import Path

import pytest

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
        ("tiled_gemm", "grouped_tiles mask_specialisation pipelining enough_warps large_blocks"),
        ("online_attention", "powers_of_two pipelining enough_warps early_end large_blocks"),
        (
            "one_pass_layer_norm",
            "reciprocal_root enough_warps row_in_registers fused_trailing_work",
        ),
        ("split_reduction", "large_blocks many_pieces"),
        ("fused_epilogue", "pipelining enough_warps large_blocks fused_trailing_work"),
    ],
)
def test_an_experts_techniques_are_found(expert: str, techniques: str) -> None:
    found = {technique for technique, _ in steps(EXPERTS[expert])}
    assert found == set(techniques.split())


def test_a_smaller_tile_takes_the_grid_with_it() -> None:
    simpler = steps(EXPERTS["tiled_gemm"])["large_blocks", "product.BN"]
    gone, come = changed(EXPERTS["tiled_gemm"], simpler)
    assert len(gone) == len(come) == 2
    assert any("BN=32" in line and "BM=128" in line for line in come)
    assert any("triton.cdiv" in line and "32" in line for line in come)


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


@pytest.mark.parametrize(
    "source",
    ["", "def f(:", "class ModelNew: pass", "@triton.jit\ndef k(x):\n    tl.store(x, 1.0)\n"],
)
def test_what_has_no_technique_has_no_step(source: str) -> None:
    assert simplifications({"source": source})["steps"] == []
