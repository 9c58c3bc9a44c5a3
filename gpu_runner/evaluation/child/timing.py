"""Timing on a GPU: what a player does within one window, and how the judge runs windows and believes them.

A window is n calls, each on inputs composed just before it and after the L2 cache was flushed, with an event before and
after the call. All of it is enqueued behind a gate: a word of lent memory on which the player's stream waits until the judge
writes it. So the host is ahead of the device throughout, the events hold device time alone, and the judge's own clock, from
opening the gate to the player's answer, sees exactly the calls plus an overhead that a player doing nothing calibrates.
Claims that do not add up to that clock are doubted, and measured again in windows of two lengths: what a window costs once, as
the driver's work for a second stream does, is no call's. What does not add up then either is a forged result.

A pair of events takes time itself, 3 us beside a launch on an H200. What the idle player's pairs take beyond a launch is taken
off every claim, so that a time is what a profiler calls the kernels' and the gaps between them.

The unit of noise is the block: windows of all players in a fresh placement of their buffers (`core.intervals`).
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final, Protocol

import torch

FLUSH_BYTES: Final = 256 << 20
CLAIM_SHARE: Final = 0.03
OVERHEAD_SHARE: Final = 0.03
CALL_SLACK_US: Final = 3.0
GROSS_SHARE: Final = 0.3
GROSS_SLACK_US: Final = 20.0
"""Claims this much short are a forgery. Short by less, a busy host may be the cause: then the judge's own clock is the time."""
WARM: Final = 1.02
"""Times an earlier measurement: the clocks are up then."""
LAUNCH_US: Final = 1.0
"""What a launch that does next to nothing takes on the device, by the profiler."""
NOISE_WIDTH: Final = 4.0
"""Standard deviations of the idle player's windows that a claim may be off: the host's noise, which no candidate moves."""


@dataclass(frozen=True)
class Plan:
    """How much to time, per player.

    A window is long enough (`window_us`) that the judge's clock tells a call's share of it, within the bounds of its calls: a
    queue holds about a thousand launches. Calls of less than `short_us`, where placements differ most, are timed in twice as
    many blocks half as long.
    """

    blocks: int = 10
    short_us: float = 200.0
    window_us: float = 4_000.0
    fewest_calls: int = 10
    most_calls: int = 40
    host_calls: int = 5
    warm_up_s: float = 0.3

    def sized(self, quickest_us: float) -> tuple[int, int]:
        """Blocks, and calls in each window, where the quickest player takes that long, its overhead included."""
        wanted = math.ceil(self.window_us / max(quickest_us, 1.0))
        calls = min(max(wanted, self.fewest_calls), self.most_calls)
        if quickest_us >= self.short_us:
            return self.blocks, calls
        return 2 * self.blocks, max(calls // 2, self.fewest_calls)


@dataclass(frozen=True)
class Window:
    """One window: what the player claims per call, and the judge's own clock over all of them.

    Not gated: the player could not enqueue it all (it waits for the device within a call), so the gate was opened early and
    the judge's clock holds host time, too. Nothing can then be checked against it, and its time is the judge's.
    """

    claims_us: tuple[float, ...]
    judge_us: float
    is_gated: bool

    @property
    def unclaimed_us(self) -> float:
        """What went by on the judge's clock beside the claims: compose, flush, copy of the output; and the answer's way."""
        return self.judge_us - sum(self.claims_us)

    def times_us(self, overhead_us: float) -> tuple[float, ...]:
        """Per call: the claims where the judge could check them, else the judge's own."""
        return self.claims_us if self.is_gated else self.judged_us(overhead_us)

    def judged_us(self, overhead_us: float) -> tuple[float, ...]:
        """Per call by the judge's clock, all equal: its window less `overhead_us` a call, and never less than the claims."""
        calls = len(self.claims_us)
        return (max(self.judge_us / calls - overhead_us, max(self.claims_us)),) * calls


@dataclass(frozen=True)
class Pair:
    """A window and, where claims are doubted, a shorter one of the same player in the same placement."""

    window: Window
    shorter: Window | None = None

    @property
    def unclaimed_us(self) -> float:
        """Per call; with a shorter window only what another call adds."""
        calls, spent_us = len(self.window.claims_us), self.window.unclaimed_us
        if self.shorter is None:
            return spent_us / calls
        fewer = len(self.shorter.claims_us)
        return (spent_us - self.shorter.unclaimed_us) / (calls - fewer)


class Player(Protocol):
    """One side of a comparison as the judge sees it; implemented over the channel to its process."""

    name: str

    def begin_place(self, seed: int) -> None:
        """Have all buffers moved to fresh addresses."""

    def finish_place(self) -> None:
        """Wait until they are."""

    def window(self, calls: int, seed: int) -> Window: ...

    def host_window(self, calls: int, seed: int) -> Sequence[float]:
        """Microseconds from call to synchronise, by the player's clock, one call at a time."""


@dataclass(frozen=True)
class Samples:
    """Of one player: device times in one tuple per block, host times of call to synchronise, and how far claims were off.

    `excess_us` is by how much the judge's clock ran longer, per call, than claims and overhead explain (median over the
    windows); `noise_us` how much the idle player's windows differ among themselves; `events_us` what was taken off each time.
    """

    blocks_us: tuple[tuple[float, ...], ...]
    call_us: tuple[float, ...]
    is_gated: bool
    overhead_us: float
    noise_us: float
    excess_us: float
    judged_us: tuple[tuple[float, ...], ...]
    events_us: float

    @property
    def claimed_us(self) -> float:
        return median(time_us for block in self.blocks_us for time_us in block)

    @property
    def allowed_us(self) -> float:
        """The largest of 3 % of the claims, 3 % of the overhead (which differs a little by player), 3 us, and the noise."""
        return max(
            CLAIM_SHARE * self.claimed_us,
            OVERHEAD_SHARE * self.overhead_us,
            CALL_SLACK_US,
            NOISE_WIDTH * self.noise_us,
        )

    @property
    def is_doubted(self) -> bool:
        """Whether more time went by than was claimed; the other way round only the player itself is the loser."""
        return self.excess_us > self.allowed_us

    @property
    def is_forged(self) -> bool:
        """Whether so much more time went by that no host explains it."""
        gross_us = GROSS_SHARE * (self.claimed_us + self.excess_us) + GROSS_SLACK_US
        return self.is_doubted and self.excess_us > gross_us

    def by_the_judge(self) -> "Samples":
        """The same with the judge's own times: what is doubted and not forged is published so."""
        return replace(self, blocks_us=self.judged_us)


def measure(
    players: Sequence[Player],
    noop: Player,
    rng: random.Random,
    plan: Plan = Plan(),
    *,
    known_us: float = 0.0,
    in_doubt: bool = False,
) -> dict[str, Samples]:
    """Time all players in interleaved blocks, forwards and backwards in turn.

    Args:
        players: in any order; the first may be the reference.
        noop: a player of ours whose call does nothing; it calibrates the overhead of a window.
        known_us: what the first player claimed per call in an earlier measurement, its events included; 0 if there was none.
            When it is as quick again the clocks are up, and no more warming is needed.
        in_doubt: claims did not add up before: take windows of two lengths. Nobody can know in a window which of them it is.

    Returns:
        By the players' names. Nothing is dropped and nothing is averaged.
    """
    everybody = [*players, noop]
    blocks, calls = plan.sized(_warm_up(players, noop, rng, plan, known_us))
    pairs: dict[str, list[Pair]] = {player.name: [] for player in everybody}
    for block in range(blocks):
        _place(everybody, rng)
        for player in everybody if block % 2 == 0 else reversed(everybody):
            player.window(2, rng.randrange(1 << 30))
            pairs[player.name].append(_pair(player, calls, rng, in_doubt))
    idle = pairs[noop.name]
    overheads = [pair.window.unclaimed_us / calls for pair in idle]
    claims = [claim for pair in idle for claim in pair.window.claims_us]
    company = _Idle(
        overhead_us=median(overheads),
        marginal_us=median(pair.unclaimed_us for pair in idle),
        noise_us=_spread([pair.unclaimed_us for pair in idle]),
        events_us=max(median(claims) - LAUNCH_US, 0.0),
    )
    return {
        player.name: _samples(
            pairs[player.name],
            company,
            player.host_window(plan.host_calls, rng.randrange(1 << 30)),
        )
        for player in players
    }


def _pair(player: Player, calls: int, rng: random.Random, in_doubt: bool) -> Pair:
    if not in_doubt:
        return Pair(player.window(calls, rng.randrange(1 << 30)))
    lengths = [calls, max(calls // 4, 1)]
    rng.shuffle(lengths)
    taken = {length: player.window(length, rng.randrange(1 << 30)) for length in lengths}
    return Pair(taken[calls], taken[min(lengths)])


@dataclass(frozen=True)
class _Idle:
    """What the idle player's windows say of everybody's: overheads a call, their spread, and what a pair of events takes."""

    overhead_us: float
    marginal_us: float
    noise_us: float
    events_us: float

    def net(self, times_us: Sequence[float]) -> tuple[float, ...]:
        return tuple(max(time_us - self.events_us, LAUNCH_US) for time_us in times_us)


def _place(players: Sequence[Player], rng: random.Random) -> None:
    """All at the same time: most of it is the driver's work on the host, and nothing is timed meanwhile."""
    for player in players:
        player.begin_place(rng.randrange(1 << 30))
    for player in players:
        player.finish_place()


def _warm_up(
    players: Sequence[Player], noop: Player, rng: random.Random, plan: Plan, known_us: float
) -> float:
    """Bring the clocks up: a 5 us kernel is 70 % off until they are.

    Returns:
        Microseconds per call of the quickest player by the judge's clock, overhead included.
    """
    deadline = time.monotonic() + plan.warm_up_s
    quickest_us = math.inf
    _place((*players, noop), rng)
    noop.window(plan.fewest_calls, rng.randrange(1 << 30))
    first_us = math.inf
    while quickest_us == math.inf or (time.monotonic() < deadline and first_us > WARM * known_us):
        for player in players:
            window = player.window(plan.fewest_calls, rng.randrange(1 << 30))
            quickest_us = min(quickest_us, window.judge_us / len(window.claims_us))
            if player is players[0]:
                first_us = median(window.claims_us)
    return quickest_us


def _samples(pairs: Sequence[Pair], idle: _Idle, host_us: Sequence[float]) -> Samples:
    windows = [pair.window for pair in pairs]
    excesses = [pair.unclaimed_us - idle.marginal_us for pair in pairs if pair.window.is_gated]
    return Samples(
        blocks_us=tuple(idle.net(window.times_us(idle.overhead_us)) for window in windows),
        call_us=tuple(host_us),
        is_gated=all(window.is_gated for window in windows),
        overhead_us=idle.overhead_us,
        noise_us=idle.noise_us,
        excess_us=median(excesses or [0.0]),
        judged_us=tuple(idle.net(window.judged_us(idle.overhead_us)) for window in windows),
        events_us=idle.events_us,
    )


def _spread(values: Sequence[float]) -> float:
    """A standard deviation that a few outliers do not move: 1.48 times the median distance from the median."""
    centre = median(values)
    return 1.4826 * median(abs(value - centre) for value in values)


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
