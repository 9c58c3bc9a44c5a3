"""Timing on a GPU: what a player does within one window, and how the judge runs windows and believes them.

A window is n calls, each on inputs composed just before it and after the L2 cache was flushed, with an event before and
after the call. All of it is enqueued behind a gate: a word of lent memory on which the player's stream waits until the judge
writes it. So the host is ahead of the device throughout, the events hold device time alone, and the judge's own clock, from
opening the gate to the player's answer, sees exactly the calls plus an overhead that a player doing nothing calibrates.
Claims that do not add up to that clock are a forged result.

The unit of noise is the block: windows of all players in a fresh placement of their buffers (`core.intervals`).
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Protocol

import torch
from cuda.bindings import driver

from gpu_runner.evaluation.child.cuda_memory import CudaLent, checked

FLUSH_BYTES: Final = 256 << 20
CLAIM_SHARE: Final = 0.03
OVERHEAD_SHARE: Final = 0.03
CALL_SLACK_US: Final = 3.0
WILD_SHARE: Final = 0.3
WILD_SLACK_US: Final = 60.0
"""One window alone may be off by a descheduled host; all of them together may not."""


@dataclass(frozen=True)
class Plan:
    """How much to time. With the defaults n is 100 per player."""

    blocks: int = 10
    calls_per_window: int = 10
    host_calls: int = 5
    warm_up_s: float = 0.3


@dataclass(frozen=True)
class Window:
    """One window: what the player claims per call, and the judge's own clock over all of them.

    Not gated: the player could not enqueue it all (it waits for the device within a call), so the gate was opened early and
    the judge's clock holds host time, too. Nothing can then be checked against it, and its time is the judge's.
    """

    claims_us: tuple[float, ...]
    judge_us: float
    is_gated: bool

    def times_us(self, overhead_us: float) -> tuple[float, ...]:
        """Per call: the claims where the judge could check them, else the judge's own, `overhead_us` a call taken off."""
        if self.is_gated:
            return self.claims_us
        calls = len(self.claims_us)
        return (max(self.judge_us / calls - overhead_us, max(self.claims_us)),) * calls


class Player(Protocol):
    """One side of a comparison as the judge sees it; implemented over the channel to its process."""

    name: str

    def place(self, seed: int) -> None:
        """Move all buffers to fresh addresses."""

    def window(self, calls: int, seed: int) -> Window: ...

    def host_window(self, calls: int, seed: int) -> Sequence[float]:
        """Microseconds from call to synchronise, by the player's clock, one call at a time."""


@dataclass(frozen=True)
class Samples:
    """Of one player: device times in one tuple per block, host times of call to synchronise, and how far claims were off.

    `excess_us` is by how much the judge's clock ran longer, per call, than claims and overhead explain: the median over the
    windows, and the worst of them.
    """

    blocks_us: tuple[tuple[float, ...], ...]
    call_us: tuple[float, ...]
    is_gated: bool
    overhead_us: float
    excess_us: float
    worst_excess_us: float

    @property
    def claimed_us(self) -> float:
        return median(time_us for block in self.blocks_us for time_us in block)

    @property
    def allowed_us(self) -> float:
        """The larger of 3 % of the claims, 3 % of the overhead (whose own noise that is), and 3 us a call."""
        return max(CLAIM_SHARE * self.claimed_us, OVERHEAD_SHARE * self.overhead_us, CALL_SLACK_US)

    @property
    def adds_up(self) -> bool:
        wild = WILD_SHARE * (self.claimed_us + self.overhead_us) + WILD_SLACK_US
        return (
            abs(self.excess_us) <= self.allowed_us
            and self.worst_excess_us <= self.allowed_us + wild
        )


def measure(
    players: Sequence[Player], noop: Player, rng: random.Random, plan: Plan = Plan()
) -> dict[str, Samples]:
    """Time all players in interleaved blocks, forwards and backwards in turn.

    Args:
        players: in any order; the first may be the reference.
        noop: a player of ours whose call does nothing; it calibrates the overhead of a window.

    Returns:
        By the players' names. Nothing is dropped and nothing is averaged.
    """
    everybody = [*players, noop]
    _warm_up(everybody, rng, plan)
    windows: dict[str, list[Window]] = {player.name: [] for player in everybody}
    for block in range(plan.blocks):
        for player in everybody if block % 2 == 0 else reversed(everybody):
            player.place(rng.randrange(1 << 30))
            player.window(2, rng.randrange(1 << 30))
            windows[player.name].append(
                player.window(plan.calls_per_window, rng.randrange(1 << 30))
            )
    overhead_us = _overhead(windows[noop.name])
    return {
        player.name: _samples(
            windows[player.name],
            overhead_us,
            player.host_window(plan.host_calls, rng.randrange(1 << 30)),
        )
        for player in players
    }


def _warm_up(players: Sequence[Player], rng: random.Random, plan: Plan) -> None:
    """Bring the clocks up: a 5 us kernel is 70 % off until they are."""
    deadline = time.monotonic() + plan.warm_up_s
    for player in players:
        player.place(rng.randrange(1 << 30))
    while time.monotonic() < deadline:
        for player in players:
            player.window(plan.calls_per_window, rng.randrange(1 << 30))


def _overhead(windows: Sequence[Window]) -> float:
    """Microseconds per call that are not the call: compose, flush, copy of the output; and the answer's way."""
    return median(
        (window.judge_us - sum(window.claims_us)) / len(window.claims_us) for window in windows
    )


def _samples(windows: Sequence[Window], overhead_us: float, host_us: Sequence[float]) -> Samples:
    excesses = [_excess(window, overhead_us) for window in windows if window.is_gated] or [0.0]
    return Samples(
        blocks_us=tuple(window.times_us(overhead_us) for window in windows),
        call_us=tuple(host_us),
        is_gated=all(window.is_gated for window in windows),
        overhead_us=overhead_us,
        excess_us=median(excesses),
        worst_excess_us=max(excesses),
    )


def _excess(window: Window, overhead_us: float) -> float:
    """How much longer the judge's clock ran, per call, than claims and overhead explain."""
    calls = len(window.claims_us)
    return (window.judge_us - sum(window.claims_us)) / calls - overhead_us


class Gate:
    """A word of lent memory that holds a stream back; both sides map it, the judge alone opens it."""

    def __init__(self, lent: CudaLent) -> None:
        self._address = lent.address

    def hold(self, ticket: int) -> None:
        """Let the current stream wait until the gate was opened for this ticket; tickets grow."""
        flags = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        checked(driver.cuStreamWaitValue32(self._stream(), self._address, ticket, flags))

    def open(self, ticket: int) -> None:
        flags = driver.CUstreamWriteValue_flags.CU_STREAM_WRITE_VALUE_DEFAULT
        checked(driver.cuStreamWriteValue32(self._stream(), self._address, ticket, flags))
        torch.cuda.current_stream().synchronize()

    def _stream(self) -> Any:
        return driver.CUstream(torch.cuda.current_stream().cuda_stream)


Call = Callable[..., Any]


def run_window(
    call: Call,
    compose: Callable[[int], Sequence[Any]],
    keep: Callable[[int, Any], None],
    flush: torch.Tensor,
    calls: int,
    hold: Callable[[], None],
    enqueued: Callable[[], None],
) -> list[float]:
    """The player's part of one window.

    Args:
        call: the module under time; events are recorded just before and after it.
        compose: fills the working inputs of call i and returns the arguments.
        keep: copies the output of call i to where the judge can check it.
        hold: makes the stream wait for the judge.
        enqueued: tells the judge that everything is in the queue.

    Returns:
        Microseconds on the device, one per call.
    """
    events = [_event_pair() for _ in range(calls)]
    torch.cuda.synchronize()
    hold()
    for index, (start, stop) in enumerate(events):
        arguments = compose(index)
        flush.zero_()
        start.record()
        output = call(*arguments)
        stop.record()
        keep(index, output)
    enqueued()
    torch.cuda.synchronize()
    return [start.elapsed_time(stop) * 1e3 for start, stop in events]


def run_host_window(
    call: Call, compose: Callable[[int], Sequence[Any]], flush: torch.Tensor, calls: int
) -> list[float]:
    """Microseconds from call to synchronise, one call at a time with an empty queue."""
    times = []
    for index in range(calls):
        arguments = compose(index)
        flush.zero_()
        torch.cuda.synchronize()
        started = time.perf_counter()
        call(*arguments)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - started) * 1e6)
    return times


def _event_pair() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
