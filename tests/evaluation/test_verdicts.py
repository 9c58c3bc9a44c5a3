"""Every verdict and kind of the design, each from a candidate that deserves it."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpu_runner.core.verdicts import KINDS, Stage, Verdict
from gpu_runner.evaluation.child import failures, genuineness
from gpu_runner.evaluation.child.links import Exit, PlayerLost
from gpu_runner.evaluation.pool import LocalPool
from gpu_runner.evaluation.protocol import Failed
from tests.evaluation.quick_pool import quick_pool, task, told
from tests.evaluation.verdict_samples import SAMPLES, Sample

ELSEWHERE = {
    ("runtime_error", "device_fault"): "below, from the answer that a device's fault gives",
    ("out_of_memory", "device"): "below, from the answer that a full device gives",
    ("timeout", "device_hang"): "below, from a window that never ends",
    ("cheating", "too_little_work"): "exploits/attacks/works_at_probe_size_only.py",
}


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with quick_pool() as pool:
        yield pool


def _samples() -> list[Any]:
    """Sorted by task, so that one judge serves neighbours; those that wait for a deadline last."""
    waits = {"import", "construct", "compile"}
    return [
        pytest.param(s, id=s.name, marks=[pytest.mark.exam] if s.kind in waits else [])
        for s in sorted(SAMPLES, key=lambda s: (s.kind in waits, s.task))
    ]


@pytest.mark.sandbox
@pytest.mark.xdist_group("verdicts")
@pytest.mark.parametrize("sample", _samples())
def test_a_candidate_gets_the_verdict_it_deserves(pool: LocalPool, sample: Sample) -> None:
    evaluation = pool.evaluate(task(sample.task), sample.source)

    assert (evaluation.verdict, evaluation.kind) == (sample.verdict, sample.kind), told(evaluation)


def test_every_verdict_and_kind_has_a_sample() -> None:
    shown = {(s.verdict, s.kind) for s in SAMPLES} | set(ELSEWHERE)

    missing = {(verdict.value, kind) for verdict, kinds in KINDS.items() for kind in kinds} - shown

    assert missing == set()


@pytest.mark.parametrize(
    ("cause", "message", "verdict", "kind"),
    [
        ("device", "CUDA error: illegal memory access", Verdict.RUNTIME_ERROR, "device_fault"),
        ("out_of_memory", "CUDA out of memory", Verdict.OUT_OF_MEMORY, "device"),
        ("out_of_memory", "can't allocate memory", Verdict.OUT_OF_MEMORY, "host"),
        ("compile", "at 3:4", Verdict.COMPILE_ERROR, "frontend"),
        ("launch", "out of resource: shared memory", Verdict.COMPILE_ERROR, "resources"),
    ],
)
def test_a_failed_call_is_judged_by_its_cause(
    cause: str, message: str, verdict: Verdict, kind: str
) -> None:
    failed = Failed(where="call", error="RuntimeError", message=message, cause=cause)  # type: ignore[arg-type]

    stop = failures.why_failed(failed, Stage.CORRECTNESS)

    assert (stop.verdict, stop.finding.kind) == (verdict, kind)


class _Gone:
    """A player that has ended."""

    def __init__(self, exit_: Exit) -> None:
        self.exit = exit_

    def close(self) -> Exit:
        return self.exit


@pytest.mark.parametrize(
    ("cause", "exit_", "step", "verdict", "kind"),
    [
        ("hang", Exit(None, 9, False, "killed", ""), "device_hang", "timeout", "device_hang"),
        ("hang", Exit(None, 9, False, "killed", ""), "call", "timeout", "call"),
        ("exit", Exit(None, 9, True, "memory", ""), "call", "out_of_memory", "host"),
        ("exit", Exit(None, 11, False, "exited", ""), "call", "runtime_error", "crash"),
        ("exit", Exit(0, None, False, "exited", ""), "call", "runtime_error", "exit"),
        ("forgery", Exit(None, 9, False, "killed", ""), "call", "cheating", "forged_result"),
    ],
)
def test_a_lost_player_is_judged_by_how_it_ended(
    cause: str, exit_: Exit, step: str, verdict: str, kind: str
) -> None:
    lost = PlayerLost(_Gone(exit_), cause, "detail")  # type: ignore[arg-type]

    stop = failures.why_lost(lost, Stage.CORRECTNESS, step)

    assert (stop.verdict, stop.finding.kind) == (verdict, kind)


@pytest.mark.parametrize(
    ("stored", "output", "is_accused"),
    [(0, 4096, True), (2047, 4096, True), (2048, 4096, False), (0, 0, False)],
)
def test_less_than_half_of_the_output_written_is_too_little(
    stored: int, output: int, is_accused: bool
) -> None:
    assert (genuineness.too_little_work(stored, output, is_complete=True) is not None) is is_accused
