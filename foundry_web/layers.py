"""The channel layer of the embedded default: hints cross processes as rows of the database they are about anyway.

`group_send` inserts a row; one thread per web process reads new rows and hands them to the groups of its own
process. Nothing is promised but a nudge: who follows a run reads the truth from its events, and looks once a
second whatever happens.
"""

import asyncio
import threading
import time
from collections import deque
from datetime import timedelta
from typing import Any, Final

import structlog
from asgiref.sync import sync_to_async
from channels.layers import InMemoryChannelLayer
from django.db import DatabaseError, connection
from django.utils import timezone

KEEP: Final = timedelta(minutes=5)
PRUNE_EVERY_S: Final = 60.0
RETRY_S: Final = 1.0
BATCH: Final = 500
LOOKS: Final = 25
"""How often the version of the database is read, every 20 ms, before the thread looks whether anybody listens."""
OVERLAP: Final = 200
"""How far behind the newest id rows are looked for: on PostgreSQL a smaller id may be committed after a larger one."""

log = structlog.get_logger("tail")


class TailLayer(InMemoryChannelLayer):
    """Groups across processes through the table of hints; single channels stay in the process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lock = threading.Lock()
        self._tail: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def group_add(self, group: str, channel: str) -> None:
        await super().group_add(group, channel)
        self._loop = asyncio.get_running_loop()
        # Before this returns, so that no hint falls between joining the group and the first look.
        await sync_to_async(self._start_tail)()

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self.require_valid_group_name(group)
        await sync_to_async(insert_hint)(group, message)

    def group_send_now(self, group: str, message: dict[str, Any]) -> None:
        """The same from code that is not asynchronous, without an event loop for each message."""
        self.require_valid_group_name(group)
        insert_hint(group, message)

    def _start_tail(self) -> None:
        with self._lock:
            if self._tail is not None and self._tail.is_alive():
                return
            start = newest_hint()
            self._tail = threading.Thread(
                target=self._follow, args=(start,), name="hints", daemon=True
            )
            self._tail.start()

    def _is_done(self) -> bool:
        """Whether nobody listens any more; then the thread ends, and the next listener starts another."""
        with self._lock:
            if self.groups:
                return False
            self._tail = None
            return True

    def _follow(self, start: int) -> None:
        tail = Tail(start)
        try:
            while not self._is_done():
                self._step(tail)
        finally:
            connection.close()

    def _step(self, tail: "Tail") -> None:
        try:
            tail.wait()
            for group, message in tail.new():
                self._hand_over(group, message)
        except DatabaseError as error:
            log.warning("hints are late", error=str(error))
            connection.close()
            time.sleep(RETRY_S)

    def _hand_over(self, group: str, message: dict[str, Any]) -> None:
        loop = self._loop
        if loop is None or loop.is_closed() or group not in self.groups:
            return
        asyncio.run_coroutine_threadsafe(super().group_send(group, message), loop)


class Tail:
    """Reads the rows that come after a given one, each once, in one thread with its own connection."""

    def __init__(self, start: int) -> None:
        self._newest = start
        self._seen: deque[int] = deque(
            range(max(0, start - OVERLAP), start + 1), maxlen=2 * OVERLAP
        )
        self._is_sqlite = connection.vendor == "sqlite"
        self._version: int | None = None
        self._pruned_at = -PRUNE_EVERY_S

    def wait(self) -> None:
        """Return when there may be something new: on SQLite when another connection committed, or after a moment."""
        if not self._is_sqlite:
            time.sleep(0.05)
            return
        for _ in range(LOOKS):
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA data_version")
                version = cursor.fetchone()[0]
            if version != self._version:
                self._version = version
                return
            time.sleep(0.02)

    def new(self) -> list[tuple[str, dict[str, Any]]]:
        from evolution_app.models import Hint

        floor = self._newest if self._is_sqlite else self._newest - OVERLAP
        rows = Hint.objects.filter(id__gt=floor).order_by("id")[:BATCH]
        fresh = [row for row in rows if row.pk not in self._seen]
        for row in fresh:
            self._seen.append(row.pk)
            self._newest = max(self._newest, row.pk)
        if time.monotonic() - self._pruned_at > PRUNE_EVERY_S:
            self._pruned_at = time.monotonic()
            Hint.objects.filter(created_at__lt=timezone.now() - KEEP).delete()
        return [(row.group, row.message) for row in fresh]


def insert_hint(group: str, message: dict[str, Any]) -> None:
    from evolution_app.models import Hint
    from evolution_app.statements import insert

    insert([Hint(group=group, message=message)])


def newest_hint() -> int:
    """The id of the newest hint; 0 if there is none."""
    from evolution_app.models import Hint

    return Hint.objects.order_by("-id").values_list("id", flat=True).first() or 0
