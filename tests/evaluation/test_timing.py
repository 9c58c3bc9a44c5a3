"""How the judge runs and believes windows, with scripted players whose clocks are arithmetic; no GPU."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from gpu_runner.evaluation.child.measuring import TimedPlayer
from gpu_runner.evaluation.child.timing import LAUNCH_US, Plan, Window, measure

OVERHEAD_US = 100.0
PLAN = Plan(blocks=6, short_us=0.0, warm_up_s=0.0)


@dataclass
class Scripted:
    """A kernel of `true_us`, of which it claims `claimed_us`; one that waits for the device cannot be gated."""

    name: str
    true_us: float
    claimed_us: float
    waits: bool = False
    noise_us: float = 0.0
    log: list[str] = field(default_factory=list)
    most_calls: int = 0
    once_us: float = 0.0
    """What a window costs once, however many calls are in it."""

    is_placing: bool = False

    def begin_place(self, seed: int) -> None:
        self.is_placing = True

    def finish_place(self) -> None:
        self.is_placing = False

    def window(self, calls: int, seed: int) -> Window:
        assert not self.is_placing
        self.log.append(self.name)
        self.most_calls = max(self.most_calls, calls)
        spent_us = calls * (self.true_us + OVERHEAD_US) + self.once_us
        jitter_us = random.Random(seed).gauss(0, self.noise_us) * calls
        return Window((self.claimed_us,) * calls, spent_us + jitter_us, is_gated=not self.waits)

    def host_window(self, calls: int, seed: int) -> Sequence[float]:
        return [self.true_us + 20.0] * calls


def idle(noise_us: float = 0.0) -> Scripted:
    return Scripted("idle", LAUNCH_US, LAUNCH_US, noise_us=noise_us)


def test_an_honest_player_is_believed_and_its_samples_are_kept_by_block() -> None:
    honest = Scripted("candidate", 40.0, 40.0)

    samples = measure([honest], idle(), random.Random(0), PLAN)["candidate"]

    assert not samples.is_doubted
    assert len(samples.blocks_us) == 6
    assert {time for block in samples.blocks_us for time in block} == {40.0}
    assert samples.call_us == (60.0,) * PLAN.host_calls


@pytest.mark.parametrize(("true_us", "claimed_us"), [(80.0, 4.0), (60.0, 0.06), (2_000.0, 900.0)])
def test_claims_far_below_the_judges_clock_are_forged(true_us: float, claimed_us: float) -> None:
    liar = Scripted("candidate", true_us, claimed_us)

    assert measure([liar], idle(), random.Random(0), PLAN)["candidate"].is_forged


@pytest.mark.parametrize(
    ("true_us", "claimed_us"), [(40.0, 30.0), (5.0, 0.005), (2_000.0, 1_800.0)]
)
def test_claims_a_little_below_the_judges_clock_gain_nothing_and_accuse_nobody(
    true_us: float, claimed_us: float
) -> None:
    player = Scripted("candidate", true_us, claimed_us)

    samples = measure([player], idle(), random.Random(0), PLAN)["candidate"]

    assert samples.is_doubted
    assert not samples.is_forged
    assert samples.by_the_judge().claimed_us == pytest.approx(true_us)


def test_claims_above_the_judges_clock_accuse_nobody() -> None:
    modest = Scripted("candidate", 40.0, 60.0)

    assert not measure([modest], idle(), random.Random(0), PLAN)["candidate"].is_doubted


def test_a_noisy_host_accuses_nobody() -> None:
    for seed in range(40):
        honest = Scripted("candidate", 5.0, 5.0, noise_us=15.0)
        samples = measure([honest], idle(noise_us=15.0), random.Random(seed), PLAN)
        assert not samples["candidate"].is_doubted


def test_who_waits_for_the_device_is_timed_by_the_judges_clock() -> None:
    waiting = Scripted("candidate", 300.0, 10.0, waits=True)

    samples = measure([waiting], idle(), random.Random(0), PLAN)["candidate"]

    assert not samples.is_gated
    assert samples.claimed_us == pytest.approx(300.0)


def test_players_take_turns_forwards_and_backwards() -> None:
    log: list[str] = []
    players = [Scripted(name, 10.0, 10.0, log=log) for name in ("a", "b")]

    measure(players, Scripted("idle", 2.0, 2.0, log=log), random.Random(0), PLAN)

    blocks = [tuple(log[start : start + 6]) for start in range(3, len(log), 6)]
    assert (
        blocks == [("a", "a", "b", "b", "idle", "idle"), ("idle", "idle", "b", "b", "a", "a")] * 3
    )


def test_slow_players_are_not_called_often_because_the_idle_one_is_quick() -> None:
    slow = Scripted("candidate", 5_000.0, 5_000.0)

    measure([slow], idle(), random.Random(0), PLAN)

    assert slow.most_calls == PLAN.fewest_calls


@pytest.mark.parametrize(
    ("quickest_us", "sized"), [(70.0, (20, 20)), (200.0, (10, 20)), (10_000.0, (10, 10))]
)
def test_quick_calls_get_longer_windows_and_more_placements(
    quickest_us: float, sized: tuple[int, int]
) -> None:
    assert Plan().sized(quickest_us) == sized


def test_what_a_pair_of_events_takes_is_taken_off_every_claim() -> None:
    player, idle = Scripted("candidate", 40.0, 40.0), Scripted("idle", 4.0, 4.0)

    samples = measure([player], idle, random.Random(0), PLAN)["candidate"]

    assert samples.events_us == pytest.approx(4.0 - LAUNCH_US)
    assert samples.claimed_us == pytest.approx(40.0 - samples.events_us)
    assert not samples.is_doubted


def test_what_a_window_costs_once_is_no_call_s_when_it_is_looked_at_again() -> None:
    player = Scripted("candidate", 20.0, 20.0, once_us=2_000.0)

    first = measure([player], idle(), random.Random(0), PLAN)["candidate"]
    again = measure([player], idle(), random.Random(0), PLAN, in_doubt=True)["candidate"]

    assert first.is_forged
    assert again.excess_us == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("true_us", "claimed_us"), [(80.0, 4.0), (2_000.0, 900.0)])
def test_windows_of_two_lengths_show_a_forgery_all_the_same(
    true_us: float, claimed_us: float
) -> None:
    liar = Scripted("candidate", true_us, claimed_us)

    assert measure([liar], idle(), random.Random(0), PLAN, in_doubt=True)["candidate"].is_forged


def test_clocks_that_are_up_are_not_warmed() -> None:
    plan = Plan(blocks=2, short_us=0.0, warm_up_s=0.5)
    cold, warm = (Scripted("eager", 40.0, 40.0) for _ in range(2))
    windows = {True: 0, False: 0}
    for player, known_us in ((cold, 0.0), (warm, 40.0)):
        asked: list[int] = []
        player.window = lambda calls, seed, player=player, asked=asked: (  # type: ignore[method-assign]
            asked.append(calls) or Scripted.window(player, calls, seed)
        )
        measure([player], idle(), random.Random(0), plan, known_us=known_us)
        windows[known_us > 0] = len(asked)

    assert windows[True] == 1 + 2 * plan.blocks
    assert windows[False] > 2 * windows[True]


class Stalling(TimedPlayer):
    """A player whose windows are gated or not as scripted."""

    def __init__(self, gated: Sequence[bool]) -> None:
        self.gated = list(gated)

    def _window(self, calls: int, seed: int) -> Window:
        return Window((40.0,) * calls, 140.0 * calls, is_gated=self.gated.pop(0))


def test_a_host_that_was_busy_once_is_no_player_that_waits() -> None:
    player = Stalling([False, True, False, False, False])

    assert player.window(10, 0).is_gated
    assert not player.window(10, 0).is_gated
    assert not player.window(10, 0).is_gated
    assert player.gated == []


def test_whether_a_kept_player_waits_is_found_out_anew_each_time() -> None:
    player = Stalling([False, False, True])
    player.window(10, 0)

    player.begin()

    assert player.window(10, 0).is_gated
