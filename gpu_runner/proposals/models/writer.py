"""Asks a model for a kernel and reads the answer; an answer in the wrong form gets one chance to be mended."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpu_runner.core.ledger import ModelCall
from gpu_runner.proposals.models.failures import Failure, ModelFailure, Reply
from gpu_runner.proposals.models.parsing import Answer, Unusable, parse_answer
from gpu_runner.proposals.models.profiles import Profile
from gpu_runner.proposals.models.prompts import Order, as_text, messages_for, repair_message
from gpu_runner.proposals.types import Draft

MAX_FAILURES = 3
"""Requests in a row that got no reply at all before a run goes on without its model."""


@dataclass(frozen=True)
class Written:
    """A draft, or what kept the model from writing one; every request made is in `calls`."""

    draft: Draft | None
    calls: tuple[ModelCall, ...]
    trouble: str = ""


class Writer:
    """One profile at work for one run; may be used from several threads."""

    def __init__(
        self,
        name: str,
        profile: Profile,
        key: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._profile = profile
        # The SDK takes a second to import, and most runs have no model.
        from gpu_runner.proposals.models.client import Client

        self._client = Client(profile, key)
        self._clock = clock
        self._failures = 0

    @property
    def is_usable(self) -> bool:
        return self._failures < MAX_FAILURES

    def close(self) -> None:
        self._client.close()

    def write(self, order: Order) -> Written:
        """At most two requests: the order, and one message that says why the answer cannot be used."""
        messages = messages_for(order)
        parent = order.parents[0].source if order.parents else None
        first = self._ask(order, messages, parent)
        if first.reply is None or first.answer is not None:
            return self._written([first])
        mending = [
            *messages,
            {"role": "assistant", "content": first.reply.text},
            repair_message(first.trouble),
        ]
        return self._written([first, self._ask(order, mending, parent)])

    def _ask(
        self, order: Order, messages: Sequence[Mapping[str, str]], parent: str | None
    ) -> "_Asked":
        started = self._clock()
        reply: Reply | None = None
        answer: Answer | None = None
        outcome, trouble = "ok", ""
        try:
            reply = self._client.complete(messages, order.temperature)
            self._failures = 0
            answer = parse_answer(reply.text, parent)
        except ModelFailure as failure:
            outcome, trouble = failure.failure.value, failure.detail
            is_silent = failure.failure in (Failure.UNREACHABLE, Failure.REFUSED)
            self._failures = self._failures + 1 if is_silent else 0
            call = self._call(order, messages, failure.reply, outcome, trouble, started)
            return _Asked(None, None, trouble, outcome, call)
        except Unusable as problem:
            outcome, trouble = Failure.MALFORMED.value, str(problem)
        call = self._call(order, messages, reply, outcome, trouble, started)
        return _Asked(reply, answer, trouble, outcome, call)

    def _call(
        self,
        order: Order,
        messages: Sequence[Mapping[str, str]],
        reply: Reply | None,
        outcome: str,
        trouble: str,
        started: float,
    ) -> ModelCall:
        tokens_in = reply.tokens_in if reply else None
        tokens_out = reply.tokens_out if reply else None
        return ModelCall(
            model=self.name,
            role=order.role,
            island=order.island,
            prompt=as_text([dict(message) for message in messages]),
            reply=reply.text if reply else f"[{trouble}]",
            outcome=outcome,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            money_usd=self._price(tokens_in, tokens_out),
            seconds=max(0.0, self._clock() - started),
        )

    def _price(self, tokens_in: int | None, tokens_out: int | None) -> float | None:
        if tokens_in is None or tokens_out is None:
            return None
        profile = self._profile
        paid = tokens_in * profile.usd_per_million_in + tokens_out * profile.usd_per_million_out
        return paid / 1e6

    def _written(self, asked: Sequence["_Asked"]) -> Written:
        last = asked[-1]
        calls = tuple(one.call for one in asked)
        if last.answer is None:
            return Written(None, calls, f"model {self.name}, {last.outcome}: {last.trouble}")
        move = last.answer.move or "a change that the model did not describe"
        return Written(
            Draft(source=last.answer.source, origin=f"model:{self.name}", move=move), calls
        )


@dataclass(frozen=True)
class _Asked:
    """One request; `reply` is None where no complete reply came."""

    reply: Reply | None
    answer: Answer | None
    trouble: str
    outcome: str
    call: ModelCall
