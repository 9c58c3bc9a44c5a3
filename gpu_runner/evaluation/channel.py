"""Bounded JSON messages and file descriptors over a Unix stream socket.

The same class serves both ends. A peer may be hostile: whatever it sends costs at most
`MESSAGE_LIMIT_BYTES` of memory and the receiver's timeout, and is data, never code.
"""

import array
import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from gpu_runner.evaluation.errors import ChildCrashed, ProtocolError, TimedOut

MESSAGE_LIMIT_BYTES: Final = 8 << 20
FDS_LIMIT: Final = 64
SEND_TIMEOUT_S: Final = 30.0

_LENGTH: Final = struct.Struct("!I")


class Channel:
    """One end of a conversation; not safe for two threads that read, or two that write, at once."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._received = bytearray()
        self._fds: list[int] = []
        self._is_torn = False

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), cls(theirs)

    def send(
        self, message: dict[str, Any], fds: Sequence[int] = (), *, timeout_s: float = SEND_TIMEOUT_S
    ) -> None:
        """Send one message; the descriptors are duplicated, the sender keeps its own.

        Raises:
            ProtocolError: the message is too large or no JSON, or an earlier one was cut short.
            ChildCrashed: the other end is closed.
            TimedOut: the other end does not read; the channel can send no more.
        """
        if self._is_torn:
            raise ProtocolError("an earlier message was cut short; this channel cannot send")
        frame = memoryview(_frame(message, fds))
        deadline = time.monotonic() + timeout_s
        control = _control(fds)
        self._is_torn = True
        while frame:
            left_s = _left(deadline, "the other end does not read")
            try:
                self._socket.settimeout(left_s)
                sent = self._socket.sendmsg([frame], control)
            except TimeoutError as error:
                raise TimedOut("the other end does not read") from error
            except OSError as error:
                raise ChildCrashed(f"the other end is closed: {error}") from error
            frame, control = frame[sent:], []
        self._is_torn = False

    def receive(self, timeout_s: float) -> tuple[dict[str, Any], list[int]]:
        """Wait for one message; its descriptors belong to the caller, who closes them.

        After `TimedOut` the part that came is kept and the next call goes on from there.

        Raises:
            TimedOut: the message was not complete in time, however busily bytes trickle in.
            ChildCrashed: the other end was closed.
            ProtocolError: too large, not a JSON object, or too many descriptors.
        """
        deadline = time.monotonic() + timeout_s
        self._fill(_LENGTH.size, deadline)
        (length,) = _LENGTH.unpack_from(self._received)
        if not 0 < length <= MESSAGE_LIMIT_BYTES:
            raise ProtocolError(f"a message of {length} bytes; at most {MESSAGE_LIMIT_BYTES}")
        self._fill(_LENGTH.size + length, deadline)
        body = bytes(self._received[_LENGTH.size :])
        fds, self._fds = self._fds, []
        self._received.clear()
        try:
            return _parse(body), fds
        except ProtocolError:
            _close_all(fds)
            raise

    def _fill(self, size: int, deadline: float) -> None:
        while len(self._received) < size:
            left_s = _left(deadline, "no message came in time")
            chunk = self._read(min(size - len(self._received), 1 << 20), left_s)
            if not chunk:
                raise ChildCrashed("the other end was closed")
            self._received += chunk

    def _read(self, size: int, timeout_s: float) -> bytes:
        room = socket.CMSG_SPACE(FDS_LIMIT * array.array("i").itemsize)
        try:
            self._socket.settimeout(timeout_s)
            chunk, control, flags, _ = self._socket.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
        except TimeoutError as error:
            raise TimedOut("no message came in time") from error
        except OSError as error:
            raise ChildCrashed(f"the other end is gone: {error}") from error
        self._fds += _descriptors(control)
        if flags & socket.MSG_CTRUNC or len(self._fds) > FDS_LIMIT:
            _close_all(self._fds)
            self._fds = []
            raise ProtocolError(f"more than {FDS_LIMIT} file descriptors in one message")
        return chunk

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        _close_all(self._fds)
        self._fds = []
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _frame(message: dict[str, Any], fds: Sequence[int]) -> bytes:
    if len(fds) > FDS_LIMIT:
        raise ProtocolError(f"{len(fds)} file descriptors in one message; at most {FDS_LIMIT}")
    try:
        body = json.dumps(message, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a message that is no JSON: {error}") from error
    if len(body) > MESSAGE_LIMIT_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes; at most {MESSAGE_LIMIT_BYTES}")
    return _LENGTH.pack(len(body)) + body


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"an unreadable message: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"expected a JSON object, got {type(message).__name__}")
    return message


def _control(fds: Sequence[int]) -> list[tuple[int, int, bytes]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []


def _descriptors(control: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, payload in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(payload[: len(payload) - len(payload) % found.itemsize])
    return list(found)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _left(deadline: float, what: str) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimedOut(what)
    return left
