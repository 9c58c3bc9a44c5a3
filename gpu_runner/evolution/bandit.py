"""How the budget is shared among ways of making candidates: by gain per cost, with a prior and a floor.

A way's rate is what it gained (logarithms, losses as 0) per unit of the budget, where a unit is what one evaluation takes of
it. A draw is proportional to the island's own share of the operator times that rate.
"""

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from gpu_runner.core.search import WayShare
from gpu_runner.core.task import Budget
from gpu_runner.evolution.types import Credit, Operator, Way

PRIOR_GAIN: Final = 0.1
"""An untried way is expected to gain this much (as a logarithm) on one try."""
PRIOR_TRIES: Final = 1.0
FLOOR: Final = 0.2
"""Of the prior's rate: no way falls below it, so that nothing is given up for good."""
AT_HOME: Final = 3.0
"""Weight of an island's own model to one of another, before what they earned."""
MEMORY: Final = 1.0
"""What is left of a way's credit after each of its tries."""


def rate(credit: Credit) -> float:
    """Expected gain per unit of cost."""
    unit = credit.cost / credit.tries if credit.tries else 1.0
    gained = PRIOR_TRIES * PRIOR_GAIN + credit.gain
    return max(FLOOR * PRIOR_GAIN, gained / (PRIOR_TRIES + credit.tries)) / unit


def earned(credit: Credit, gain: float, cost: float) -> Credit:
    return replace(
        credit,
        tries=MEMORY * credit.tries + 1,
        gain=MEMORY * credit.gain + gain,
        cost=MEMORY * credit.cost + cost,
    )


def weights(
    shares: Mapping[Operator, float],
    credit: Mapping[Way, Credit],
    ways: Collection[Way],
    *,
    learns: bool = True,
    home: str = "",
) -> dict[Way, float]:
    """The weight of each way that the island uses; the ways of one operator share that operator's.

    Args:
        learns: False leaves the credit out.
        home: the island's own model.
    """
    used = sorted(way for way in ways if shares.get(way.operator, 0) > 0)
    parts: dict[Operator, float] = {}
    for way in used:
        parts[way.operator] = parts.get(way.operator, 0.0) + _part(way, home)
    return {
        way: shares[way.operator]
        * (_part(way, home) / parts[way.operator])
        * (rate(credit.get(way, Credit())) if learns else 1.0)
        for way in used
    }


def _part(way: Way, home: str) -> float:
    return AT_HOME if home and way.model == home else 1.0


def in_order(weighted: Mapping[Way, float], rng: random.Random) -> Iterator[Way]:
    """All ways, drawn one after the other by weight."""
    left = dict(weighted)
    while left:
        chosen = rng.choices(list(left), list(left.values()))[0]
        del left[chosen]
        yield chosen


def price(amounts: Mapping[str, float], budget: Budget) -> float:
    """What a candidate took of the budget, in units of one evaluation's share of it.

    The scarcest limit decides: with a limit on evaluations alone every candidate costs 1, with a tight one on tokens those
    that a model wrote cost more.

    Args:
        amounts: spent on the candidate by the names of `Budget`, its one evaluation included.
    """
    if budget.evaluations is None:
        return 1.0
    limits = budget.model_dump(exclude_none=True)
    taken = [amount / limits[name] for name, amount in amounts.items() if name in limits]
    return float(max([1.0, *(share * budget.evaluations for share in taken)]))


def shown(weighted: Mapping[Way, float], credit: Mapping[Way, Credit]) -> list[WayShare]:
    total = sum(weighted.values())
    return [
        WayShare(
            operator=way.operator.value,
            model=way.model,
            tries=round(credit.get(way, Credit()).tries),
            gain=credit.get(way, Credit()).gain,
            cost=credit.get(way, Credit()).cost,
            share=weight / total,
        )
        for way, weight in weighted.items()
    ]
