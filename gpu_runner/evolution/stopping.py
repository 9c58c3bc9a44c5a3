"""When a run is over, and why; the reason is kept with the run."""

from collections.abc import Mapping

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import Budget
from gpu_runner.evolution.types import State

MIN_PATIENCE = 20
NEAR_ROOFLINE = 0.95
"""Share of the roofline from which on there is nothing left worth a search."""


def stop_reason(state: State, budget: Budget, spent: Mapping[str, float]) -> str | None:
    """Why to ask for nothing more, or None.

    `spent` counts what is evaluated; candidates in flight count as evaluations, so that no budget is overdrawn.
    """
    return _over_budget(state, budget, spent) or _at_ceiling(state) or _stagnates(state, budget)


def patience(budget: Budget) -> int:
    """Answers without a new best after which a run stagnates."""
    return max(MIN_PATIENCE, (budget.evaluations or 0) * 2 // 3)


def roofline_share(evaluation: Evaluation | None) -> float | None:
    """Least possible time / the candidate's time as the profile states it, between 0 and 1."""
    share = evaluation.profile.get("roofline_share") if evaluation else None
    return float(share) if isinstance(share, int | float) else None


def _over_budget(state: State, budget: Budget, spent: Mapping[str, float]) -> str | None:
    used = dict(spent)
    used["evaluations"] = used.get("evaluations", 0) + len(state.pending)
    units = {
        "evaluations": "evaluations",
        "wall_s": "seconds",
        "tokens": "tokens",
        "money_usd": "US dollars",
        "gpu_s": "GPU seconds",
    }
    for name, unit in units.items():
        limit = getattr(budget, name)
        if limit is not None and used.get(name, 0) >= limit:
            return f"budget: {limit:g} {unit}"
    return None


def _at_ceiling(state: State) -> str | None:
    share = roofline_share(state.best.evaluation) if state.best else None
    if share is None or share < NEAR_ROOFLINE:
        return None
    return f"near the roofline: the best reaches {share:.0%} of it"


def _stagnates(state: State, budget: Budget) -> str | None:
    since = state.told - state.last_best_at
    if state.best is None or since < patience(budget):
        return None
    return f"stagnation: no new best in {since} evaluations"
