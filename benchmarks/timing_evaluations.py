"""Times as an evaluation gives them: A/A through the evaluator, agreement with torch.profiler, agreement with a later timing.

Each kernel is evaluated against itself as the user's own baseline, again and again, each time by fresh processes. Asked is
whether the interval of that ratio holds 1 and how wide it is; whether the interval of the speedup over eager holds what the
next evaluation finds; and whether `device_us` is what the profiler says that the kernel takes. Needs a GPU.
Run: python benchmarks/timing_evaluations.py [--pairs 10] [--slots 4] [--out FILE]
"""

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.evaluation.errors import InvalidTask, RunnerError
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings

TASK = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

{sizes}


class Model(nn.Module):
    def forward(self, {names}):
        return {call}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
ROWS = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_of_rows(x, out, n_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_columns
    value = tl.load(x + row * n_columns + columns, mask=mask, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n_columns + columns, value / tl.sum(value, 0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        softmax_of_rows[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return out
"""
PRODUCT = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        at = start + depth
        left = tl.load(
            a + rows[:, None] * k + at[None, :], (rows[:, None] < m) & (at[None, :] < k), 0.0
        )
        right = tl.load(
            b + at[:, None] * n + columns[None, :], (at[:, None] < k) & (columns[None, :] < n), 0.0
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * n + columns[None, :], total, mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[1]
        out = torch.empty(m, n, device=a.device)
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
        product[grid](a, b, out, m, n, k, M=64, N=64, K=32, num_warps=4)
        return out
"""


@dataclass(frozen=True)
class Case:
    """One kernel at one size. `is_paired`: part of the A/A, else only set beside the profiler."""

    name: str
    spec: TaskSpec
    candidate: str
    is_paired: bool


def cases() -> list[Case]:
    return [
        _rows("rows 5 us", 128),
        _rows("rows 40 us", 4096),
        _rows("rows 250 us", 32768),
        _product("product 2 ms", 2432, True),
        _product("product 150 us", 1024, False),
        _product("product 10 ms", 4096, False),
    ]


def _rows(name: str, rows: int) -> Case:
    source = TASK.format(
        sizes=f"ROWS, COLUMNS = {rows}, 4096",
        names="x",
        call="torch.softmax(x, dim=-1)",
        inputs="torch.randn(ROWS, COLUMNS)",
    )
    return Case(name, TaskSpec(name=name, source=source, baseline_source=ROWS), ROWS, True)


def _product(name: str, side: int, paired: bool) -> Case:
    source = TASK.format(
        sizes=f"SIDE = {side}",
        names="a, b",
        call="a @ b",
        inputs="torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)",
    )
    return Case(name, TaskSpec(name=name, source=source, baseline_source=PRODUCT), PRODUCT, paired)


def evaluations(pool: LocalPool, case: Case, pairs: int) -> list[Evaluation]:
    """Each of another text, so that nothing is remembered; none where the task cannot be opened."""
    count = pairs if case.is_paired else 1
    try:
        return [pool.evaluate(case.spec, f"{case.candidate}\n# {n}\n") for n in range(count)]
    except (InvalidTask, RunnerError) as error:
        print(f"{case.name}: {error}", file=sys.stderr, flush=True)
        return []


def by_the_profiler(case: Case, calls: int = 20) -> float:
    """Microseconds a call: the median of what the profiler says of the candidate's own kernels, L2 flushed between."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    names = {"task": case.spec.source, "candidate": case.candidate}
    modules = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, source in names.items():
            path = Path(folder) / f"{name}.py"
            path.write_text(source)
            found = importlib.util.spec_from_file_location(name, path)
            assert found is not None
            assert found.loader is not None
            modules[name] = importlib.util.module_from_spec(found)
            found.loader.exec_module(modules[name])
        call: Callable[..., torch.Tensor] = modules["candidate"].ModelNew()
        inputs = [one.cuda() for one in modules["task"].get_inputs()]
        flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
        for _ in range(5):
            call(*inputs)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as taken:
            for _ in range(calls):
                flush.zero_()
                call(*inputs)
            torch.cuda.synchronize()
    wanted = ("softmax_of_rows", "product")
    return statistics.median(
        event.device_time for event in taken.events() if event.name.startswith(wanted)
    )


def report(case: Case, found: list[Evaluation]) -> dict[str, object]:
    right = [one for one in found if one.is_correct and one.candidate and one.speedup.eager]
    own = [one.speedup.user for one in right if one.speedup.user and one.speedup.user.low]
    later = list(zip(right[::2], right[1::2], strict=False))
    return {
        "kernel": case.name,
        "evaluations": len(found),
        "correct": len(right),
        "device_us": [one.candidate.device_us for one in right],
        "aa": [(one.low, one.ratio, one.high) for one in own],
        "eager": [
            (one.speedup.eager.low, one.speedup.eager.ratio, one.speedup.eager.high)
            for one in right
        ],
        "holds_1": sum(one.low <= 1 <= one.high for one in own),
        "pairs": len(own),
        "half_widths": [(one.high - one.low) / 2 for one in own],
        "holds_the_later": sum(
            a.speedup.eager.low <= b.speedup.eager.ratio <= a.speedup.eager.high for a, b in later
        ),
        "later": len(later),
        "others": [(str(one.verdict), one.kind, one.state) for one in found if not one.is_correct],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    everything = cases()
    started = time.perf_counter()
    with (
        open_pool(EvaluationSettings(device="cuda", slots=options.slots)) as pool,
        ThreadPoolExecutor(options.slots) as threads,
    ):
        found = list(threads.map(lambda one: evaluations(pool, one, options.pairs), everything))
    print(f"evaluated in {time.perf_counter() - started:.0f} s", flush=True)
    rows = []
    for case, ours in zip(everything, found, strict=True):
        row = report(case, ours)
        row["profiler_us"] = by_the_profiler(case)
        rows.append(row)
        times, halves = row["device_us"], row["half_widths"]
        device_us = statistics.median(times) if times else float("nan")
        difference = device_us - row["profiler_us"]
        allowed = max(0.02 * row["profiler_us"], 1.5)
        print(
            f"{case.name:15} {row['correct']}/{row['evaluations']} correct  holds 1: {row['holds_1']}/{row['pairs']}  "
            f"half width {100 * statistics.median(halves) if halves else 0:.2f} % (worst {100 * max(halves, default=0):.2f})  "
            f"holds the later: {row['holds_the_later']}/{row['later']}  device {device_us:.2f} us, profiler "
            f"{row['profiler_us']:.2f} us, off by {difference:+.2f} of {allowed:.2f} us  {row['others'] or ''}",
            flush=True,
        )
    if options.out:
        options.out.write_text("\n".join(json.dumps(row) for row in rows) + "\n")


if __name__ == "__main__":
    main()
