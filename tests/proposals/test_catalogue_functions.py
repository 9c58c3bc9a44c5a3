"""The functions that stand in for library calls: right at ragged sizes, and compiling for a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from gpu_runner.proposals.catalogue import function_for

INTERPRETED = """
import json, sys
import torch

def error(got, expected):
    return float((got.double() - expected.double()).abs().max() / expected.double().pow(2).mean().sqrt())

torch.manual_seed(0)
namespace = {"__name__": "candidate"}
"""


def run_interpreted(body: str, tmp_path) -> dict:
    """Run a script under Triton's interpreter; its last printed line is JSON."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(body))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_products_agree_with_torch_at_ragged_sizes(tmp_path) -> None:
    functions = [
        function_for("mm", sizes=(70, 50, 33)),
        function_for("aten.mm.default", name="mm_half", dtype="float16", sizes=(70, 50, 33)),
        function_for("addmm", alpha=0.5, beta=2.0),
        function_for("bmm"),
        function_for("baddbmm"),
    ]
    (tmp_path / "candidate.py").write_text(
        functions[0].imports + "\n\n".join(function.text for function in functions)
    )
    errors = run_interpreted(
        INTERPRETED
        + """
import candidate
a, b = torch.randn(70, 33), torch.randn(50, 33).t()
A, B = torch.randn(3, 40, 33), torch.randn(3, 33, 70).transpose(0, 1).contiguous().transpose(0, 1)
bias, row, batch = torch.randn(50), torch.randn(70, 1), torch.randn(3, 1, 70)
out = torch.full((50, 70), float("nan")).t()
candidate.mm(a, b, out=out)
print(json.dumps({
    "mm": error(candidate.mm(a, b), a @ b),
    "mm_out": error(out, a @ b),
    "mm_half": error(candidate.mm_half(a.half(), b.half()), a @ b),
    "addmm": error(candidate.addmm(bias, a, b), torch.addmm(bias, a, b, alpha=0.5, beta=2.0)),
    "addmm_row": error(candidate.addmm(row, a, b), torch.addmm(row, a, b, alpha=0.5, beta=2.0)),
    "bmm": error(candidate.bmm(A, B), A @ B),
    "baddbmm": error(candidate.baddbmm(batch, A, B), torch.baddbmm(batch, A, B)),
    "dtype": str(candidate.mm_half(a.half(), b.half()).dtype),
}))
""",
        tmp_path,
    )
    assert errors.pop("dtype") == "torch.float16"
    assert errors.pop("mm_half") < 1e-2
    assert max(errors.values()) < 1e-5, errors


def test_convolutions_agree_with_torch(tmp_path) -> None:
    functions = [
        function_for("convolution", name="dense"),
        function_for("convolution", name="plain", bias=False),
        function_for("convolution", name="depthwise", depthwise=True),
    ]
    (tmp_path / "candidate.py").write_text(
        functions[0].imports + "\n\n".join(function.text for function in functions)
    )
    errors = run_interpreted(
        INTERPRETED
        + """
import candidate
from torch.ops import aten
def both(function, x, w, bias, stride, padding, dilation, groups):
    arguments = (x, w, bias, stride, padding, dilation, False, [0] * len(stride), groups)
    return error(function(*arguments), torch.ops.aten.convolution(*arguments))
x = torch.randn(2, 6, 11, 9)
print(json.dumps({
    "plain": both(candidate.plain, x, torch.randn(10, 6, 3, 3), None, [1, 1], [1, 1], [1, 1], 1),
    "strided": both(candidate.dense, x, torch.randn(10, 6, 3, 2), torch.randn(10), [2, 1], [1, 0], [1, 2], 1),
    "grouped": both(candidate.dense, x, torch.randn(10, 3, 3, 3), torch.randn(10), [1, 1], [1, 1], [2, 1], 2),
    "last": both(candidate.dense, x.to(memory_format=torch.channels_last), torch.randn(10, 6, 1, 1),
                 torch.randn(10), [1, 1], [0, 0], [1, 1], 1),
    "line": both(candidate.dense, torch.randn(2, 6, 37), torch.randn(8, 6, 5), torch.randn(8), [2], [2], [1], 1),
    "depthwise": both(candidate.depthwise, x, torch.randn(12, 1, 3, 3), torch.randn(12), [2, 2], [1, 1], [1, 1], 6),
}))
""".replace("", ""),
        tmp_path,
    )
    assert max(errors.values()) < 1e-5, errors


def test_an_operation_without_a_template_gives_none() -> None:
    assert function_for("aten._fft_c2c.default") is None


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_the_precision_is_written_into_the_kernel(precision: str) -> None:
    text = function_for("addmm", precision=precision).text
    assert f'input_precision="{precision}"' in text
