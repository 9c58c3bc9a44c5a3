"""One profile in use: its connection, rate limits and outages, shared by all runs that it writes for."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpu_runner.proposals.models.failures import Failure, Message, ModelFailure, Reply
from gpu_runner.proposals.models.outage import Outage
from gpu_runner.proposals.models.profiles import Profile
from gpu_runner.proposals.models.rates import Rates

if TYPE_CHECKING:
    from gpu_runner.proposals.models.client import Client

PATIENCE_S: Final = 30.0
"""How long a request waits for room under the rate limits before its run may do something else."""


class PutOff(RuntimeError):
    """No request was made; it can be later."""


class Endpoint:
    """Safe to use from several threads."""

    def __init__(
        self,
        name: str,
        profile: Profile,
        key: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.profile = profile
        self.clock = clock
        self.outage = Outage(profile.outage_s, clock)
        self._key = key
        self._client: Client | None = None
        self._rates = Rates(
            profile.requests_at_once, profile.requests_per_minute, profile.tokens_per_minute, clock
        )

    def ask(self, body: Mapping[str, Any], tokens: int) -> Reply:
        """Send a request that may cost about so many tokens, as soon as the limits allow it.

        Raises:
            PutOff: the endpoint is away, or the limits leave no room for some time.
            ModelFailure: no usable reply.
        """
        if not self._rates.enter(tokens, PATIENCE_S):
            raise PutOff(f"model {self.name}: its rate limit leaves no room")
        try:
            if not self.outage.enter():
                raise PutOff(f"model {self.name} does not answer")
            return self._asked(body)
        finally:
            self._rates.leave()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def connect(self) -> None:
        """Make the client; not thread-safe, so before the first request."""
        if self._client is None:
            # The SDK takes a second to import, and most runs have no model.
            from gpu_runner.proposals.models.client import Client

            self._client = Client(self.profile, self._key)

    def _asked(self, body: Mapping[str, Any]) -> Reply:
        assert self._client is not None
        try:
            reply = self._client.complete(body)
        except ModelFailure as failure:
            if failure.failure is not Failure.UNREACHABLE:
                self.outage.succeeded()
                raise
            pause_s = self.outage.failed()
            detail = f"{failure.detail}; it is tried again in {pause_s:.0f} s"
            raise ModelFailure(failure.failure, detail, failure.reply) from failure
        except BaseException:
            self.outage.failed()
            raise
        self.outage.succeeded()
        return reply


def body_for(
    profile: Profile, messages: Sequence[Message], temperature: float, max_tokens: int
) -> dict[str, Any]:
    """A request as OpenAI's chat protocol has it."""
    chosen = profile.temperature
    body = {
        "model": profile.model,
        "messages": [dict(message) for message in messages],
        "temperature": temperature if chosen is None else chosen,
        "max_tokens": max_tokens,
    }
    effort = profile.reasoning_effort
    return body if effort is None else {**body, "reasoning_effort": effort}
