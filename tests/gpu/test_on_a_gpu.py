"""What only a GPU can show: verdicts at full size, measured times, the sandbox with a device in it."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Fidelity, VerifiedAt
from gpu_runner.evaluation.pool import LocalPool

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from judged_cases import Exploit, all_cases, judge  # noqa: E402

SOFTMAX = """\
import torch
import torch.nn as nn

ROWS, COLUMNS = 4096, 4096


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
CANDIDATE = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x, out, n_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_columns
    value = tl.load(x + row * n_columns + columns, mask=mask, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n_columns + columns, value / tl.sum(value, 0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        softmax_rows[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return out
"""


def test_the_sandbox_lends_and_holds_with_a_device_in_it() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/first_on_gpu.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", list(all_cases()), ids=lambda case: case.name)
def test_a_judged_case_gets_its_verdict(pool: LocalPool, case: Exploit) -> None:
    row = judge(pool, case)

    assert row["right"], row


def test_a_kernel_is_timed_against_eager_the_compiler_and_itself(pool: LocalPool) -> None:
    task = TaskSpec(name="softmax", source=SOFTMAX, baseline_source=CANDIDATE)

    result = pool.evaluate(task, CANDIDATE)

    assert result.is_correct, result.lead
    assert (result.fidelity, result.verified_at) == (Fidelity.MEASURED, VerifiedAt.FULL)
    assert result.candidate is not None
    assert result.candidate.n >= 100
    for ratio in (result.speedup.eager, result.speedup.torch_compile, result.speedup.user):
        assert ratio is not None
        assert ratio.low is not None
        assert ratio.high is not None
        assert ratio.low <= ratio.ratio <= ratio.high
    user = result.speedup.user
    assert user is not None
    assert 0.97 < user.ratio < 1.03
    # A call allocates its output alone.
    assert result.candidate.peak_bytes == 4096 * 4096 * 4
    assert 0 < result.profile["held_s"] < 60
