"""What an entry is worth: compared within runs, with an interval over runs, and promoted only when sure."""

import math
import random

import pytest

from gpu_runner.core.worth import (
    UNPAIRED,
    WITH,
    WITHOUT,
    Standing,
    Uplift,
    Use,
    arm_without,
    entry_uplift,
    entry_uplifts,
    gain_of,
    library_uplift,
    standings,
)


def pair(run: int, shown: float, withheld: float) -> list[Use]:
    return [Use(run, WITH, ("a",), shown), Use(run, WITHOUT, (), withheld)]


def uplift(p_gain: float, p_harm: float, runs: int = 20) -> Uplift:
    return Uplift(1.0, 0.9, 1.1, runs, 40, 40, 40, 5, p_gain, p_harm)


@pytest.mark.parametrize(
    ("parent", "child", "gain"),
    [(1.0, 2.0, math.log(2)), (2.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 3.0, 0.0), (1.0, 1.0, 0.0)],
)
def test_a_gain_is_never_negative_and_a_repair_is_none(
    parent: float, child: float, gain: float
) -> None:
    assert gain_of(parent, child) == gain


def test_all_entries_at_once_are_judged_as_each_alone() -> None:
    rng = random.Random(5)
    arms = [WITH, WITHOUT, UNPAIRED, arm_without("a"), arm_without("b")]
    uses = [
        Use(rng.randrange(6), rng.choice(arms), ("a", "b", "c")[: rng.randrange(4)], rng.random())
        for _ in range(300)
    ]
    found = entry_uplifts(uses)
    assert found == {uid: entry_uplift(uid, uses) for uid in ("a", "b", "c")}
    assert found["a"].runs == 6
    assert entry_uplifts([]) == {}


def test_runs_with_one_arm_and_no_runs_say_nothing() -> None:
    assert library_uplift([]) == Uplift(None, None, None, 0, 0, 0, 0, 0)
    alone = library_uplift([Use(1, WITH, ("a",), 0.3), Use(2, WITHOUT)])
    assert alone == Uplift(None, None, None, runs=0, shown=0, withheld=0, uses=1, wins=1)


def test_one_run_gives_a_ratio_without_an_interval() -> None:
    found = library_uplift(pair(1, math.log(1.2), 0.0))
    assert found.ratio is not None
    assert math.isclose(found.ratio, 1.2)
    assert (found.low, found.high, found.runs) == (None, None, 1)


def test_equal_runs_give_students_interval_over_their_differences() -> None:
    differences = [0.10, 0.20, 0.30]
    found = library_uplift([use for run, d in enumerate(differences) for use in pair(run, d, 0.0)])
    half = 4.303 * 0.1 / math.sqrt(3)
    assert found.ratio is not None
    assert found.low is not None
    assert found.high is not None
    assert math.isclose(math.log(found.ratio), 0.2)
    assert math.isclose(math.log(found.low), 0.2 - half, rel_tol=1e-3)
    assert math.isclose(math.log(found.high), 0.2 + half, rel_tol=1e-3)


def test_levels_of_runs_cancel() -> None:
    level = [0.0, 5.0, 9.0]
    uses = [use for run in range(3) for use in pair(run, level[run] + 0.1, level[run])]
    found = library_uplift(uses)
    assert found.low is not None
    assert found.high is not None
    assert math.isclose(math.log(found.low), 0.1)
    assert math.isclose(math.log(found.high), 0.1)
    assert found.p_gain is not None
    assert found.p_gain < 1e-9


def test_an_entry_is_compared_with_proposals_from_which_it_alone_was_withheld() -> None:
    uses = [
        Use(1, WITH, ("a", "b"), 0.4),
        Use(1, WITH, ("b",), 9.0),
        Use(1, arm_without("a"), ("b",), 0.1),
        Use(1, arm_without("b"), ("a",), 9.0),
        Use(1, WITHOUT, (), 9.0),
        Use(1, UNPAIRED, ("a",), 9.0),
    ]
    found = entry_uplift("a", uses)
    assert (found.shown, found.withheld, found.uses, found.wins) == (1, 1, 1, 1)
    assert found.ratio is not None
    assert math.isclose(found.ratio, math.exp(0.3))


def test_of_many_entries_one_needs_more_than_five_per_cent() -> None:
    many = {str(n): uplift(0.5, 0.5) for n in range(99)}
    decided = standings({**many, "lucky": uplift(0.02, 0.98), "good": uplift(1e-5, 1.0)})
    assert decided["good"] is Standing.HELPS
    assert decided["lucky"] is Standing.UNDECIDED
    assert set(decided.values()) == {Standing.HELPS, Standing.UNDECIDED}


def test_what_harms_is_suggested_to_retire_and_few_runs_decide_nothing() -> None:
    decided = standings({"bad": uplift(1.0, 1e-4), "new": uplift(1e-9, 1.0, runs=3)})
    assert decided == {"bad": Standing.RETIRE, "new": Standing.UNDECIDED}


def test_the_interval_covers_and_null_entries_stay() -> None:
    """A short form of `benchmarks/uplift.py`, which has the figures."""
    rng = random.Random(5)
    covered = 0
    for _ in range(120):
        uses = []
        for run in range(12):
            level = rng.gauss(0, 0.2)
            uses += [
                Use(run, arm, (), level + rng.expovariate(4.0) + 0.1 * (arm == WITH))
                for arm in rng.choices([WITH, WITHOUT], [3, 1], k=20)
            ]
        found = library_uplift(uses)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= math.exp(0.1) <= found.high
    assert 0.88 <= covered / 120 <= 1.0
