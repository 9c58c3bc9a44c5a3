"""The socket of a run's page: its events in order from `since` on, each once, as they happen."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.exceptions import ChannelFull
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.contrib.auth.models import AnonymousUser

from evolution_app.events import run_group
from evolution_app.frames import BATCH, frames_after, is_too_far_behind
from evolution_app.models import Run, User
from gpu_runner.core.verdicts import RunState

NOT_FOUND: Final = 4404
DONE: Final = 1000
LOOK_EVERY_S: Final = 1.0
PING_EVERY_S: Final = 20.0


class RunConsumer(AsyncJsonWebsocketConsumer):
    """Stream one run's events.

    A hint only says that there is more to read; once a second the consumer looks without one, which also notices that the
    person may not see the run any more. Frames without `seq`: `caught_up`, `ping`, `reload` (too far behind: load
    the page again) and `end` (the run is over and everything was sent; the socket closes).
    """

    async def connect(self) -> None:
        self.ticking: asyncio.Task[None] | None = None
        self.is_caught_up = False
        self.run_id: int = self.scope["url_route"]["kwargs"]["run_id"]
        self.user: User | AnonymousUser = cast(
            "User | AnonymousUser", self.scope.get("user") or AnonymousUser()
        )
        if await self.standing() is None:
            # Accepted first: a browser learns the code of a close only of an open socket.
            await self.accept()
            await self.close(code=NOT_FOUND)
            return
        self.cursor = since_of(self.scope)
        # Join before reading, so that no event falls between the two.
        await self.channel_layer.group_add(run_group(self.run_id), self.channel_name)
        await self.accept()
        if await database_sync_to_async(is_too_far_behind)(self.run_id, self.cursor):
            await self.send_json({"v": 1, "kind": "reload", "payload": {}})
            await self.close(code=DONE)
            return
        self.ticking = asyncio.create_task(self.tick())
        await self.send_new_events()

    async def disconnect(self, code: int) -> None:
        if self.ticking is not None:
            self.ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.ticking
        await self.channel_layer.group_discard(run_group(self.run_id), self.channel_name)

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        """People act over HTTP; whatever a client sends here is ignored."""

    async def tick(self) -> None:
        """Nudge the consumer through its own channel, so that reading and sending stay in one task."""
        pinged = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            is_ping_due = time.monotonic() - pinged >= PING_EVERY_S
            pinged = time.monotonic() if is_ping_due else pinged
            # A full channel holds hints that make the consumer look anyway.
            with contextlib.suppress(ChannelFull):
                await self.channel_layer.send(
                    self.channel_name, {"type": "run.look", "is_ping_due": is_ping_due}
                )

    async def run_look(self, message: dict[str, Any]) -> None:
        standing = await self.standing()
        if standing is None:
            await self.close(code=NOT_FOUND)
            return
        if standing[1] > self.cursor:
            await self.send_new_events()
        if message["is_ping_due"]:
            await self.send_json({"v": 1, "kind": "ping", "payload": {"seq": self.cursor}})

    async def run_hint(self, message: dict[str, Any]) -> None:
        if message["seq"] > self.cursor:
            await self.send_new_events()

    async def send_new_events(self) -> None:
        while True:
            frames = await database_sync_to_async(frames_after)(self.run_id, self.cursor)
            for frame in frames:
                await self.send_json(frame)
                self.cursor = frame["seq"]
            if len(frames) < BATCH:
                break
        if not self.is_caught_up:
            self.is_caught_up = True
            await self.send_json({"v": 1, "kind": "caught_up", "payload": {"seq": self.cursor}})
        await self.end_if_over()

    async def end_if_over(self) -> None:
        standing = await self.standing()
        if standing is not None and standing[0].is_over and standing[1] <= self.cursor:
            await self.send_json({"v": 1, "kind": "end", "payload": {"state": standing[0]}})
            await self.close(code=DONE)

    @database_sync_to_async
    def standing(self) -> tuple[RunState, int] | None:
        """State and newest seq of the run; None if the person, as known to the database now, does not see it."""
        if not isinstance(self.user, User):
            return None
        user = User.objects.filter(pk=self.user.pk).first()
        if user is None:
            return None
        visible = Run.objects.visible_to(user).filter(pk=self.run_id)
        row = visible.values_list("state", "last_seq").first()
        return (RunState(row[0]), row[1]) if row else None


def since_of(scope: Mapping[str, Any]) -> int:
    """The last seq that the client has; 0 where it says nothing usable."""
    given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("since", ["0"])[0]
    return int(given) if given.isdecimal() and len(given) < 18 else 0
