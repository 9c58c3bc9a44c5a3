"""Runs the kernels and examples of test_roofline.py at full size over reserved memory and prints their counts as JSON."""

import json
import sys
import time
from pathlib import Path

import torch
import triton

from gpu_runner.core.targets import TARGETS
from gpu_runner.evaluation.child import interpreter, untouched

interpreter.install(TARGETS["h200"])

import modelled_kernels as k  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
blocks = triton.cdiv


def new(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype)


def matmul(tile, precision="ieee", dtype=torch.float32, n=4096):
    a, b, c = (new(n, n, dtype=dtype) for _ in range(3))
    bm, bn, bk = tile
    k.matmul[(blocks(n, bm), blocks(n, bn))](a, b, c, n, n, n, BM=bm, BN=bn, BK=bk, P=precision)


def elementwise(kernel, n=1 << 26, block=1024):
    kernel[(blocks(n, block),)](new(n), new(n), n, BLOCK=block)


def by_rows(kernel, block):
    kernel[(16384,)](new(16384, 4096), new(16384, 4096), 4096, BLOCK=block)


def scaled_then_silu():
    elementwise(k.scaled)
    elementwise(k.silu)


def attention(pieces):
    """Of `pieces` different tensors out of one storage: queries, keys and values."""
    packed = [*new(pieces, 128, 1024, 64, dtype=torch.bfloat16)]
    q, key, v = [*packed, packed[0], packed[0]][:3]
    o = new(128, 1024, 64, dtype=torch.bfloat16)
    k.attention[(16, 128)](q, key, v, o, 1024, 0.125, D=64, BM=64, BN=64)


def transposes(kernel, grid, block):
    kernel[grid](new(16384, 4096), new(4096, 16384), 16384, 4096, BLOCK=block)


CASES = {
    "matmul_ieee_64": lambda: matmul((64, 64, 32)),
    "matmul_tf32_128": lambda: matmul((128, 128, 32), "tf32"),
    "matmul_tf32_16": lambda: matmul((16, 16, 16), "tf32"),
    "matmul_tf32x3_64": lambda: matmul((64, 64, 32), "tf32x3"),
    "matmul_bf16_64": lambda: matmul((64, 64, 32), dtype=torch.bfloat16),
    "matmul_bf16_128": lambda: matmul((128, 128, 64), dtype=torch.bfloat16),
    "matmul_bf16_256": lambda: matmul((128, 256, 64), dtype=torch.bfloat16),
    "silu_32": lambda: elementwise(k.silu, block=32),
    "silu_128": lambda: elementwise(k.silu, block=128),
    "silu_1024": lambda: elementwise(k.silu),
    "scaled_silu": lambda: elementwise(k.scaled_silu),
    "scaled_then_silu": scaled_then_silu,
    "softmax_once": lambda: by_rows(k.softmax_once, 4096),
    "softmax_32_warps": lambda: by_rows(k.softmax_once, 4096),
    "softmax_thrice": lambda: by_rows(k.softmax_thrice, 1024),
    "transpose_by_columns": lambda: transposes(k.transpose_by_columns, (4096, 128), 128),
    "transpose_by_tiles": lambda: transposes(k.transpose_by_tiles, (64, 256), 64),
    "tiny": lambda: elementwise(k.silu, n=4096),
    "attention_bf16": lambda: attention(3),
    "attention_of_itself": lambda: attention(1),
}


def counted(call):
    began = time.monotonic()
    with untouched.full_size() as world:
        call()
    own = {"aten::randn", "randn"}
    return {
        "launches": [launch.as_json() for launch in world.launches],
        "operations": [o.as_json() for o in world.operations if o.op not in own],
        "findings": world.findings,
        "errors": world.errors,
        "seconds": time.monotonic() - began,
    }


def eager(path):
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with untouched.full_size():
        model, inputs = names["Model"](*names["get_init_inputs"]()), names["get_inputs"]()
    return counted(lambda: model(*inputs))


if __name__ == "__main__":
    seen = {
        "kernels": {name: counted(run) for name, run in CASES.items()},
        "eager": {path.stem: eager(path) for path in sorted(EXAMPLES.glob("level*/*.py"))},
    }
    json.dump(seen, sys.stdout)
