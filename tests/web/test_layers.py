"""Hints between two processes, through the layer that is configured."""

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import connection

from evolution_app.models import Hint
from foundry_web.layers import OVERLAP, Tail, TailLayer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rerun]

SEND = """
import os, sys
import django
from django.conf import settings
django.setup()
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
layer = get_channel_layer()
for number in range(int(sys.argv[1])):
    async_to_sync(layer.group_send)("run.7", {"type": "run.hint", "run": 7, "seq": number})
"""


def sender(count: int) -> subprocess.Popen[bytes]:
    """Another process that sends hints, on the database of this test."""
    name = connection.settings_dict["NAME"]
    is_file = connection.vendor == "sqlite"
    url = f"sqlite:///{name}" if is_file else f"postgres://postgres@127.0.0.1:5432/{name}"
    environment = {**os.environ, "DATABASE_URL": url}
    environment["DJANGO_SETTINGS_MODULE"] = "foundry_web.settings"
    return subprocess.Popen([sys.executable, "-c", SEND, str(count)], env=environment)


async def received(layer: Any, channel: str, last: int, timeout_s: float = 30) -> list[int]:
    numbers: list[int] = []
    async with asyncio.timeout(timeout_s):
        while not numbers or numbers[-1] < last:
            numbers.append((await layer.receive(channel))["seq"])
    return numbers


async def test_hints_of_another_process_arrive_in_order() -> None:
    layer = get_channel_layer()
    assert layer is not None
    channels = [await layer.new_channel() for _ in range(3)]
    for channel in channels:
        await layer.group_add("run.7", channel)
    await layer.group_add("run.8", other := await layer.new_channel())
    process = sender(50)
    for channel in channels:
        numbers = await received(layer, channel, 49)
        assert numbers == list(range(50))
    assert process.wait(10) == 0
    for channel in channels:
        await layer.group_discard("run.7", channel)
    await layer.group_discard("run.8", other)


@pytest.mark.skipif("channels_redis" in str(settings.CHANNEL_LAYERS), reason="of the tail layer")
async def test_the_tail_ends_when_nobody_listens_and_starts_again() -> None:
    layer = TailLayer()
    for _ in range(2):
        channel = await layer.new_channel()
        await layer.group_add("run.7", channel)
        tail = layer._tail
        assert tail is not None
        await layer.group_send("run.7", {"type": "run.hint", "seq": 1})
        assert await received(layer, channel, 1) == [1]
        await layer.group_discard("run.7", channel)
        await layer.group_send("run.7", {"type": "run.hint", "seq": 2})
        await asyncio.to_thread(tail.join, 5)
        assert not tail.is_alive()


async def test_a_listener_hears_nothing_from_before_it_joined() -> None:
    layer = TailLayer()
    await layer.group_send("run.7", {"type": "run.hint", "seq": 1})
    channel = await layer.new_channel()
    await layer.group_add("run.7", channel)
    await layer.group_send("run.7", {"type": "run.hint", "seq": 2})
    assert await received(layer, channel, 2) == [2]
    await layer.group_discard("run.7", channel)


def test_a_row_that_commits_late_is_not_skipped() -> None:
    """On PostgreSQL a smaller id may become visible after a larger one."""
    first = Hint.objects.create(group="g", message={"n": 1})
    tail = Tail(first.pk)
    tail._is_sqlite = False
    Hint.objects.create(pk=first.pk + 2, group="g", message={"n": 3})
    assert tail.new() == [("g", {"n": 3})]
    Hint.objects.create(pk=first.pk + 1, group="g", message={"n": 2})
    assert tail.new() == [("g", {"n": 2})]
    assert tail.new() == []
    assert OVERLAP > 2
