"""Candidates a minute that an evaluator gets through, with its stages, and the same when half of the candidates crash.

Elementwise and row kernels over 64 MB in float32, each candidate another text. The clock starts when every slot has opened its
task. Run: python benchmarks/throughput.py [--device cuda] [--slots 8] [--candidates 48] [--out FILE]
"""

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings

TASK = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, COLUMNS = 4096, 4096


class Model(nn.Module):
    def forward(self, x):
        return {call}


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
KERNEL = """\
import os

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def of_rows(x, out, n_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_columns
    value = tl.load(x + row * n_columns + columns, mask=mask, other={other})
{body}
    tl.store(out + row * n_columns + columns, value, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        {crash}
        out = torch.empty_like(x)
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        of_rows[(rows,)](x, out, columns, BLOCK=block, num_warps={warps})
        return out  # {number}
"""
KINDS = {
    "silu": ("F.silu(x)", "0.0", "    value = value / (1 + tl.exp(-value))"),
    "softmax": (
        "torch.softmax(x, dim=-1)",
        '-float("inf")',
        "    value = tl.exp(value - tl.max(value, 0))\n    value = value / tl.sum(value, 0)",
    ),
}
CRASHES = ("os._exit(3)", "os.abort()", "raise ValueError('no')", "x.view(-1)[1 << 40]")


def tasks() -> dict[str, TaskSpec]:
    return {
        name: TaskSpec(name=name, source=TASK.format(call=call))
        for name, (call, _, _) in KINDS.items()
    }


def candidate(kind: str, number: int, crash: str) -> str:
    _, other, body = KINDS[kind]
    warps = (4, 8, 16)[number % 3]
    return KERNEL.format(other=other, body=body, crash=crash, warps=warps, number=number)


def run(
    pool: LocalPool, kind: str, spec: TaskSpec, count: int, *, crash: bool
) -> dict[str, object]:
    """`count` candidates of one task through all slots."""
    sources = [
        candidate(kind, n, CRASHES[n // 2 % len(CRASHES)] if crash and n % 2 else "pass")
        for n in range(count)
    ]
    with ThreadPoolExecutor(pool.slots) as threads:
        list(
            threads.map(
                lambda n: pool.evaluate(spec, candidate(kind, 1000 + n, "pass")), range(pool.slots)
            )
        )
        started = time.perf_counter()
        found = list(threads.map(lambda source: pool.evaluate(spec, source), sources))
        seconds = time.perf_counter() - started
    return {
        "kind": kind,
        "half_crash": crash,
        "candidates": count,
        "seconds": round(seconds, 1),
        "a_minute": round(60 * count / seconds, 1),
        "verdicts": Counter(str(one.verdict or one.state) for one in found),
        "stages_s": _stages(found),
    }


def _stages(found: list[Evaluation]) -> dict[str, float]:
    """Mean seconds in each stage of the correct ones; waiting for the device counts in the stage that waits."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for one in found:
        if one.is_correct:
            for stage in one.stages:
                seconds[str(stage.name)].append(stage.seconds)
            for step, spent in one.profile.get("timing_s", {}).items():
                seconds[f"timing.{step}"].append(spent)
            seconds["held"].append(one.profile.get("held_s", 0.0))
    return {name: round(sum(values) / len(values), 2) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="auto")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=48)
    parser.add_argument("--only", nargs="*", default=list(KINDS))
    parser.add_argument("--halves", type=int, default=2, help="1: without the half that crashes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    with open_pool(EvaluationSettings(device=options.device, slots=options.slots)) as pool:
        print(f"{pool.device.name}, {options.slots} slots", flush=True)
        for kind, spec in tasks().items():
            if kind not in options.only:
                continue
            for crash in (False, True)[: options.halves]:
                row = run(pool, kind, spec, options.candidates, crash=crash)
                rows.append(row)
                print(
                    f"{kind:8} half crash {crash!s:5} {row['a_minute']:6} a minute  {dict(row['verdicts'])}  {row['stages_s']}",
                    flush=True,
                )
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
