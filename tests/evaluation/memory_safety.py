"""Launches the kernels of safety_kernels.py in one process with TRITON_INTERPRET=1; prints what each case saw as JSON."""

import contextlib
import json
import math
import warnings

import torch
from torch import randn, zeros
from triton.runtime.errors import InterpreterError
from triton.tools.tensor_descriptor import TensorDescriptor

from gpu_runner.core.targets import TARGETS
from gpu_runner.evaluation.child import dispatch, interpreter  # noqa: F401 - dispatch: no import of dynamo

interpreter.install(TARGETS["h200"])

import safety_kernels as k  # noqa: E402


def partly_written(count):
    x = torch.empty(100)
    x[:count].fill_(1.0)
    return x


def copied_twice():
    between = torch.empty(100)
    k.copies[(4,)](randn(100), between, 100, BLOCK=32)
    k.copies[(4,)](between, torch.empty(100), 100, BLOCK=32)


def copied_view():
    x = torch.empty(10, 10)
    x.zero_()
    k.copies[(2,)](x.view(-1)[40:], torch.empty(60), 60, BLOCK=32)


def described(rows):
    return TensorDescriptor(randn(20, 16), [rows, 16], [16, 1], [16, 16])


CASES = {
    "stores_beyond": lambda: k.stores_beyond[(4,)](zeros(100), 100, BLOCK=32),
    "stores_before": lambda: k.stores_before[(1,)](zeros(64), 64, BLOCK=64),
    "scalar_load": lambda: k.scalar_load[(1,)](randn(10), zeros(1), 10),
    "scalar_load negative": lambda: k.scalar_load[(1,)](randn(10), zeros(1), -1),
    "scalar_load fine": lambda: k.scalar_load[(1,)](randn(10), zeros(1), 9),
    "scalar_load in padding": lambda: k.scalar_load[(1,)](randn(42)[:10], zeros(1), 12),
    "gathers": lambda: k.gathers[(1,)](randn(20), torch.arange(1, 21), zeros(20), 20, BLOCK=32),
    "gathers fine": lambda: k.gathers[(1,)](randn(20), torch.arange(20), zeros(20), 20, BLOCK=32),
    "gathers_masked": lambda: k.gathers_masked[(1,)](
        randn(20), torch.arange(-3, 17), zeros(20), 20, BLOCK=32
    ),
    "adds_beyond": lambda: k.adds_beyond[(1,)](zeros(20), 20, BLOCK=32),
    "adds_masked": lambda: k.adds_masked[(2,)](zeros(20), 20, BLOCK=32),
    "swaps_beyond": lambda: k.swaps_beyond[(1,)](torch.zeros(4, dtype=torch.int32), 4),
    "block_store": lambda: k.block_store[(1,)](zeros(20), 20, BLOCK=32),
    "block_checked": lambda: k.block_checked[(1,)](zeros(20), 20, BLOCK=32),
    "block_lies": lambda: k.block_lies[(1,)](randn(20), zeros(20), 20, BLOCK=32),
    "descriptor_checked": lambda: k.descriptor_checked[(2,)](
        randn(20, 16), zeros(20, 16), 20, BLOCK=16
    ),
    "descriptor_lies": lambda: k.descriptor_lies[(1,)](randn(20, 16), zeros(20, 16), 20, BLOCK=16),
    "host_descriptor": lambda: k.host_descriptor[(2,)](described(20), zeros(20), BLOCK=16),
    "host_descriptor lies": lambda: k.host_descriptor[(2,)](described(32), zeros(20), BLOCK=16),
    "rows padded view": lambda: k.rows[(8,)](randn(8, 32)[:, :20], zeros(8, 20), 20, 32, BLOCK=32),
    "rows wrong stride in padding": lambda: k.rows[(8,)](
        randn(8, 32)[:, :20], zeros(8, 20), 20, 20, BLOCK=32
    ),
    "rows past end": lambda: k.rows[(9,)](randn(8, 32), zeros(9, 20), 20, 32, BLOCK=32),
    "last_row_only": lambda: k.last_row_only[(8,)](randn(8, 20), zeros(8, 20), 20, BLOCK=32),
    "wraps": lambda: k.wraps[(1,)](randn(100), zeros(20), 20, 1 << 29, BLOCK=32),
    "all_write": lambda: k.all_write[(4,)](zeros(16), BLOCK=16),
    "all_write_same": lambda: k.all_write_same[(4,)](zeros(16), BLOCK=16),
    "all_write empty": lambda: k.all_write[(4,)](torch.empty(16), BLOCK=16),
    "adds_without_atomics": lambda: k.adds_without_atomics[(4,)](
        randn(100), zeros(1), 100, BLOCK=32
    ),
    "adds_with_atomics": lambda: k.adds_with_atomics[(4,)](randn(100), zeros(1), 100, BLOCK=32),
    "adds_with_atomics empty": lambda: k.adds_with_atomics[(4,)](
        randn(100), torch.empty(1), 100, BLOCK=32
    ),
    "overlapping_tiles": lambda: k.overlapping_tiles[(6,)](randn(100), zeros(100), 100, BLOCK=32),
    "overlapping_but_equal": lambda: k.overlapping_but_equal[(6,)](
        randn(100), torch.empty(100), 100, BLOCK=32
    ),
    "shifts": lambda: k.shifts[(4,)](randn(100), 100, BLOCK=32),
    "shifts one program": lambda: k.shifts[(1,)](randn(100), 100, BLOCK=128),
    "stores_plainly_what_others_add": lambda: k.stores_plainly_what_others_add[(4,)](
        randn(100), zeros(1), 100, BLOCK=32
    ),
    "one_lane_twice": lambda: k.one_lane_twice[(1,)](zeros(16), BLOCK=16),
    "copies unwritten": lambda: k.copies[(4,)](torch.empty(100), zeros(100), 100, BLOCK=32),
    "copies": lambda: k.copies[(4,)](randn(100), torch.empty(100), 100, BLOCK=32),
    "copies partly": lambda: k.copies[(4,)](partly_written(90), zeros(100), 100, BLOCK=32),
    "copies of written by kernel": copied_twice,
    "copies view of written": copied_view,
    "accumulates": lambda: k.accumulates[(4,)](torch.empty(100), 100, BLOCK=32),
    "accumulates zeros": lambda: k.accumulates[(4,)](zeros(100), 100, BLOCK=32),
    "reads_tail": lambda: k.reads_tail[(4,)](partly_written(95), zeros(100), 100, BLOCK=32),
    "double_bytes": lambda: k.double_bytes[(1,)](
        zeros(20), torch.zeros(32, dtype=torch.int64), 20, BLOCK=32
    ),
}


def seen_in(launch):
    with (
        interpreter.session(poison=math.nan) as seen,
        contextlib.suppress(InterpreterError, interpreter.Unevaluable),
    ):
        launch()
    return {"findings": seen.findings, "errors": seen.errors, "unevaluable": seen.unevaluable}


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    print(json.dumps({name: seen_in(launch) for name, launch in CASES.items()}))
