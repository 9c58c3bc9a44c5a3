"""What requests cost, and what one may cost at most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gpu_runner.proposals.models.failures import Message

CHARACTERS_PER_TOKEN: Final = 3.0
"""Of code, on the side of more tokens."""


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    usd_in: float = 0.0
    usd_out: float = 0.0

    def of(self, tokens_in: float, tokens_out: float) -> float:
        return (tokens_in * self.usd_in + tokens_out * self.usd_out) / 1e6


@dataclass(frozen=True, eq=False)
class Allowance:
    """What one request may cost at most; set aside until its real cost is known."""

    tokens_in: int
    max_tokens: int
    money_usd: float

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.max_tokens


class Funds(Protocol):
    """Where requests get their allowances."""

    def allow(self, tokens_in: int, max_tokens: int, price: Price) -> Allowance | None:
        """Set aside what a request may cost; None where too little is left."""


class Unlimited:
    """Funds without an end."""

    def allow(self, tokens_in: int, max_tokens: int, price: Price) -> Allowance | None:
        return Allowance(tokens_in, max_tokens, price.of(tokens_in, max_tokens))


def estimated_tokens(messages: Sequence[Message]) -> int:
    """Of a prompt, before the endpoint has counted them."""
    characters = sum(len(message["content"]) for message in messages)
    return int(characters / CHARACTERS_PER_TOKEN) + 1
