"""What a run may still spend: looked at before anything is spent, so that requests in flight cannot overdraw it."""

import threading
from collections.abc import Callable, Mapping
from typing import Final

from gpu_runner.core.ledger import Ledger, ModelCall
from gpu_runner.core.task import Budget
from gpu_runner.proposals.models.prices import Allowance, Price

MIN_REPLY: Final = 1024
"""Tokens that an answer must be allowed; a shorter one would be cut off."""
ENDLESS: Final = 1 << 40


class Purse:
    """The spending of one run. `allow` may be called from any thread, all else from the driver's alone."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._clocked = clock()
        self._spent = dict(ledger.spent())
        self._allowed: list[Allowance] = []
        self._short = ""
        self._lock = threading.Lock()

    @property
    def budget(self) -> Budget:
        return self._ledger.budget()

    @property
    def spent(self) -> Mapping[str, float]:
        """Wall time up to now included."""
        wall_s = self._spent.get("wall_s", 0.0) + self._clock() - self._clocked
        return {**self._spent, "wall_s": wall_s}

    @property
    def recorded(self) -> Mapping[str, float]:
        return dict(self._spent)

    def spend(self, **amounts: float) -> None:
        """Wall time goes with it: one write for both."""
        now = self._clock()
        amounts["wall_s"] = amounts.get("wall_s", 0.0) + now - self._clocked
        self._ledger.spend(**amounts)
        self._clocked = now
        with self._lock:
            for name, amount in amounts.items():
                self._spent[name] = self._spent.get(name, 0.0) + amount

    def allow(
        self, tokens_in: int, max_tokens: int, price: Price, *, is_needed: bool = True
    ) -> Allowance | None:
        """Set aside what a request may cost: a shorter answer where the budget is nearly spent, None where it is too little.

        Args:
            is_needed: False where the run can do without, so that too little for this request ends nothing.
        """
        with self._lock:
            left = min(max_tokens, self._affordable(tokens_in, price))
            if left < min(MIN_REPLY, max_tokens):
                if is_needed:
                    self._short = f"the next request may cost {tokens_in + MIN_REPLY:,} tokens"
                return None
            allowance = Allowance(tokens_in, left, price.of(tokens_in, left))
            self._allowed.append(allowance)
            return allowance

    def settle(self, allowance: Allowance) -> None:
        """Its real cost is spent, or it was not needed."""
        with self._lock:
            self._allowed.remove(allowance)
            self._short = ""

    @property
    def is_short(self) -> bool:
        """Whether the last request found too little, and nothing that was set aside has come back since."""
        return bool(self._short)

    @property
    def shortage(self) -> str | None:
        """Why no request can be made any more; None while there may be room once those in flight have ended."""
        if not self._short or self._allowed:
            return None
        budget = self.budget
        limits = {"tokens": budget.tokens, "US dollars": budget.money_usd}
        named = ", ".join(
            f"{limit:g} {unit}" for unit, limit in limits.items() if limit is not None
        )
        return f"budget: {named} ({self._short})"

    def _affordable(self, tokens_in: int, price: Price) -> int:
        """Tokens that an answer may have."""
        budget, most = self.budget, ENDLESS
        if budget.tokens is not None:
            set_aside = sum(allowance.tokens for allowance in self._allowed)
            most = int(budget.tokens - self._spent.get("tokens", 0) - set_aside - tokens_in)
        if budget.money_usd is not None:
            set_aside_usd = sum(allowance.money_usd for allowance in self._allowed)
            spent_usd = self._spent.get("money_usd", 0) + set_aside_usd + price.of(tokens_in, 0)
            left_usd = budget.money_usd - spent_usd
            by_money = left_usd * 1e6 / price.usd_out if price.usd_out else ENDLESS * (left_usd > 0)
            most = min(most, int(by_money))
        return most


class ForAdvice:
    """The purse for requests that a run can do without."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse

    def allow(self, tokens_in: int, max_tokens: int, price: Price) -> Allowance | None:
        return self._purse.allow(tokens_in, max_tokens, price, is_needed=False)


def tokens_of(call: ModelCall) -> int:
    """What a call is charged; endpoints that do not count are charged four characters a token."""
    if call.tokens_in is not None and call.tokens_out is not None:
        return call.tokens_in + call.tokens_out
    is_lost = call.outcome in ("unreachable", "refused")
    return 0 if is_lost else (len(call.prompt) + len(call.reply)) // 4
