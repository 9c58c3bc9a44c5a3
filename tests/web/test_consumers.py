import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from channels.testing import WebsocketCommunicator
from django.test import Client

from evolution_app import consumers, events, frames, services
from evolution_app.models import ApiToken, Run, User
from foundry_web.asgi import application
from foundry_web.layers import TailLayer
from gpu_runner.core.verdicts import RunState, Stage
from gpu_runner.store import Store
from tests.web import samples

pytestmark = pytest.mark.django_db(transaction=True)

HOST = b"127.0.0.1:8000"
TOO_LATE_S = 60.0

in_thread: Callable[..., Any] = sync_to_async


def headers(
    user: User | None, origin: bytes | None = b"http://" + HOST
) -> list[tuple[bytes, bytes]]:
    given = [(b"host", HOST)]
    if origin is not None:
        given.append((b"origin", origin))
    if user is not None:
        client = Client()
        client.force_login(user)
        cookie = client.cookies["foundry_session"].value
        given.append((b"cookie", f"foundry_session={cookie}".encode()))
    return given


@asynccontextmanager
async def socket(
    run: Run, user: User | None, since: int | str = 0
) -> AsyncIterator[WebsocketCommunicator]:
    given = await in_thread(headers)(user)
    path = f"/ws/runs/{run.pk}/?since={since}"
    communicator = WebsocketCommunicator(application, path, headers=given)
    accepted, _ = await communicator.connect(timeout=TOO_LATE_S)
    assert accepted
    try:
        yield communicator
    finally:
        await communicator.disconnect()


async def frames_until(communicator: WebsocketCommunicator, kind: str) -> list[dict[str, Any]]:
    received = []
    while not received or received[-1]["kind"] != kind:
        received.append(await communicator.receive_json_from(timeout=TOO_LATE_S))
    return received


def seqs(received: list[dict[str, Any]]) -> list[int]:
    return [frame["seq"] for frame in received if "seq" in frame]


def work(ledger: Store, first: int, count: int) -> None:
    for number in range(first, first + count):
        ledger.add(samples.proposal(number))
        ledger.stage(number, Stage.PROBE)
        ledger.finish(number, samples.correct())


@pytest.fixture(autouse=True)
def _tail_ended(db: None) -> Iterator[None]:
    """The thread that reads hints ends by itself once nobody listens; the database goes only after that."""
    yield
    layer = get_channel_layer()
    tail = layer._tail if isinstance(layer, TailLayer) else None
    if tail is not None:
        layer.groups = {}
        tail.join(TOO_LATE_S)
        assert not tail.is_alive()


@pytest.fixture
def ledger(run: Run) -> Store:
    ledger = samples.claim(run)
    ledger.set_state(RunState.RUNNING)
    return ledger


async def closing_code(communicator: WebsocketCommunicator) -> int:
    message = await communicator.receive_output(timeout=TOO_LATE_S)
    assert message["type"] == "websocket.close"
    return int(message["code"])


@pytest.mark.parametrize("who", ["nobody", "stranger", "viewer", "expert"])
async def test_who_may_not_see_a_run_is_told_that_there_is_none(
    run: Run, other: User, viewer: User, expert: User, who: str
) -> None:
    user = {"nobody": None, "stranger": other, "viewer": viewer, "expert": expert}[who]
    async with socket(run, user) as communicator:
        assert await closing_code(communicator) == 4404


async def test_a_run_that_does_not_exist_looks_the_same(run: Run, owner: User) -> None:
    async with socket(Run(pk=run.pk + 1), owner) as communicator:
        assert await closing_code(communicator) == 4404


@pytest.mark.parametrize(
    "origin", [b"http://evil.example", b"http://127.0.0.1:9999", b"null", b"http://localhost:8000"]
)
async def test_another_origin_is_refused_on_loopback_too(
    run: Run, owner: User, origin: bytes
) -> None:
    given = await in_thread(headers)(owner, origin)
    communicator = WebsocketCommunicator(application, f"/ws/runs/{run.pk}/", headers=given)
    accepted, _ = await communicator.connect(timeout=TOO_LATE_S)
    assert not accepted


async def test_a_name_that_points_here_is_refused(run: Run, owner: User) -> None:
    given = [(b"host", b"evil.example:8000"), (b"origin", b"http://evil.example:8000")]
    communicator = WebsocketCommunicator(application, f"/ws/runs/{run.pk}/", headers=given)
    accepted, _ = await communicator.connect(timeout=TOO_LATE_S)
    assert not accepted


@pytest.mark.rerun
async def test_a_program_follows_with_a_bearer_token(run: Run, owner: User) -> None:
    token = await in_thread(ApiToken.objects.issue)(owner, "laptop")
    given = [(b"host", HOST), (b"authorization", f"Bearer {token}".encode())]
    communicator = WebsocketCommunicator(application, f"/ws/runs/{run.pk}/", headers=given)
    await communicator.connect(timeout=TOO_LATE_S)
    assert seqs(await frames_until(communicator, "caught_up")) == [1]
    await communicator.disconnect()


@pytest.mark.rerun
async def test_the_past_is_caught_up_with_and_the_present_follows(
    run: Run, owner: User, ledger: Store
) -> None:
    await in_thread(work)(ledger, 1, 3)
    async with socket(run, owner) as communicator:
        past = await frames_until(communicator, "caught_up")
        assert seqs(past) == list(range(1, 12))
        await in_thread(work)(ledger, 4, 1)
        present = await frames_until(communicator, events.DONE)
        assert seqs(present) == [12, 13, 14]
        assert present[-1]["payload"]["ratio"] == 2.0


@pytest.mark.parametrize("since", [5, 11])
async def test_a_reconnect_resumes_after_what_it_has(
    run: Run, owner: User, ledger: Store, since: int
) -> None:
    await in_thread(work)(ledger, 1, 3)
    async with socket(run, owner, since) as communicator:
        past = await frames_until(communicator, "caught_up")
        assert seqs(past) == list(range(since + 1, 12))


@pytest.mark.parametrize("since", ["-1", "x", "", "9" * 30])
async def test_a_since_that_means_nothing_is_the_beginning(
    run: Run, owner: User, since: str
) -> None:
    async with socket(run, owner, since) as communicator:
        assert seqs(await frames_until(communicator, "caught_up")) == [1]


@pytest.mark.rerun
async def test_nothing_is_lost_or_doubled_while_it_happens(
    run: Run, owner: User, ledger: Store
) -> None:
    async with socket(run, owner) as first, socket(run, owner) as second:
        await in_thread(work)(ledger, 1, 40)
        for communicator in (first, second):
            received: list[dict[str, Any]] = []
            while not received or received[-1]["seq"] < 122:
                frame = await communicator.receive_json_from(timeout=TOO_LATE_S)
                received += [frame] if "seq" in frame else []
            assert seqs(received) == list(range(1, 123))


@pytest.mark.rerun
async def test_an_event_without_a_hint_arrives_all_the_same(
    run: Run, owner: User, ledger: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with socket(run, owner) as communicator:
        await frames_until(communicator, "caught_up")
        monkeypatch.setattr(events, "send_hint", lambda run_id, seq: None)
        await in_thread(work)(ledger, 1, 1)
        assert seqs(await frames_until(communicator, events.DONE)) == [3, 4, 5]


@pytest.mark.rerun
async def test_the_socket_of_a_run_that_is_over_says_so_and_closes(
    run: Run, owner: User, ledger: Store
) -> None:
    async with socket(run, owner) as communicator:
        await frames_until(communicator, "caught_up")
        await in_thread(ledger.set_state)(RunState.FINISHED, "budget")
        ending = await frames_until(communicator, "end")
        assert [frame["kind"] for frame in ending] == [events.RUN_STATE, "end"]
        assert await closing_code(communicator) == 1000


async def test_losing_the_right_closes_the_socket(run: Run, owner: User, other: User) -> None:
    await in_thread(services.share_task)(task=run.task, by=owner, add=[other])
    async with socket(run, other) as communicator:
        await frames_until(communicator, "caught_up")
        await in_thread(services.share_task)(task=run.task, by=owner, remove=[other])
        assert await closing_code(communicator) == 4404


async def test_a_page_that_is_far_behind_loads_itself_again(
    run: Run, owner: User, ledger: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "TOO_FAR_BEHIND", 5)
    await in_thread(work)(ledger, 1, 3)
    async with socket(run, owner) as communicator:
        [frame] = await frames_until(communicator, "reload")
        assert frame["payload"] == {}
        assert await closing_code(communicator) == 1000


async def test_a_quiet_socket_is_pinged(
    run: Run, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "PING_EVERY_S", 0.1)
    monkeypatch.setattr(consumers, "LOOK_EVERY_S", 0.1)
    async with socket(run, owner) as communicator:
        received = await frames_until(communicator, "ping")
        assert received[-1]["payload"] == {"seq": 1}


async def test_what_a_client_sends_is_ignored(run: Run, owner: User) -> None:
    async with socket(run, owner) as communicator:
        await frames_until(communicator, "caught_up")
        await communicator.send_json_to({"kind": "run.state", "payload": {"state": "finished"}})
        assert await communicator.receive_nothing(timeout=0.3)
    await asyncio.sleep(0)
    assert (await Run.objects.aget(pk=run.pk)).state == RunState.QUEUED
