"""Ways are drawn by what they gain per cost; strategy texts by what was gained under them."""

import random
from collections import Counter

import pytest

from gpu_runner.core.search import StrategyText
from gpu_runner.core.task import Budget
from gpu_runner.evolution import bandit, texts
from gpu_runner.evolution.engine import begin
from gpu_runner.evolution.types import Credit, Lesson, Operator, Plan, Way

CHEAP, DEAR = Way(Operator.IMPROVE, "cheap"), Way(Operator.IMPROVE, "dear")
TUNE = Way(Operator.TUNE)
SHARES = {Operator.IMPROVE: 2.0, Operator.TUNE: 1.0}


def test_without_credit_an_operator_has_its_share_however_many_models_can_do_it() -> None:
    assert bandit.weights(SHARES, {}, [CHEAP, DEAR, TUNE], learns=False) == {
        CHEAP: 1.0,
        DEAR: 1.0,
        TUNE: 1.0,
    }
    assert bandit.weights(SHARES, {}, [TUNE, Way(Operator.REPAIR)], learns=False) == {TUNE: 1.0}


def test_a_way_that_pays_is_drawn_more_often_and_none_is_given_up() -> None:
    credit = {TUNE: Credit(10, 5.0, 10), CHEAP: Credit(10, 0.0, 10)}
    weighted = bandit.weights(SHARES, credit, [CHEAP, TUNE])
    first = Counter(next(bandit.in_order(weighted, random.Random(n))) for n in range(500))
    assert first[TUNE] > 5 * first[CHEAP] > 0


def test_of_two_ways_with_the_same_gain_the_cheaper_one_is_worth_more() -> None:
    assert bandit.rate(Credit(5, 1.0, 5)) == 4 * bandit.rate(Credit(5, 1.0, 20))


def test_all_ways_come_in_some_order() -> None:
    weighted = {CHEAP: 1.0, DEAR: 2.0, TUNE: 0.5}
    assert set(bandit.in_order(weighted, random.Random(0))) == set(weighted)


@pytest.mark.parametrize(
    ("budget", "amounts", "price"),
    [
        (Budget(evaluations=50), {"evaluations": 1, "tokens": 1e6}, 1.0),
        (Budget(evaluations=50, tokens=100_000), {"evaluations": 1, "tokens": 8_000}, 4.0),
        (Budget(evaluations=50, tokens=100_000), {"evaluations": 1}, 1.0),
        (Budget(evaluations=None, wall_s=10), {"evaluations": 1, "tokens": 8_000}, 1.0),
    ],
)
def test_the_scarcest_limit_is_the_price(budget: Budget, amounts: dict, price: float) -> None:
    assert bandit.price(amounts, budget) == price


def test_shares_are_shown_as_they_are_drawn() -> None:
    weighted = {CHEAP: 1.0, TUNE: 3.0}
    shown = bandit.shown(weighted, {TUNE: Credit(2, 0.5, 2)})
    assert [(w.operator, w.model, w.tries, w.share) for w in shown] == [
        ("improve", "cheap", 0, 0.25),
        ("tune", "", 2, 0.75),
    ]


def tried(known: texts.Texts, number: int, gain: float) -> texts.Texts:
    for _ in range(texts.TRIAL):
        known = texts.credited(known, number, gain)
    return known


def test_a_text_has_a_child_after_its_trial_and_the_child_is_tried_first() -> None:
    islands = begin(2).islands
    known = texts.first_texts(islands)
    assert texts.wanted(known, islands) is None
    known = tried(known, 1, 0.1)
    want = texts.wanted(known, islands)
    assert want == texts.Wanted(0, (known[1],))
    known = texts.born(known, want, "look elsewhere")
    assert known[3] == StrategyText(id=3, island=0, text="look elsewhere", parents=(1,))
    assert texts.choose(known, 0, random.Random(0)) == known[3]
    assert texts.choose(known, 1, random.Random(0)) == known[2]


def test_the_worst_text_retires_when_an_island_has_enough_and_the_best_has_children() -> None:
    islands = begin(1).islands
    known = tried(texts.first_texts(islands), 1, 0.1)
    for number in range(2, texts.MAX_LIVING + 1):
        want = texts.wanted(known, islands)
        assert want is not None
        known = tried(texts.born(known, want, f"text {number}"), number, 0.1 * number)
    want = texts.wanted(known, islands)
    assert want is not None
    known = texts.born(known, want, "another")
    assert known[texts.MAX_LIVING + 1].parents == (texts.MAX_LIVING,)
    assert [text.id for text in texts.living(known, 0)] == [2, 3, 4]
    assert known[1].is_retired


def test_texts_that_gain_are_chosen_more_often() -> None:
    known = {
        1: StrategyText(id=1, island=0, text="poor", tries=20, gain=0.1),
        2: StrategyText(id=2, island=0, text="good", tries=20, gain=4.0),
    }
    chosen = Counter(texts.choose(known, 0, random.Random(n)).id for n in range(300))
    assert chosen[2] > 5 * chosen[1] > 0


def test_a_child_says_what_was_learnt_and_forgets_what_its_parent_said_of_it() -> None:
    parent = StrategyText(id=1, island=0, text=f"Fuse. {texts.LEARNT} tiles paid; fusion did not.")
    lessons = {
        "launches": Lesson(tries=2, gain=0.5),
        "spills": Lesson(tries=2, gain=0.1),
        "tail": Lesson(tries=3, broke=3),
        "uncoalesced": Lesson(tries=1, gain=-0.2),
    }
    child = texts.child_of(texts.Wanted(0, (parent,)), Plan(lessons=lessons))
    assert child == f"Fuse. {texts.LEARNT} launches, spills paid; uncoalesced, tail did not."
    assert texts.child_of(texts.Wanted(0, (parent,)), Plan()) == "Fuse."


def test_an_islands_own_model_is_preferred_until_another_earns_more() -> None:
    weighted = bandit.weights(SHARES, {}, [CHEAP, DEAR, TUNE], learns=False, home="dear")
    assert weighted == {CHEAP: 0.5, DEAR: 1.5, TUNE: 1.0}
    credit = {CHEAP: Credit(20, 10.0, 20), DEAR: Credit(20, 0.0, 20)}
    learnt = bandit.weights(SHARES, credit, [CHEAP, DEAR, TUNE], home="dear")
    assert learnt[CHEAP] > learnt[DEAR]
