"""Runs every case of test_interpreter.py in one process with TRITON_INTERPRET=1 and prints what was seen as JSON."""

import contextlib
import itertools
import json
import math
import sys
import warnings
from unittest import mock

import torch
from triton.runtime.errors import InterpreterError, OutOfResources

from gpu_runner.core.targets import TARGETS
from gpu_runner.evaluation.child import interpreter, stand_in, untouched

interpreter.install(TARGETS["h200"])

import interpreted_kernels as k  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def watched(launch, outputs=(), **options):
    """Run the launch; what the session saw."""
    with (
        interpreter.session(**options) as seen,
        contextlib.suppress(InterpreterError, interpreter.Unevaluable),
    ):
        launch()
    return {
        "findings": seen.findings,
        "errors": seen.errors,
        "unevaluable": seen.unevaluable,
        "launches": [launch.as_json() for launch in seen.launches],
        "unwritten": [seen.unwritten_share(output) for output in outputs],
    }


def off(got, expected):
    return float((got.double() - expected.double()).abs().max())


@case
def right():
    x, o = torch.randn(1000), torch.full((1000,), math.nan)
    seen = watched(lambda: k.double[(4,)](x, o, 1000, BLOCK=256))
    return {**seen, "off": off(o, x * 2)}


@case
def reads_beyond():
    x = torch.randn(1000)
    return watched(lambda: k.reads_beyond[(4,)](x, torch.zeros(1000), 1000, BLOCK=256))


@case
def writes_far():
    x = torch.randn(1000)
    return watched(lambda: k.writes_far[(4,)](x, torch.zeros(1000), 1000, 1 << 33, BLOCK=256))


@case
def reads_before():
    x = torch.randn(100)
    return watched(lambda: k.reads_before[(1,)](x, torch.zeros(100), 100, BLOCK=128))


@case
def all_write_one():
    x = torch.randn(1000)
    return watched(lambda: k.all_write_one[(4,)](x, torch.zeros(1), 1000, BLOCK=256))


@case
def all_write_the_same():
    return watched(lambda: k.all_write_the_same[(4,)](torch.zeros(16), BLOCK=16))


@case
def all_add_one():
    x, o = torch.randn(1000), torch.zeros(1)
    seen = watched(lambda: k.all_add_one[(4,)](x, o, 1000, BLOCK=256))
    return {**seen, "off": off(o, x.sum())}


@case
def shifts_in_place():
    return watched(lambda: k.shifts_in_place[(4,)](torch.randn(256), 256, BLOCK=64))


@case
def doubles_in_place():
    return watched(lambda: k.doubles_in_place[(4,)](torch.randn(256), 256, BLOCK=64))


@case
def last_block_sums():
    x, o = torch.randn(256), torch.zeros(1)
    parts, counter = torch.zeros(4), torch.zeros(1, dtype=torch.int32)
    seen = watched(lambda: k.last_block_sums[(4,)](x, parts, counter, o, 256, BLOCK=64))
    return {**seen, "off": off(o, x.sum())}


@case
def unwritten_output():
    outputs = []

    def launch():
        outputs.append(torch.empty(100))
        k.double[(1,)](torch.randn(100), outputs[0], 90, BLOCK=128)

    with interpreter.session(poison=math.nan) as seen:
        launch()
    return {
        "share": seen.unwritten_share(outputs[0]),
        "poisoned": int(outputs[0].isnan().sum()),
        "findings": seen.findings,
    }


@case
def unwritten_input():
    def launch():
        x, o = torch.empty(100), torch.empty(100)
        k.double[(1,)](x, o, 100, BLOCK=128)

    return watched(launch)


@case
def written_by_torch():
    def launch():
        x, o = torch.empty(100), torch.empty(100)
        x[:50].zero_()
        x[50:].copy_(torch.ones(50))
        k.double[(1,)](x, o, 100, BLOCK=128)

    return watched(launch)


@case
def atomics_on_unwritten():
    return watched(lambda: k.all_add_one[(1,)](torch.ones(9), torch.empty(1), 9, BLOCK=16))


@case
def noop():
    x, o = torch.randn(100), torch.zeros(100)
    seen = watched(lambda: k.double[(1,)](x, o, 100, BLOCK=128), noop_kernels=frozenset({"double"}))
    return {**seen, "sum": float(o.abs().sum())}


@case
def softmax():
    x, o = torch.randn(50, 77), torch.zeros(50, 77)
    seen = watched(lambda: k.row_softmax[(50,)](x, o, 77, BLOCK=128))
    return {**seen, "off": off(o, x.softmax(-1))}


@case
def unknown_function():
    return watched(lambda: k.unknown_function[(1,)](torch.zeros(16), torch.zeros(16), BLOCK=16))


@case
def many_functions():
    x, o = torch.randn(300), torch.zeros(300)
    seen = watched(lambda: k.many_functions[(2,)](x, o, 300, 0.5, BLOCK=256))
    v = x.tanh() + x**2 + 0.5 * x.erf()
    return {**seen, "off": off(o, v + v.erf())}


def multiplied(dtype, precision="tf32", config=0):
    a, b = torch.randn(67, 131).to(dtype), torch.randn(131, 50).to(dtype)
    c = torch.zeros(67, 50)

    def launch():
        k.matmul[lambda m: (-(-67 // m["BM"]), -(-50 // m["BN"]))](
            a, b, c, 67, 50, 131, P=precision
        )

    seen = watched(launch, config=config)
    return {**seen, "off": off(c, a.double() @ b.double())}


@case
def matmul():
    return {
        "ieee": multiplied(torch.float32, "ieee"),
        "tf32": multiplied(torch.float32, "tf32"),
        "bf16": multiplied(torch.bfloat16),
        "fp16": multiplied(torch.float16),
        "second": multiplied(torch.float32, config=1),
        "named": multiplied(torch.float32, config={"matmul": 1}),
        "other": multiplied(torch.float32, config={"another": 1}),
    }


@case
def reductions():
    x, o = torch.randn(50, 77), torch.zeros(50, 2)
    seen = watched(lambda: k.welford[(50,)](x, o, 77, BLOCK=128))
    y, r = torch.randn(1000), torch.zeros(1000)
    watched(lambda: k.running_maximum[(1,)](y, r, 1000, BLOCK=1024))
    return {
        **seen,
        "mean": off(o[:, 0], x.mean(1)),
        "variance": off(o[:, 1], x.var(1, correction=0)),
        "maximum": off(r, y.cummax(0).values),
    }


@case
def bfloat16():
    x, y = torch.randn(100).bfloat16(), torch.randn(100).bfloat16()
    o = torch.zeros(100, dtype=torch.bfloat16)
    seen = watched(lambda: k.bfloat16_sum[(1,)](x, y, o, 100, BLOCK=128))
    return {**seen, "off": off(o, torch.where(x > y, x + y, x * y))}


@case
def bfloat16_reductions():
    x = (torch.arange(16) % 3).bfloat16()
    o, sums = torch.zeros_like(x), torch.zeros(1, dtype=torch.bfloat16)
    seen = watched(lambda: k.bfloat16_reductions[(1,)](x, o, sums, BLOCK=16))
    return {**seen, "off": max(off(o, x.cumsum(0)), off(sums, x.sum().reshape(1)))}


@case
def waits():
    return watched(lambda: k.waits[(2,)](torch.zeros(1, dtype=torch.int32), torch.zeros(1)))


@case
def rereads_a_scale():
    x, o = torch.ones(2 * 2100), torch.zeros(1)
    seen = watched(lambda: k.rereads_a_scale[(1,)](x, torch.full((1,), 2.0), o, 4200, BLOCK=2))
    return {**seen, "off": off(o, x.sum() * 2)}


@case
def assembly():
    return watched(lambda: k.assembly[(1,)](torch.zeros(4, dtype=torch.int32)))


@case
def block_pointers():
    x, o = torch.randn(50, 77), torch.zeros(50, 77)
    seen = watched(lambda: k.through_block_pointers[(4,)](x, o, 50, 77, BM=16, BN=32))
    return {**seen, "off": off(o, x * 2)}


@case
def block_pointer():
    return watched(
        lambda: k.block_pointer_without_check[(1,)](
            torch.zeros(10, 16), torch.zeros(16, 16), 10, 16, BM=16, BN=16
        )
    )


@case
def descriptors():
    x, o = torch.randn(50, 80), torch.zeros(50, 80)
    seen = watched(lambda: k.through_descriptors[(4,)](x, o, 50, 80, BM=16, BN=128))
    return {**seen, "off": off(o, x + 1)}


@case
def tables_of_pointers():
    parts = [torch.randn(50) for _ in range(3)]
    table = torch.tensor([p.data_ptr() for p in parts], dtype=torch.int64)
    o = torch.zeros(3)
    seen = watched(lambda: k.sums_pointed_to[(3,)](table, o, 50, BLOCK=64))
    return {**seen, "off": off(o, torch.stack([p.sum() for p in parts]))}


@case
def scalars():
    o = torch.zeros(16)
    seen = watched(lambda: k.takes_scalars[(1,)](o, True, 3, 0.5, "negative", BLOCK=16))
    return {**seen, "value": float(o[0])}


@case
def host_code():
    x, o = torch.randn(1000), torch.zeros(1000)
    with stand_in.acting_as_gpu():
        created_on = []
        seen = watched(lambda: created_on.append(k.persistent(x, o)))
    return {**seen, "created_on": created_on, "is_cuda": x.is_cuda, "off": off(o, x * 2)}


@case
def warmed():
    x, o = torch.randn(300), torch.zeros(300)
    seen = watched(lambda: k.warmed(x, o))
    return {**seen, "off": off(o, x * 2)}


@case
def atomics():
    x, o, counter = torch.randn(60), torch.full((2,), -9.0), torch.zeros(1, dtype=torch.int32)
    seen = watched(lambda: k.rarer_atomics[(2,)](x, o, counter, 60, BLOCK=64))
    y, sums = torch.ones(16).bfloat16(), torch.zeros(16, dtype=torch.bfloat16)
    watched(lambda: k.adds_bfloat16[(3,)](y, sums, BLOCK=16))
    values = [float(o[0] - x.max()), float(o[1]), int(counter), float(sums.float().sum())]
    return {**seen, "values": values}


@case
def too_large_grid():
    o = torch.zeros(16)
    with interpreter.session() as seen, contextlib.suppress(OutOfResources):
        k.all_write_the_same[(1, 70_000)](o, BLOCK=16)
    return {"findings": seen.findings, "sum": float(o.sum())}


@case
def reversed_order():
    def run(reverse):
        x = torch.arange(256, dtype=torch.float32)
        watched(lambda: k.shifts_in_place[(4,)](x, 256, BLOCK=64), reverse=reverse)
        return x

    return {"differs": bool((run(False) != run(True)).any())}


@case
def outside_a_session():
    o = torch.zeros(100)
    k.double[(1,)](torch.ones(100), o, 100, BLOCK=128)
    return {"sum": float(o.sum())}


@case
def full_size():
    with untouched.full_size():
        a, b = torch.randn(8192, 4096), torch.randn(4096, 8192)
    with untouched.full_size() as world:
        c = torch.empty(8192, 8192)
        k.matmul[lambda m: (-(-8192 // m["BM"]), -(-8192 // m["BN"]))](
            a, b, c, 8192, 8192, 4096, P="ieee"
        )
        torch.relu_(c)
    return {
        "launches": [launch.as_json() for launch in world.launches],
        "operations": [operation.as_json() for operation in world.operations],
        "findings": world.findings,
    }


@case
def cut_short():
    """On a clock that each access to memory moves on by a second."""
    x, o = torch.randn(256), torch.empty(256)
    sampling = interpreter.Sampling(seconds=3.0)
    with mock.patch("time.thread_time", side_effect=itertools.count()):
        return watched(lambda: k.double[(4,)](x, o, 256, BLOCK=64), sampling=sampling)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    json.dump({name: run() for name, run in CASES.items()}, sys.stdout)
