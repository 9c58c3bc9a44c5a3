"""A/A on a GPU: the same kernel in two processes. Does the interval of the ratio hold 1, and how wide is it?

Also answers, before the evaluator relies on it: do gates hold a stream of another process, do the claims of a window add up to
the judge's clock, and what is the overhead. Run: python benchmarks/timing_aa.py [--pairs 10] [--out FILE]
"""

import argparse
import json
import multiprocessing
import random
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import triton
import triton.language as tl

from gpu_runner.core.intervals import ratio_interval
from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.child.cuda_memory import CudaMemory, Gate
from gpu_runner.evaluation.child.timing import (
    FLUSH_BYTES,
    Plan,
    Window,
    measure,
    run_host_window,
    run_window,
)
from gpu_runner.evaluation.protocol import Placed

ROWS = {"5us": 128, "40us": 4096, "250us": 32768, "2ms": 262144}
COLUMNS = 4096


@triton.jit
def softmax_rows(x, out, n_columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_columns
    value = tl.load(x + row * stride + columns, mask=mask, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * stride + columns, value / tl.sum(value, 0), mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    softmax_rows[(x.shape[0],)](x, out, x.shape[1], x.stride(0), BLOCK=COLUMNS, num_warps=8)
    return out


def matrix(rows: int) -> Placed:
    return Placed(shape=(rows, COLUMNS), dtype="float32", stride=None, offset=0)


class PlayerProcess:
    """The far end: composes from lent slabs, runs windows."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.memory = CudaMemory("cuda")
        self.flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self.gap = torch.empty(1, device="cuda")

    def serve(self) -> None:
        while True:
            message, fds = self.channel.receive(600)
            if message["do"] == "end":
                return
            self.channel.send(getattr(self, message["do"])(message, fds))

    def setup(self, message: dict, fds: list[int]) -> dict:
        nbytes = message["rows"] * COLUMNS * 4
        self.slab = self.memory.adopt(fds[0], nbytes, writable=False).tensor(
            matrix(message["rows"])
        )
        self.out = self.memory.adopt(fds[1], nbytes, writable=True).tensor(matrix(message["rows"]))
        self.gate = Gate(self.memory.adopt(fds[2], 4, writable=False))
        self.call = self.tick if message["noop"] else softmax
        self.place({"seed": 0}, [])
        self.call(self.x)
        torch.cuda.synchronize()
        return {}

    def tick(self, x: torch.Tensor) -> torch.Tensor:
        """One launch that does nothing: what surrounds a launch is overhead, too."""
        self.gap.zero_()
        return x

    def place(self, message: dict, fds: list[int]) -> dict:
        rng = random.Random(message["seed"])
        self.x = self.junk = None
        torch.cuda.empty_cache()
        self.junk = [
            torch.empty(rng.randrange(1, 64) << 20, dtype=torch.uint8, device="cuda")
            for _ in range(3)
        ]
        self.x = torch.empty_like(self.slab)
        return {}

    def compose(self, index: int) -> Sequence[torch.Tensor]:
        self.x.copy_(self.slab)
        return (self.x,)

    def window(self, message: dict, fds: list[int]) -> dict:
        times = run_window(
            self.call,
            self.compose,
            lambda index, output: self.out.copy_(output),
            self.flush,
            message["calls"],
            lambda: self.gate.hold(message["ticket"]),
            lambda: self.channel.send({"enqueued": True}),
        )
        return {"times": times}

    def host(self, message: dict, fds: list[int]) -> dict:
        return {"times": run_host_window(self.call, self.compose, self.flush, message["calls"])}


class RemotePlayer:
    def __init__(self, name: str, channel: Channel, gate: Gate) -> None:
        self.name, self.channel, self.gate, self.ticket = name, channel, gate, 0

    def ask(self, **message) -> dict:
        self.channel.send(message)
        return self.channel.receive(120)[0]

    def begin_place(self, seed: int) -> None:
        self.channel.send({"do": "place", "seed": seed})

    def finish_place(self) -> None:
        self.channel.receive(120)

    def window(self, calls: int, seed: int) -> Window:
        self.ticket += 1
        assert self.ask(do="window", calls=calls, ticket=self.ticket) == {"enqueued": True}
        started = time.perf_counter()
        self.gate.open(self.ticket)
        times = self.channel.receive(120)[0]["times"]
        return Window(tuple(times), (time.perf_counter() - started) * 1e6, True)

    def host_window(self, calls: int, seed: int) -> Sequence[float]:
        return self.ask(do="host", calls=calls)["times"]


def start(rows: int, name: str, memory: CudaMemory, slab, context) -> RemotePlayer:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    process = context.Process(target=_far_end, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    output, gate = memory.lend(slab.nbytes), memory.lend(4)
    torch.cuda.synchronize()
    player = RemotePlayer(name, Channel(ours), Gate(gate))
    player.channel.send(
        {"do": "setup", "rows": rows, "noop": name == "noop"}, [slab.fd, output.fd, gate.fd]
    )
    player.channel.receive(120)
    player.output = output
    return player


def _far_end(sock: socket.socket) -> None:
    PlayerProcess(Channel(sock)).serve()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "triton", "gpu_runner.evaluation.child.timing"])
    memory = CudaMemory("cuda")
    rng = random.Random(1)
    records = []
    for label, rows in ROWS.items():
        slab = memory.lend(rows * COLUMNS * 4)
        slab.tensor(matrix(rows)).normal_()
        torch.cuda.synchronize()
        players = [start(rows, name, memory, slab, context) for name in ("a", "b", "noop")]
        covered, halves = 0, []
        for pair in range(options.pairs):
            began = time.perf_counter()
            samples = measure(
                players[:2], players[2], rng, Plan(warm_up_s=0.3 if pair == 0 else 0.05)
            )
            interval = ratio_interval(samples["a"].blocks_us, samples["b"].blocks_us)
            covered += interval.low <= 1 <= interval.high
            halves.append((interval.high - interval.low) / 2)
            records.append(
                {
                    "kernel": label,
                    "low": interval.low,
                    "ratio": interval.ratio,
                    "high": interval.high,
                    "medians_us": {name: taken.claimed_us for name, taken in samples.items()},
                    "call_us": statistics.median(samples["a"].call_us),
                    "excess_us": samples["a"].excess_us,
                    "noise_us": samples["a"].noise_us,
                    "overhead_us": samples["a"].overhead_us,
                    "allowed_us": samples["a"].allowed_us,
                    "adds_up": not (samples["a"].is_doubted or samples["b"].is_doubted),
                    "seconds": time.perf_counter() - began,
                    "blocks": samples["a"].blocks_us,
                }
            )
        expected = torch.softmax(slab.tensor(matrix(rows)), 1)
        right = torch.allclose(players[0].output.tensor(matrix(rows)), expected, atol=1e-6)
        last = records[-1]
        print(
            f"{label:6} median {last['medians_us']['a']:8.2f} us  covers {covered}/{options.pairs}  half width "
            f"{100 * statistics.median(halves):.2f} % (max {100 * max(halves):.2f})  excess {last['excess_us']:.2f} of "
            f"{last['allowed_us']:.2f} us  adds up {sum(r['adds_up'] for r in records if r['kernel'] == label)}/{options.pairs}"
            f"  call {last['call_us']:.0f} us  {last['seconds']:.2f} s a pair  right {right}",
            flush=True,
        )
        for player in players:
            player.channel.send({"do": "end"})
        del slab
    if options.out:
        options.out.write_text("\n".join(json.dumps(record) for record in records))


if __name__ == "__main__":
    main()
