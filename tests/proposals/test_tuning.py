"""Tuning: what counts as a knob, and that every neighbour differs from its parent and computes the same."""

import random
from pathlib import Path
from typing import Any

import pytest

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Precision, Track, Verdict
from gpu_runner.proposals import tuning
from gpu_runner.proposals.child.tuning import knobs
from tests.proposals.interpreted import run_script

TASK = TaskSpec(name="task", source="")


class InProcess:
    """Answers calls in this process; what matters here is the text, not the sandbox."""

    def call(self, entry: str, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert entry == "gpu_runner.proposals.child.tuning:knobs"
        return knobs(request)


SCALE = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, 2.0 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        {launch}
        return y
"""

LAUNCHES = {
    "a grid from META": 'scale_kernel[lambda META: (triton.cdiv(n, META["BLOCK"]),)](x, y, n, BLOCK=256)',
    "a grid that repeats the number": "scale_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256, num_warps=8)",
    "a host variable": "block = 256\n        scale_kernel[(triton.cdiv(n, block),)](x, y, n, block)",
}

ROWS = """
import torch, triton
import triton.language as tl

@triton.jit
def row_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x, axis=0))

def total(x):
    y = torch.empty(x.shape[0])
    row_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024, num_warps=4)
    return y
"""

AUTOTUNED = """
import triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 512}, num_warps=4)], key=["n"])
@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)

def copy(x, y):
    copy_kernel[lambda META: (triton.cdiv(x.numel(), META["BLOCK"]),)](x, y, x.numel())
"""


def values(source: str) -> dict[str, int]:
    return {knob["name"]: knob["value"] for knob in knobs({"source": source})["knobs"]}


@pytest.mark.parametrize("launch", LAUNCHES.values(), ids=LAUNCHES)
def test_a_block_is_found_wherever_its_number_stands(launch: str) -> None:
    warps = 8 if "num_warps" in launch else 4
    assert values(SCALE.replace("{launch}", launch)) == {"BLOCK": 256, "num_warps": warps}


def test_a_block_that_must_cover_a_row_is_no_knob() -> None:
    assert values(ROWS) == {"num_warps": 4}


def test_the_configurations_of_an_autotuned_kernel_are_knobs() -> None:
    assert values(AUTOTUNED) == {"BLOCK": 512, "num_warps": 4}


def test_a_source_beyond_the_bounds_has_no_knobs() -> None:
    assert knobs({"source": "(" * 5000})["knobs"] == []


def neighbours(source: str, seed: int) -> list[str]:
    candidate = Candidate(id=1, source=source, island=0, origin="person")
    found = tuning.drafts(InProcess(), TASK, candidate, random.Random(seed))
    assert all(draft.origin == "tune" and draft.move for draft in found)
    return [draft.source for draft in found]


def test_the_seed_decides_the_neighbours() -> None:
    source = SCALE.replace("{launch}", LAUNCHES["a grid from META"])
    assert neighbours(source, 1) == neighbours(source, 1)
    assert neighbours(source, 1) != neighbours(source, 2)


def test_neighbours_differ_and_compute_the_same(tmp_path: Path) -> None:
    sources = {}
    for launch in LAUNCHES.values():
        source = SCALE.replace("{launch}", launch)
        found = neighbours(source, 0)
        assert len({source, *found}) == len(found) + 1 > 4
        sources |= {f"n{len(sources)}_{i}.py": text for i, text in enumerate(found)}
    errors = run_script(
        f"""
        x = torch.randn(1000)
        names = {sorted(sources)!r}
        print(json.dumps([error(load(name).ModelNew()(x), 2 * x) for name in names]))
        """,
        tmp_path,
        sources,
    )
    assert max(errors) == 0


def test_the_kernel_that_takes_long_is_tuned_first() -> None:
    both = SCALE.replace("{launch}", LAUNCHES["a grid from META"]) + AUTOTUNED
    profile = {
        "candidate": {
            "parts": [{"name": "copy_kernel", "us": 99.0}, {"name": "scale_kernel", "us": 1.0}]
        }
    }
    evaluation = Evaluation(
        verdict=Verdict.CORRECT,
        device="cpu",
        track=Track.OWN_KERNELS,
        precision=Precision.REFERENCE,
        profile=profile,
    )
    candidate = Candidate(id=1, source=both, island=0, origin="person", evaluation=evaluation)
    first = [
        tuning.drafts(InProcess(), TASK, candidate, random.Random(seed))[0].move
        for seed in range(40)
    ]
    assert sum("copy_kernel" in move for move in first) > 25
