"""The children of `first_on_gpu.py`: a lender, a borrower, and one that counts what it can see."""

import os
import time
from pathlib import Path
from typing import Any

import torch

from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.child.cuda_memory import CudaMemory
from gpu_runner.evaluation.protocol import Placed

N = 1 << 28


def place() -> Placed:
    return Placed(shape=(N,), dtype="float32")


def lend(channel: Channel, fds: list[int]) -> None:
    """The judge's part: lend an input and an output, check the output, check that the input is intact."""
    memory = CudaMemory("cuda:0")
    given, taken = memory.lend(4 * N), memory.lend(4 * N)
    x = given.tensor(place()).normal_()
    torch.cuda.synchronize()
    kept = x[:1000].clone()
    channel.send({"lent": True}, [given.fd, taken.fd])
    channel.receive(60)
    right = torch.equal(taken.tensor(place()), x.relu())
    channel.receive(60)
    channel.send({"right": right, "intact": torch.equal(x[:1000], kept)})


def borrow(channel: Channel, fds: list[int]) -> None:
    """The player's part: a Triton kernel from lent input to lent output, then an attempt to write to the input."""
    started = time.perf_counter()
    memory = CudaMemory("cuda:0")
    cuda_s = time.perf_counter() - started
    _, fds = channel.receive(60)
    started = time.perf_counter()
    x = memory.adopt(fds[0], 4 * N, writable=False).tensor(place())
    out = memory.adopt(fds[1], 4 * N, writable=True).tensor(place())
    adopt_s = time.perf_counter() - started
    started = time.perf_counter()
    relu(x, out)
    torch.cuda.synchronize()
    channel.send(
        {
            "cuda_s": cuda_s,
            "adopt_s": adopt_s,
            "kernel_s": time.perf_counter() - started,
            "seen": seen(),
        }
    )
    channel.receive(60)
    try:
        x.zero_()
        torch.cuda.synchronize()
    except RuntimeError as error:
        channel.send({"writing": str(error).splitlines()[0]})
        os._exit(0)
    channel.send({"writing": "succeeded"})


def relu(x: torch.Tensor, out: torch.Tensor) -> None:
    import first_kernel

    first_kernel.relu[(N // 1024,)](x, out, BLOCK=1024)


def seen() -> dict[str, Any]:
    status = Path("/proc/self/status").read_text()
    return {
        "processes": sum(name.isdigit() for name in os.listdir("/proc")),
        "capabilities": next(
            line.split()[1] for line in status.splitlines() if line.startswith("CapEff")
        ),
        "devices": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
    }
