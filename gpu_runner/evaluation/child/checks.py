"""A vector addition in Triton, run the ways that evaluation needs; for `doctor`."""

from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

LENGTH = 1000
BLOCK = 256


@triton.jit
def add(x_ptr, y_ptr, out_ptr, length, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < length
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add_interpreted(request: dict[str, Any]) -> dict[str, str]:
    run_on("cpu")
    return {"detail": f"{LENGTH} sums are right"}


def add_on_gpu(request: dict[str, Any]) -> dict[str, str]:
    run_on("cuda")
    return {"detail": f"{LENGTH} sums are right on {torch.cuda.get_device_name()}"}


def run_on(device: str) -> None:
    x, y = (torch.randn(LENGTH, device=device) for _ in range(2))
    out = torch.empty_like(x)
    add[(triton.cdiv(LENGTH, BLOCK),)](x, y, out, LENGTH, BLOCK=BLOCK)
    torch.testing.assert_close(out, x + y)


def add_compiled(request: dict[str, Any]) -> dict[str, str]:
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "length": "i32"}
    source = ASTSource(
        fn=add, signature={**signature, "BLOCK": "constexpr"}, constexprs={"BLOCK": BLOCK}
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    return {"detail": f"{len(compiled.asm['cubin'])} bytes of machine code"}
