"""The judge's two kinds of partners: the pool, which starts and ends players, and the players themselves."""

import itertools
import secrets
import select
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.errors import ChildCrashed, ProtocolError, TimedOut
from gpu_runner.evaluation.protocol import Failed, Message, answer_from, message_of

POOL_TIMEOUT_S = 240.0
"""For a player: a cold zygote on a busy machine imports torch first."""

Nursery = Literal["interpreter", "compile", "cuda"]
A = TypeVar("A", bound=Message)


@dataclass(frozen=True)
class Exit:
    """How a player ended: by itself with `code` or `signal`, or for the pool's `reason`."""

    code: int | None
    signal: int | None
    is_out_of_memory: bool
    reason: str
    output: str

    @property
    def in_words(self) -> str:
        """What submitted code did that ended the process, to follow the name of a step."""
        if self.is_out_of_memory:
            return "used more memory than a player may have"
        if self.reason == "processes":
            return "started more processes than a player may have, and was ended; start none"
        if self.reason == "deadline":
            return "ran past the player's time, and was ended"
        if self.signal:
            return f"ended the process by {_signal_name(self.signal)}"
        return f"ended the process with exit code {self.code} before answering"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class PlayerLost(Exception):
    """The player ended, hung, or spoke out of turn: `cause` is exit, hang or forgery."""

    def __init__(self, link: "PlayerLink", cause: Literal["exit", "hang", "forgery"], detail: str):
        super().__init__(detail)
        self.link = link
        self.cause = cause
        self.detail = detail


class PoolLink:
    """The judge's channel to the pool."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._numbers = itertools.count(1)
        self._living: set[int] = set()

    def player(self, nursery: Nursery, role: str) -> "PlayerLink":
        import socket

        number = next(self._numbers)
        self.channel.send({"need": "player", "nursery": nursery, "id": number, "role": role})
        answer, fds = self.channel.receive(POOL_TIMEOUT_S)
        if answer.get("player") != number or len(fds) != 1:
            raise ProtocolError(f"asked for player {number}, got {str(answer)[:200]}")
        self._living.add(number)
        return PlayerLink(self, number, Channel(socket.socket(fileno=fds[0])), role)

    def drop(self, number: int) -> Exit:
        self.channel.send({"drop": number})
        answer, _ = self.channel.receive(POOL_TIMEOUT_S)
        if answer.get("exit") != number:
            raise ProtocolError(f"dropped player {number}, got {str(answer)[:200]}")
        self._living.discard(number)
        return Exit(
            code=answer.get("code"),
            signal=answer.get("signal"),
            is_out_of_memory=bool(answer.get("oom")),
            reason=str(answer.get("reason", "")),
            output=str(answer.get("output", "")),
        )

    def quiet(self) -> None:
        """Wait until nobody else uses the device; until `company` or the next stage."""
        self.channel.send({"need": "quiet"})
        self.channel.receive(POOL_TIMEOUT_S * 10)

    def company(self) -> None:
        """Share the device again."""
        self.channel.send({"need": "company"})
        self.channel.receive(POOL_TIMEOUT_S * 10)

    def stage(self, name: str) -> None:
        self.channel.send({"stage": name})


class PlayerLink:
    """One player. A question may be asked first and its answer fetched later, one at a time."""

    def __init__(self, pool: PoolLink, number: int, channel: Channel, role: str) -> None:
        self._pool = pool
        self._number = number
        self._channel = channel
        self._nonce = ""
        self.role = role
        self.exit: Exit | None = None

    def ask(
        self, request: Message, kind: type[A], timeout_s: float, fds: Sequence[int] = ()
    ) -> A | Failed:
        self.send(request, fds)
        return self.answer(kind, timeout_s)

    def send(self, request: Message, fds: Sequence[int] = ()) -> None:
        self._nonce = secrets.token_hex(8)
        try:
            self._channel.send(message_of(self._nonce, request), fds)
        except ChildCrashed as error:
            raise self._lost("exit", str(error)) from error
        except TimedOut as error:
            raise self._lost("hang", str(error)) from error

    def has_answered(self, timeout_s: float) -> bool:
        """Whether something to read comes within that time; the player is left alone if not."""
        return bool(select.select([self._channel.fileno()], [], [], timeout_s)[0])

    def answer(self, kind: type[A], timeout_s: float) -> A | Failed:
        """The answer to what was asked last. Raises PlayerLost; the player is gone then."""
        try:
            message, fds = self._channel.receive(timeout_s)
            if fds:
                raise ProtocolError("a player sent descriptors")
            return answer_from(message, self._nonce, kind)
        except TimedOut as error:
            raise self._lost("hang", f"no answer in {timeout_s:g} s") from error
        except ChildCrashed as error:
            raise self._lost("exit", str(error)) from error
        except ProtocolError as error:
            raise self._lost("forgery", str(error)) from error

    def _lost(self, cause: Any, detail: str) -> PlayerLost:
        self.close()
        return PlayerLost(self, cause, detail)

    def close(self) -> Exit:
        """End the player; harmless when it is gone already."""
        if self.exit is None:
            self.exit = self._pool.drop(self._number)
            self._channel.close()
        return self.exit
