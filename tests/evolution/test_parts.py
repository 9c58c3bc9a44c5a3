"""Fitness, the archive, crossover, seeding, selection and stopping, each by hand-computed tables."""

import random
from collections import Counter
from types import MappingProxyType

import pytest

from gpu_runner.core.task import Budget
from gpu_runner.core.verdicts import Verdict
from gpu_runner.evolution import archive, crossover, seeding, selection, stopping
from gpu_runner.evolution.engine import begin, enqueued, told
from gpu_runner.evolution.fitness import beats, earned, gain
from gpu_runner.evolution.strategies import STRATEGIES, strategy_of
from gpu_runner.evolution.types import Cell, Operator
from tests.evolution.making import candidate, evaluation, source


@pytest.mark.parametrize(
    ("challenger", "champion", "expected"),
    [
        (candidate(2, 2.0), None, True),
        (candidate(2), None, False),
        (candidate(2, 2.0), candidate(1, 1.9), True),
        (candidate(2, 2.0), candidate(1, 2.0), False),
        (candidate(2, 2.0), candidate(1), True),
        (candidate(2, 2.0, interval=(1.8, 2.2)), candidate(1, 1.9, interval=(1.8, 2.0)), False),
        (candidate(2, 2.0, interval=(1.95, 2.2)), candidate(1, 1.9, interval=(1.8, 2.0)), True),
    ],
)
def test_a_new_best_needs_an_interval_above_the_old_ratio(challenger, champion, expected) -> None:
    assert beats(challenger, champion) is expected


def test_gain_compares_correct_candidates_only() -> None:
    assert gain(candidate(2, 3.0), candidate(1, 2.0)) == 1.5
    assert gain(candidate(2), candidate(1, 2.0)) is None
    assert gain(candidate(2, 3.0), candidate(1)) is None
    assert earned(candidate(2, 1.0), (candidate(1, 2.0),)) == 0
    assert earned(candidate(2, 1.0), (candidate(1),)) == 0.2


@pytest.mark.parametrize(
    ("text", "profile", "cell"),
    [
        (source(), {}, Cell("1", "one pass", "1D", "vector")),
        (source(), {"candidate": {"parts": [{}] * 4}}, Cell("3-4", "one pass", "1D", "vector")),
        (
            "tl.program_id(1)\nfor i in 1:\n    for k in range(3):\n        tl.dot(a, b, input_precision='ieee')",
            {"candidate": {"parts": [{}] * 9}},
            Cell("5+", "one pass", "2D looped", "dot ieee"),
        ),
        (
            "tl.num_programs(0)\ntl.make_block_ptr(x)\ntl.dot(a, b)",
            {
                "candidate": {"parts": [{}]},
                "kernels": [{"dots": [{"dtype": "f32", "precision": "tf32"}]}],
            },
            Cell("1", "block pointers", "persistent", "dot f32/tf32"),
        ),
    ],
)
def test_cells_describe_kernels(text: str, profile: dict, cell: Cell) -> None:
    one = candidate(1, 1.0, source=text, evaluation=evaluation(1.0, profile=profile))
    assert archive.cell_of(one) == cell


def test_a_cell_does_not_heed_comments_or_what_the_host_does() -> None:
    host = "for n in range(3):\n    for m in range(3):\n        launch(n, m)\n"
    text = source().replace("import torch\n", f"import torch\n# tl.dot num_programs\n{host}")
    one = candidate(1, 1.0, source=text)
    assert archive.cell_of(one) == Cell("1", "one pass", "1D", "vector")


def test_a_correct_candidate_without_a_time_is_better_than_none() -> None:
    untimed = candidate(1, evaluation=evaluation())
    assert beats(untimed, None)
    assert beats(untimed, candidate(9))
    assert beats(candidate(2, 0.01), untimed)
    assert not beats(candidate(3, evaluation=evaluation()), untimed)
    state = told(begin(1), untimed)
    assert state.best == untimed
    assert selection.suits(Operator.TUNE, untimed)


def test_the_archive_keeps_the_best_of_each_cell() -> None:
    kept = archive.admit(MappingProxyType({}), candidate(1, 2.0))
    kept = archive.admit(kept, candidate(2, 1.0))
    kept = archive.admit(kept, candidate(3))
    assert [elite.id for elite in kept.values()] == [1]
    different = evaluation(0.5, profile={"candidate": {"parts": [{}] * 7}})
    kept = archive.admit(kept, candidate(4, evaluation=different))
    assert sorted(elite.id for elite in kept.values()) == [1, 4]


def test_crossover_carries_launch_parameters_over() -> None:
    child = crossover.transplant(source(1, block=1024, warps=4), source(1, block=256, warps=8))
    assert child is not None
    assert "BLOCK=256, num_warps=8" in child
    assert crossover.transplant(source(1), source(1)) is None
    assert crossover.transplant("def f(", source(1)) is None


def test_crossover_keeps_text_outside_ascii() -> None:
    receiver = "NAME = 1\nx = 'ä'; kernel[g](a, 'é', BLOCK=1)\n"
    assert crossover.transplant(receiver, "kernel[g](BLOCK=22)") == receiver.replace(
        "BLOCK=1", "BLOCK=22"
    )


def test_a_number_that_occurs_twice_is_left_alone() -> None:
    twice = "k[g](BLOCK=1)\nk[g](BLOCK=2)\n"
    assert crossover.launch_parameters(twice) == {}


def test_the_first_candidates_are_dealt_to_all_islands_in_turns() -> None:
    islands = begin(3).islands
    offers = {"compiler": ["c1", "c2", "c3"], "catalogue": ["g1"], "person": ["p"]}
    dealt = seeding.deal(offers, islands, limit=5)
    assert dealt == [(0, "p"), (1, "g1"), (2, "c1"), (0, "c2"), (1, "c3")]
    assert seeding.deal(offers, islands, limit=2) == [(0, "p"), (1, "g1")]
    assert seeding.deal({"compiler": []}, islands, limit=5) == []


@pytest.mark.parametrize(
    ("budget", "islands", "limit"), [(24, 3, 8), (4, 3, 3), (2, 3, 2), (None, 3, 12)]
)
def test_a_third_of_the_budget_goes_to_first_candidates(budget, islands, limit) -> None:
    assert seeding.seed_limit(budget, islands) == limit


def test_islands_differ_in_their_strategies() -> None:
    names = [strategy_of(index).name for index in range(len(STRATEGIES))]
    assert len(set(names)) == len(names) >= 3
    assert strategy_of(len(STRATEGIES)) is STRATEGIES[0]


def test_modes_are_drawn_by_their_shares() -> None:
    rng = random.Random(0)
    drawn = Counter(selection.choose_mode(rng) for _ in range(4000))
    for mode, share in selection.MODE_SHARES.items():
        assert drawn[mode] / 4000 == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(
    ("operator", "parent", "expected"),
    [
        (Operator.REPAIR, candidate(1), True),
        (Operator.REPAIR, candidate(1, 1.0), False),
        (Operator.TUNE, candidate(1), False),
        (Operator.TUNE, candidate(1, 1.0), True),
    ],
)
def test_only_failures_are_repaired_and_only_correct_kernels_improved(
    operator, parent, expected
) -> None:
    assert selection.suits(operator, parent) is expected


def test_cheats_have_no_children() -> None:
    cheat = evaluation(verdict=Verdict.CHEATING, kind="tampering")
    assert not selection.suits(Operator.REPAIR, candidate(1, evaluation=cheat))


@pytest.mark.parametrize(
    ("budget", "spent", "reason"),
    [
        (Budget(evaluations=3), {"evaluations": 2}, None),
        (Budget(evaluations=3), {"evaluations": 3}, "budget: 3 evaluations"),
        (Budget(wall_s=10), {"wall_s": 10.5}, "budget: 10 seconds"),
        (Budget(tokens=100), {"tokens": 100}, "budget: 100 tokens"),
        (Budget(money_usd=0.5), {"money_usd": 0.6}, "budget: 0.5 US dollars"),
        (Budget(gpu_s=5), {"gpu_s": 6}, "budget: 5 GPU seconds"),
    ],
)
def test_a_run_stops_when_its_budget_is_spent(budget, spent, reason) -> None:
    assert stopping.stop_reason(begin(3), budget, spent) == reason


def test_candidates_in_flight_count_against_the_budget() -> None:
    state = enqueued(begin(3), [candidate(1)], Operator.SEED)
    assert stopping.stop_reason(state, Budget(evaluations=2), {"evaluations": 1}) is not None


def test_a_run_stops_near_the_roofline() -> None:
    part = {"minimum_bytes": 4.32e12 * 0.97e-4, "us": 100.0}
    found = evaluation(
        3.0, profile={"candidate": {"parts": [part]}}, environment={"target": "h200"}
    )
    assert stopping.roofline_share(found) == pytest.approx(0.97, abs=0.001)
    state = told(begin(1), candidate(1, evaluation=found))
    assert stopping.stop_reason(state, Budget(), {}) is None
    for number in range(2, 13):
        state = told(state, candidate(number, 1.0))
    assert (
        stopping.stop_reason(state, Budget(), {}) == "near the roofline: the best reaches 97% of it"
    )


def test_a_run_stops_when_nothing_gets_better() -> None:
    state = told(begin(1), candidate(1, 2.0))
    budget = Budget(evaluations=None, wall_s=1e9)
    for number in range(2, stopping.patience(budget) + 1):
        state = told(state, candidate(number, 1.0))
        assert stopping.stop_reason(state, budget, {}) is None
    state = told(state, candidate(99, 1.0))
    assert stopping.stop_reason(state, budget, {}) == "stagnation: no new best in 20 evaluations"
