"""Candidates for tests: correct ones with a speedup, failing ones with a verdict."""

from typing import Any

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.evaluation import Baselines, Evaluation, Ratio, Speedup, Timing
from gpu_runner.core.verdicts import Fidelity, Precision, State, Track, Verdict, VerifiedAt

KERNEL = """\
import torch
import triton
import triton.language as tl

{extra}

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), {block}),)](x, y, x.numel(), BLOCK={block}, num_warps={warps})
        return y
"""


def source(mark: int = 0, block: int = 1024, warps: int = 4) -> str:
    """A source whose fingerprint depends on the mark."""
    return KERNEL.format(extra=f"MARK = {mark}", block=block, warps=warps)


def evaluation(
    speedup: float | None = None,
    verdict: Verdict = Verdict.CORRECT,
    kind: str | None = None,
    interval: tuple[float, float] | None = None,
    **more: Any,
) -> Evaluation:
    """A speedup makes it correct and timed, modelled unless an interval is given."""
    if speedup is None:
        return Evaluation(
            verdict=verdict,
            kind=kind,
            device="cpu",
            track=Track.OWN_KERNELS,
            precision=Precision.REFERENCE,
            **more,
        )
    low, high = interval or (None, None)
    return Evaluation(
        verdict=Verdict.CORRECT,
        fidelity=Fidelity.MEASURED if interval else Fidelity.MODELLED,
        verified_at=VerifiedAt.PROBE,
        device="cpu",
        track=Track.OWN_KERNELS,
        precision=Precision.REFERENCE,
        candidate=Timing(device_us=100 / speedup, n=0),
        baselines=Baselines(eager=Timing(device_us=100, n=0)),
        speedup=Speedup(eager=Ratio(ratio=speedup, low=low, high=high)),
        **more,
    )


def candidate(
    number: int,
    speedup: float | None = None,
    *,
    island: int = 0,
    interval: tuple[float, float] | None = None,
    **more: Any,
) -> Candidate:
    """A finished candidate; without a speedup one with wrong values."""
    found = (
        evaluation(speedup, interval=interval)
        if speedup
        else evaluation(verdict=Verdict.INCORRECT, kind="values")
    )
    fields: dict[str, Any] = {
        "id": number,
        "source": source(number),
        "island": island,
        "origin": "compiler:default",
        "state": State.FINISHED,
        "evaluation": found,
    }
    return Candidate(**(fields | more))
