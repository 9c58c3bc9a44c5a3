"""Asks a model for a kernel and reads the answer; an answer in the wrong form gets one chance to be mended."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from gpu_runner.core.ledger import ModelCall
from gpu_runner.proposals.models.endpoints import Endpoint, PutOff, body_for
from gpu_runner.proposals.models.failures import Failure, Message, ModelFailure, Reply
from gpu_runner.proposals.models.parsing import Answer, Unusable, parse_answer
from gpu_runner.proposals.models.prices import Allowance, Funds, Price, estimated_tokens
from gpu_runner.proposals.models.profiles import Profile, Role
from gpu_runner.proposals.models.prompts import (
    Order,
    TooLong,
    as_text,
    messages_for,
    repair_message,
)
from gpu_runner.proposals.types import Draft

MAX_REFUSALS: Final = 3
"""Requests in a row that were refused before a run goes on without its model."""

ADVICE_TEMPERATURE: Final = 0.3

T = TypeVar("T")
OnCall = Callable[[ModelCall], None]


@dataclass(frozen=True)
class Post:
    """A request that is not sent but written to a batch file."""

    body: Mapping[str, Any]
    role: str
    island: int
    is_mending: bool = False


@dataclass(frozen=True)
class Written:
    """A draft, or what kept the model from writing one.

    Attributes:
        calls: requests made and not yet told of by `on_call`.
        allowances: set aside for them.
        is_put_off: nothing was asked; another time it can be.
        post: what is to be asked through a batch file.
    """

    draft: Draft | None
    calls: tuple[ModelCall, ...] = ()
    trouble: str = ""
    allowances: tuple[Allowance, ...] = ()
    is_put_off: bool = False
    post: Post | None = None


@dataclass(frozen=True)
class Consulted(Generic[T]):
    """What a model advised; `advice` is None where it gave none that can be used, `calls` is empty where nobody was asked."""

    advice: T | None = None
    calls: tuple[ModelCall, ...] = ()
    trouble: str = ""
    allowances: tuple[Allowance, ...] = ()


class Writer:
    """One endpoint at work for one run; may be used from several threads."""

    requests_per_island = 1
    is_posting = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._refusals = 0
        endpoint.connect()

    @property
    def name(self) -> str:
        return self._endpoint.name

    @property
    def is_usable(self) -> bool:
        """Whether a request makes sense just now."""
        return not (self.trouble or self._endpoint.outage.is_on)

    @property
    def is_away(self) -> bool:
        """Whether the endpoint does not answer just now but may come back."""
        return not self.trouble and self._endpoint.outage.is_on

    @property
    def trouble(self) -> str:
        """Why the run goes on without this model for good; empty while it does not."""
        if self._refusals >= MAX_REFUSALS:
            return f"model {self.name} refused {MAX_REFUSALS} requests in a row"
        if self._endpoint.outage.is_over_long:
            waited_s = self._endpoint.profile.outage_s
            return f"model {self.name} did not answer for {waited_s:,.0f} s"
        return ""

    def plays(self, role: Role) -> bool:
        return role in self._endpoint.profile.roles

    def write(self, order: Order, funds: Funds, on_call: OnCall) -> Written:
        """At most two requests: the order, and one message that says why the answer cannot be used.

        `on_call` is told of the first while the second is still being answered, so that nothing paid for is forgotten.
        """
        try:
            messages = prompt_for(self._endpoint.profile, order)
        except TooLong as problem:
            return Written(None, trouble=f"model {self.name}: {problem}")
        parent = order.parents[0].source if order.parents else None
        first = self._ask(order, messages, parent, funds)
        if first.reply is None or first.answer is not None or first.call is None:
            return self._written(first)
        mending = mending_messages(messages, first.reply.text, first.trouble)
        if not _fits(self._endpoint.profile, mending):
            return self._written(first)
        on_call(first.call)
        second = self._ask(order, mending, parent, funds)
        if second.call is None:
            return Written(None, (), self._told(first), first.allowances)
        return self._written(second, first.allowances)

    def consult(
        self, role: Role, messages: Sequence[Message], read: Callable[[str], T], funds: Funds
    ) -> "Consulted[T]":
        """Ask for advice, once; `read` takes the reply apart and raises Unusable."""
        profile = self._endpoint.profile
        if not _fits(profile, messages):
            return Consulted(trouble=f"model {self.name}: the {role}'s prompt is too long")
        found: list[T] = []
        asked = self._sent(
            messages,
            role.value,
            None,
            ADVICE_TEMPERATURE,
            funds,
            lambda text: found.append(read(text)),
        )
        trouble = f"{role}: {self._told(asked)}" if asked.call and not found else ""
        calls = (asked.call,) if asked.call else ()
        return Consulted(found[0] if found else None, calls, trouble, asked.allowances)

    def _ask(
        self,
        order: Order,
        messages: Sequence[Message],
        parent: str | None,
        funds: Funds,
    ) -> "_Asked":
        found: list[Answer] = []
        asked = self._sent(
            messages,
            order.role,
            order.island,
            order.temperature,
            funds,
            lambda text: found.append(parse_answer(text, parent)),
        )
        return replace(asked, answer=found[0]) if found else asked

    def _sent(
        self,
        messages: Sequence[Message],
        role: str,
        island: int | None,
        temperature: float,
        funds: Funds,
        read: Callable[[str], None],
    ) -> "_Asked":
        """One request; `read` raises Unusable where its reply cannot be used."""
        profile = self._endpoint.profile
        tokens = estimated_tokens(messages)
        allowance = funds.allow(tokens, profile.max_tokens, profile.price)
        if allowance is None:
            return _Asked(trouble="the budget leaves too little for a request")
        body = body_for(profile, messages, temperature, allowance.max_tokens)
        kept = (allowance,)
        record = functools.partial(
            call_of,
            self.name,
            profile.price,
            role=role,
            island=island,
            messages=messages,
        )
        started = self._endpoint.clock()
        try:
            reply = self._endpoint.ask(body, allowance.tokens)
        except PutOff as reason:
            return _Asked(trouble=str(reason), allowances=kept)
        except ModelFailure as failure:
            is_refusal = failure.failure is Failure.REFUSED
            self._refusals = self._refusals + 1 if is_refusal else 0
            outcome, trouble = failure.failure.value, failure.detail
            seconds = self._endpoint.clock() - started
            call = record(reply=failure.reply, outcome=outcome, trouble=trouble, seconds=seconds)
            return _Asked(trouble=trouble, outcome=outcome, call=call, allowances=kept)
        self._refusals = 0
        seconds = self._endpoint.clock() - started
        try:
            read(reply.text)
        except Unusable as problem:
            outcome, trouble = Failure.MALFORMED.value, str(problem)
            call = record(reply=reply, outcome=outcome, trouble=trouble, seconds=seconds)
            return _Asked(reply, None, trouble, outcome, call, kept)
        call = record(reply=reply, outcome="ok", trouble="", seconds=seconds)
        return _Asked(reply, None, "", "ok", call, kept)

    def _written(self, last: "_Asked", held: tuple[Allowance, ...] = ()) -> Written:
        allowances = (*held, *last.allowances)
        if last.call is None:
            return Written(None, (), "", allowances, is_put_off=True)
        if last.answer is None:
            return Written(None, (last.call,), self._told(last), allowances)
        return Written(draft_of(self.name, last.answer), (last.call,), "", allowances)

    def _told(self, asked: "_Asked") -> str:
        return f"model {self.name}, {asked.outcome}: {asked.trouble}"


class Poster(Writer):
    """Writes requests for a batch file instead of sending them; whoever answers needs no connection from here."""

    is_posting = True

    def __init__(self, name: str, profile: Profile, requests_per_island: int) -> None:
        self.requests_per_island = requests_per_island
        self._endpoint = Endpoint(name, profile, None)
        self._refusals = 0

    def write(self, order: Order, funds: Funds, on_call: OnCall) -> Written:
        profile = self._endpoint.profile
        try:
            messages = prompt_for(profile, order)
        except TooLong as problem:
            return Written(None, trouble=f"model {self.name}: {problem}")
        allowance = funds.allow(estimated_tokens(messages), profile.max_tokens, profile.price)
        if allowance is None:
            return Written(None, is_put_off=True)
        body = body_for(profile, messages, order.temperature, allowance.max_tokens)
        post = Post(body, order.role, order.island)
        return Written(None, post=post, allowances=(allowance,))


def prompt_for(profile: Profile, order: Order) -> list[Message]:
    """The messages of an order, within the profile's context. Raises TooLong where the task alone does not fit."""
    form = profile.initialiser_form if order.role == "seed" else "order"
    return messages_for(order, form=form, max_tokens=profile.prompt_tokens)


def mending_messages(messages: Sequence[Message], reply: str, reason: str) -> list[Message]:
    """The conversation so far, and why its last answer cannot be used."""
    return [*messages, {"role": "assistant", "content": reply}, repair_message(reason)]


def draft_of(name: str, answer: Answer) -> Draft:
    move = answer.move or "a change that the model did not describe"
    return Draft(source=answer.source, origin=f"model:{name}", move=move)


def call_of(
    name: str,
    price: Price,
    *,
    role: str,
    island: int | None,
    messages: Sequence[Message],
    reply: Reply | None,
    outcome: str,
    trouble: str,
    seconds: float,
) -> ModelCall:
    tokens_in = reply.tokens_in if reply else None
    tokens_out = reply.tokens_out if reply else None
    is_counted = tokens_in is not None and tokens_out is not None
    return ModelCall(
        model=name,
        role=role,
        island=island,
        prompt=as_text(messages),
        reply=reply.text if reply else f"[{trouble}]",
        outcome=outcome,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        money_usd=price.of(tokens_in or 0, tokens_out or 0) if is_counted else None,
        seconds=max(0.0, seconds),
    )


def _fits(profile: Profile, messages: Sequence[Message]) -> bool:
    limit = profile.prompt_tokens
    return limit is None or estimated_tokens(messages) <= limit


@dataclass(frozen=True)
class _Asked:
    """One request; `reply` is None where no complete reply came, `call` where none was made."""

    reply: Reply | None = None
    answer: Answer | None = None
    trouble: str = ""
    outcome: str = ""
    call: ModelCall | None = None
    allowances: tuple[Allowance, ...] = field(default=())
