"""The channel against peers that are slow, gone, or hostile."""

import array
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from gpu_runner.evaluation.channel import FDS_LIMIT, MESSAGE_LIMIT_BYTES, Channel
from gpu_runner.evaluation.errors import ChildCrashed, ProtocolError, TimedOut


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel and the raw socket of a peer that need not keep the rules."""
    ours, theirs = socket.socketpair()
    with Channel(ours) as channel, theirs:
        yield channel, theirs


def framed(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_messages_arrive_in_order_and_whole() -> None:
    near, far = Channel.pair()
    with near, far:
        sent = [{"n": n, "text": "é" * n, "nested": {"list": [1, 2.5, None]}} for n in range(20)]
        for message in sent:
            near.send(message)
        assert [far.receive(1)[0] for _ in sent] == sent


def test_a_large_message_crosses_while_the_other_end_reads() -> None:
    near, far = Channel.pair()
    with near, far:
        message = {"text": "x" * (MESSAGE_LIMIT_BYTES - 100)}
        writer = threading.Thread(target=near.send, args=(message,))
        writer.start()
        assert far.receive(10)[0] == message
        writer.join()


def test_descriptors_travel_with_their_message() -> None:
    near, far = Channel.pair()
    reader, writer = os.pipe()
    with near, far:
        near.send({"n": 1})
        near.send({"n": 2}, [writer])
        os.close(writer)
        assert far.receive(1) == ({"n": 1}, [])
        message, (fd,) = far.receive(1)
        assert message == {"n": 2}
        assert not os.get_inheritable(fd)
        os.write(fd, b"hello")
        assert os.read(reader, 5) == b"hello"
        os.close(fd)
    os.close(reader)


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[1]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"n": ' + b"9" * 100_000 + b"}",
    ],
)
def test_garbage_is_a_protocol_error(ends: tuple[Channel, socket.socket], body: bytes) -> None:
    channel, peer = ends
    peer.sendall(framed(body))
    with pytest.raises(ProtocolError):
        channel.receive(1)


@pytest.mark.parametrize("length", [0, MESSAGE_LIMIT_BYTES + 1, 0xFFFFFFFF])
def test_an_announced_length_out_of_bounds_is_refused_unread(
    ends: tuple[Channel, socket.socket], length: int
) -> None:
    channel, peer = ends
    peer.sendall(struct.pack("!I", length))
    with pytest.raises(ProtocolError):
        channel.receive(1)


def test_too_many_descriptors_are_refused_and_closed(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    before = open_fds()
    socket.send_fds(peer, [framed(b"{}")], [0] * (FDS_LIMIT + 5))
    with pytest.raises(ProtocolError):
        channel.receive(1)
    assert open_fds() == before


def test_descriptors_of_an_unreadable_message_are_closed(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, peer = ends
    before = open_fds()
    socket.send_fds(peer, [framed(b"garbage")], [0, 1])
    with pytest.raises(ProtocolError):
        channel.receive(1)
    assert open_fds() == before


def test_descriptors_scattered_over_the_body_count_together(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, peer = ends
    body = json.dumps({"text": "x" * 64}).encode()
    frame = framed(body)
    before = open_fds()
    rights = array.array("i", [0] * 40)
    for part in (frame[:10], frame[10:20], frame[20:]):
        peer.sendmsg([part], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    with pytest.raises(ProtocolError):
        channel.receive(1)
    assert open_fds() == before


def test_a_trickle_of_bytes_does_not_stretch_the_deadline(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, peer = ends
    stop = threading.Event()

    def trickle() -> None:
        peer.sendall(struct.pack("!I", 1000))
        while not stop.wait(0.02):
            peer.sendall(b" ")

    writer = threading.Thread(target=trickle)
    writer.start()
    start = time.monotonic()
    with pytest.raises(TimedOut):
        channel.receive(0.2)
    assert time.monotonic() - start < 1
    stop.set()
    writer.join()


def test_a_message_cut_by_the_deadline_is_completed_by_the_next_call(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, peer = ends
    frame = framed(b'{"n": 1}')
    peer.sendall(frame[:6])
    with pytest.raises(TimedOut):
        channel.receive(0.05)
    peer.sendall(frame[6:])
    assert channel.receive(1) == ({"n": 1}, [])


@pytest.mark.parametrize("sent", [b"", b"\0\0", framed(b'{"n": 1}')[:-1]])
def test_a_closed_end_is_a_crash(ends: tuple[Channel, socket.socket], sent: bytes) -> None:
    channel, peer = ends
    peer.sendall(sent)
    peer.close()
    with pytest.raises(ChildCrashed):
        channel.receive(1)


def test_sending_to_a_closed_end_is_a_crash(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    peer.close()
    with pytest.raises(ChildCrashed):
        channel.send({"n": 1})


def test_an_end_that_never_reads_times_out_and_takes_no_more(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, _ = ends
    with pytest.raises(TimedOut):
        channel.send({"text": "x" * (4 << 20)}, timeout_s=0.1)
    with pytest.raises(ProtocolError):
        channel.send({"n": 1})


@pytest.mark.parametrize("message", [{"f": print}, {"s": "x" * (MESSAGE_LIMIT_BYTES + 1)}])
def test_what_cannot_be_received_cannot_be_sent(message: dict[str, object]) -> None:
    near, far = Channel.pair()
    with near, far, pytest.raises(ProtocolError):
        near.send(message)


def test_a_timeout_is_an_ordinary_timeout_error(ends: tuple[Channel, socket.socket]) -> None:
    with pytest.raises(TimeoutError):
        ends[0].receive(0.01)
