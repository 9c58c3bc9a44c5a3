"""What a run may take, told before it is started: by what past ones took with the same model and method."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from evolution_app.models import Run, User
from gpu_runner.core.search import Method
from gpu_runner.core.task import Budget
from gpu_runner.core.verdicts import RunState

AMOUNTS: Final = ("tokens", "money_usd", "gpu_s", "wall_s")
MIN_EVALUATIONS: Final = 3
"""A run that ended before says nothing of what an evaluation takes."""
MOST_RUNS: Final = 30
"""The newest ones: models, prices and machines change."""


@dataclass(frozen=True)
class Range:
    """From the least to the most that any of the past runs would have taken; `typical` is the median."""

    low: float
    typical: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """`runs` says on how many past ones it rests; with none of them `amounts` is empty: nothing is known.

    Args:
        amounts: by the names of `Budget`; `wall_s` is time at work, without waiting for a runner.
    """

    runs: int
    amounts: Mapping[str, Range]

    def as_json(self) -> dict[str, Any]:
        ranges = {name: vars(amount) for name, amount in self.amounts.items()}
        return {"past_runs": self.runs, "amounts": ranges}


def estimated(user: User, *, model: str | None, method: Method, budget: Budget) -> Estimate:
    """From the finished runs that the person may see; two queries at most."""
    past = Run.objects.visible_to(user).filter(
        state=RunState.FINISHED, options__model=model, options__method=method.value
    )
    return from_spendings(past.order_by("-id").values_list("spent", flat=True)[:MOST_RUNS], budget)


def from_spendings(spendings: Iterable[Mapping[str, float]], budget: Budget) -> Estimate:
    """Each past run as it would have gone under another budget: all that it took grows with the limit that it reaches first."""
    limits = budget.model_dump(exclude_none=True)
    usable = [spent for spent in spendings if spent.get("evaluations", 0) >= MIN_EVALUATIONS]
    scaled = [_scaled(spent, limits) for spent in usable if any(map(spent.get, limits))]
    amounts = {name: _range([taken[name] for taken in scaled]) for name in AMOUNTS if scaled}
    return Estimate(len(scaled), amounts)


def _scaled(spent: Mapping[str, float], limits: Mapping[str, float]) -> dict[str, float]:
    # The first limit that it would have reached ends it.
    factor = min(limit / spent[name] for name, limit in limits.items() if spent.get(name))
    return {name: spent.get(name, 0.0) * factor for name in AMOUNTS}


def _range(values: Sequence[float]) -> Range:
    return Range(min(values), median(values), max(values))
