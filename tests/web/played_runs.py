"""A run that a script plays instead of a runner: candidates of every fate, through the very writes of the store."""

import time
from collections.abc import Iterator
from math import log
from typing import Any

from evolution_app.models import Run
from gpu_runner.core.candidate import Proposal
from gpu_runner.core.evaluation import Baselines, Evaluation, Ratio, Speedup, StageTime, Timing
from gpu_runner.core.findings import Finding, Location, Severity, Source
from gpu_runner.core.ledger import ModelCall
from gpu_runner.core.search import Idea, IdeaState, StrategyText, WayShare
from gpu_runner.core.task_report import TaskReport, TensorSpec
from gpu_runner.core.verdicts import (
    Fidelity,
    Precision,
    RunState,
    Stage,
    State,
    Track,
    Verdict,
    VerifiedAt,
)
from gpu_runner.store import Store
from tests.web.samples import claim

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"

KERNEL = '''import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    """Doubles {number} times nothing."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(x + offsets, mask=mask)
    tl.store(y + offsets, values * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        double_kernel[(triton.cdiv(n, {block}),)](x, y, n, BLOCK={block})
        return y
'''

STRATEGIES = ("fusion", "tiling", "memory", "algorithm", "numerics")


def source(number: int) -> str:
    return KERNEL.format(number=number, block=2 ** (7 + number % 5))


def common(**fields: Any) -> dict[str, Any]:
    stages = (StageTime(name=Stage.LOAD, seconds=0.21), StageTime(name=Stage.PROBE, seconds=1.4))
    return {
        "device": "cpu",
        "track": Track.OWN_KERNELS,
        "precision": Precision.REFERENCE,
        "stages": stages,
        "environment": {"torch": "2.13.0", "triton": "3.7.1"},
        **fields,
    }


def correct(ratio: float, *, measured: bool = False) -> Evaluation:
    hint = Finding(
        stage=Stage.TIMING,
        kind="memory_bound",
        severity=Severity.HINT,
        source=Source.RUNNER,
        title="Memory bound: 41 % of the bandwidth ceiling is reached",
        evidence={"bytes": 8_388_608, "minimum_bytes": 4_194_304, "share": 0.41},
        location=Location(kernel="double_kernel", line=11),
        suggestion="Load wider blocks per program, or let one program handle two rows.",
    )
    spread = 0.03 if measured else 0
    n, fidelity = (100, Fidelity.MEASURED) if measured else (0, Fidelity.MODELLED)
    low, high = (ratio - spread, ratio + spread) if measured else (None, None)
    compiled = Timing(device_us=80.0, call_us=92.0, iqr_us=0.4, n=n) if measured else None
    return Evaluation(
        **common(
            verdict=Verdict.CORRECT,
            fidelity=fidelity,
            verified_at=VerifiedAt.FULL if measured else VerifiedAt.PROBE,
            findings=(hint,),
            candidate=Timing(device_us=100 / ratio, call_us=120 / ratio if measured else None, n=n),
            baselines=Baselines(eager=Timing(device_us=100.0, n=n), torch_compile=compiled),
            speedup=Speedup(
                eager=Ratio(ratio=ratio, low=low, high=high),
                torch_compile=Ratio(ratio=ratio * 0.8, low=low, high=high) if measured else None,
            ),
            profile={
                "kernels": [
                    {
                        "name": "double_kernel",
                        "registers": 32,
                        "spills": 0,
                        "shared_bytes": 0,
                        "us": 41.2,
                    }
                ]
            },
        )
    )


def failing(verdict: Verdict, kind: str, title: str, line: int | None = 11) -> Evaluation:
    gate = Finding(
        stage=Stage.PROBE,
        kind=kind,
        severity=Severity.GATE,
        source=Source.JUDGE,
        title=title,
        evidence={"max_error": 0.031, "tolerance": 0.01, "bad": 17},
        location=Location(kernel="double_kernel", line=line, tensor="y", region="tail tile"),
        suggestion="Mask the last block.",
    )
    return Evaluation(**common(verdict=verdict, kind=kind, findings=(gate,)))


def unevaluated() -> Evaluation:
    return Evaluation(**common(verdict=None, state=State.UNEVALUATED))


FATES = (
    correct(1.04),
    failing(Verdict.INCORRECT, "values", "17 elements of the tail tile differ by up to 0.031"),
    correct(1.31),
    failing(Verdict.COMPILE_ERROR, "frontend", "name 'BLOK' is not defined"),
    correct(1.22),
    failing(Verdict.CHEATING, "torch_computes", "torch.mul computes the output", None),
    correct(1.74),
    failing(Verdict.TIMEOUT, "call", "one call took longer than 60 s", None),
    unevaluated(),
    correct(1.83),
    failing(Verdict.RUNTIME_ERROR, "out_of_bounds", "reads 64 elements past the end of x"),
    correct(1.79),
)

REPORT = TaskReport(
    inputs=(TensorSpec(shape=(1024,), dtype="float32"),),
    outputs=(TensorSpec(shape=(1024,), dtype="float32"),),
    probe={"N": 130},
)


def play(
    run: Run, *, pause_s: float = 0.0, count: int = len(FATES), store: Store | None = None
) -> Store:
    """Propose and finish `count` candidates on the run's islands; each correct one is the next one's parent."""
    store = store or claim(run)
    for _ in steps(store, count):
        time.sleep(pause_s)
    return store


def steps(store: Store, count: int) -> Iterator[None]:
    """One turn per write, so that a page sees every stage."""
    store.set_state(RunState.RUNNING)
    islands = store.spec.islands
    for number in range(islands):
        strategy = STRATEGIES[number % len(STRATEGIES)]
        store.note(
            "island", {"index": number, "strategy": strategy, "lens": f"looks at {strategy}"}
        )
    best: tuple[float, int] | None = None
    for turn in range(count):
        island = turn % islands
        parents = (best[1],) if best else ()
        proposal = Proposal(
            source=source(turn),
            island=island,
            parents=parents,
            generation=len(parents) and turn,
            origin="rewrite:block" if parents else "compiler:default",
            move=f"block of {2 ** (7 + turn % 5)} elements",
        )
        candidate = store.add(proposal)
        yield
        for stage in (Stage.STATIC, Stage.COMPILE, Stage.PROBE):
            store.stage(candidate.id, stage)
            yield
        evaluation = FATES[turn % len(FATES)]
        store.spend(evaluations=1, wall_s=4.0)
        store.finish(candidate.id, evaluation)
        store.note("budget", {})
        if evaluation.fitness > (best[0] if best else 0):
            best = (evaluation.fitness, candidate.id)
            store.note("best", {"candidate_id": candidate.id})
            if islands > 1:
                moved = {"candidate_id": candidate.id, "home": island, "to": (island + 1) % islands}
                store.note("migration", moved)
        yield


def call_model(store: Store, candidate_id: int) -> None:
    store.model_call(
        ModelCall(
            model="tiny",
            role="improve",
            island=0,
            candidate_id=candidate_id,
            prompt=f"Make it faster. {HOSTILE}",
            reply=f"Here: {HOSTILE}",
            outcome="ok",
            tokens_in=2100,
            tokens_out=None,
            money_usd=None,
            seconds=3.2,
        )
    )


def think(store: Store, text: str = "Larger blocks read in wider pieces.") -> None:
    """What a search would note beside the candidates 1 to 3: an idea that gained, what follows from it, shares, texts."""
    first = Idea(
        id=1,
        key="block",
        text=text,
        origin="diagnosis",
        base=1,
        island=0,
        base_speedup=1.04,
        expected_gain=1.2,
    )
    gained = first.model_copy(
        update={"state": IdeaState.GAINED, "attempts": 1, "candidates": (3,), "gain": 1.26}
    )
    follows = first.model_copy(update={"id": 2, "base": 3, "parent": 1, "in_flight": 1})
    refuted = first.model_copy(update={"id": 3, "state": IdeaState.REFUTED, "attempts": 1})
    untried = first.model_copy(update={"id": 4, "state": IdeaState.DROPPED})
    for ideas in ((first, refuted, untried), (gained, follows)):
        store.note("plan", {"ideas": [idea.model_dump(mode="json") for idea in ideas]})
    way = WayShare(operator="tune", model="", tries=4, gain=log(1.21), cost=1.0, share=0.75)
    asked = way.model_copy(update={"operator": "improve", "model": "tiny", "share": 0.25})
    store.note("shares", {"ways": [w.model_dump(mode="json") for w in (asked, way)]})
    old = StrategyText(id=1, island=0, text=text, tries=2, gain=2 * log(1.1), is_retired=True)
    new = StrategyText(id=2, island=0, text=text, parents=(1,))
    for strategy in (old.model_copy(update={"is_retired": False}), new, old):
        store.note("strategy", strategy.model_dump(mode="json"))
    store.note("restart", {"island": 1, "from": [1, 3]})
