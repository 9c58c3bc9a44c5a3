"""How a request to a model can end; apart from the client, whose SDK takes a second to import."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

Message = Mapping[str, str]


class Failure(StrEnum):
    """Why a request gave nothing usable; `malformed` also where the reply is no answer in the required form."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    MALFORMED = "malformed"


class ModelFailure(RuntimeError):
    """A request failed. `reply` is what came nevertheless, for the record."""

    def __init__(self, failure: Failure, detail: str, reply: "Reply | None" = None) -> None:
        super().__init__(f"{failure}: {detail}")
        self.failure = failure
        self.detail = detail
        self.reply = reply


@dataclass(frozen=True)
class Reply:
    text: str
    tokens_in: int | None = None
    tokens_out: int | None = None
