"""When a run is over, and why; the reason is kept with the run."""

from collections.abc import Mapping

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.targets import TARGETS
from gpu_runner.core.task import Budget
from gpu_runner.evolution.types import State

MIN_PATIENCE = 20
NEAR_ROOFLINE = 0.95
"""Share of the roofline from which on there is nothing left worth a search."""
MIN_TOLD = 12
SETTLED = 6
"""Answers without a new best before the roofline is believed to have been reached."""


def stop_reason(state: State, budget: Budget, spent: Mapping[str, float]) -> str | None:
    """Why to ask for nothing more, or None.

    `spent` counts what is evaluated; candidates in flight count as evaluations, so that no budget is overdrawn.
    """
    return _over_budget(state, budget, spent) or _at_ceiling(state) or _stagnates(state, budget)


def patience(budget: Budget) -> int:
    """Answers without a new best after which a run stagnates."""
    return max(MIN_PATIENCE, (budget.evaluations or 0) * 2 // 3)


def roofline_share(evaluation: Evaluation | None) -> float | None:
    """Time to move the bytes that must be moved / the candidate's modelled time.

    None where that is unknown: nothing was modelled, or there are several launches, between which bytes move that another
    candidate might not have to.
    """
    modelled = evaluation.profile.get("candidate") if evaluation else None
    parts = modelled.get("parts") if isinstance(modelled, dict) else None
    if evaluation is None or not isinstance(parts, list) or len(parts) != 1:
        return None
    target = TARGETS.get(str(evaluation.environment.get("target")))
    minimum, us = parts[0].get("minimum_bytes"), parts[0].get("us")
    if target is None or not minimum or not us:
        return None
    return float(1e6 * minimum / (target.bandwidth * target.copy_fraction) / us)


def _over_budget(state: State, budget: Budget, spent: Mapping[str, float]) -> str | None:
    used = dict(spent)
    used["evaluations"] = used.get("evaluations", 0) + len(state.pending)
    units = {
        "evaluations": "evaluations",
        "iterations": "iterations",
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
    is_settled = state.told >= MIN_TOLD and state.told - state.last_best_at >= SETTLED
    if share is None or share < NEAR_ROOFLINE or not is_settled:
        return None
    return f"near the roofline: the best reaches {share:.0%} of it"


def _stagnates(state: State, budget: Budget) -> str | None:
    since = state.told - state.last_best_at
    if state.best is None or since < patience(budget):
        return None
    return f"stagnation: no new best in {since} evaluations"
