"""Compiles every case of test_compiling.py for the target named on the command line; prints what came out as JSON."""

import json
import sys

import torch

from gpu_runner.core.targets import target_named
from gpu_runner.evaluation.child import compiling

compiling.install(target_named(sys.argv[1]))

import compiled_candidates as c  # noqa: E402

N = 1 << 28  # a gigabyte: nothing is touched


def one(kernel, *args):
    return lambda: kernel[(1,)](*args, BLOCK=128)


def spilling(kernel):
    return lambda: kernel[(1,)](
        torch.empty(2048), torch.empty(1024), 100, BLOCK=1024, num_warps=1, maxnreg=40
    )


def pair():
    return torch.empty(128), torch.empty(128)


CASES = {
    "double": lambda: c.run_double(N),
    "registers": lambda: c.run_with_registers(N),
    "warmed": lambda: c.run_warmed(N),
    "tf32": lambda: c.run_matmul("tf32"),
    "in_helper": one(c.calls_helper, *pair()),
    "unlike_shapes": one(c.unlike_shapes, *pair()),
    "unknown_name": one(c.unknown_name, pair()[0]),
    "bad_block": lambda: c.bad_block[(1,)](*pair(), 100),
    "falls_back": c.falls_back,
    "grid": lambda: c.double[(1, 1 << 17)](*pair(), 128, BLOCK=128),
}
if sys.argv[1] == "h200":
    CASES["ieee"] = lambda: c.run_matmul("ieee")
    for kernel in (c.spills_in_its_loop, c.spills_after_its_loop):
        CASES[kernel.__name__] = spilling(kernel)
    CASES["bf16"] = lambda: c.run_matmul("ieee", torch.bfloat16)


def host_error():
    def call():
        c.run_double(1024)
        raise KeyError("the host's own")

    try:
        compiling.compile_call(call)
    except KeyError as error:
        return str(error)
    return None


if __name__ == "__main__":
    names = sys.argv[2:] or list(CASES)
    started = []
    out = {
        name: [
            kernel.as_json()
            for kernel in compiling.compile_call(
                CASES[name], most_configs=3, on_start=started.append
            )
        ]
        for name in names
    }
    json.dump({**out, "host_error": host_error(), "started": started}, sys.stdout)
