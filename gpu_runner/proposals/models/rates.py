"""An endpoint's rate limits: requests at once, requests and tokens per minute; shared by all runs that use it."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

MINUTE_S: Final = 60.0


class Rates:
    """Requests of the last minute, and those in flight. None means no limit."""

    def __init__(
        self,
        at_once: int,
        per_minute: int | None,
        tokens_per_minute: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._at_once = at_once
        self._per_minute = per_minute
        self._tokens_per_minute = tokens_per_minute
        self._clock = clock
        self._changed = threading.Condition()
        self._running = 0
        self._recent: deque[tuple[float, int]] = deque()

    def enter(self, tokens: int, timeout_s: float) -> bool:
        """Wait for room for a request of about so many tokens; False if there is none in time. `leave` must follow."""
        deadline = self._clock() + timeout_s
        with self._changed:
            while (pause_s := self._pause_s(tokens)) > 0:
                left_s = deadline - self._clock()
                if left_s <= 0:
                    return False
                self._changed.wait(min(pause_s, left_s))
            self._running += 1
            self._recent.append((self._clock(), tokens))
            return True

    def leave(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify()

    def _pause_s(self, tokens: int) -> float:
        """How long to wait at least; 0 if there is room."""
        now = self._clock()
        while self._recent and self._recent[0][0] <= now - MINUTE_S:
            self._recent.popleft()
        if self._running >= self._at_once:
            return MINUTE_S
        if not self._recent:
            return 0.0
        used = sum(spent for _, spent in self._recent)
        is_full = self._per_minute is not None and len(self._recent) >= self._per_minute
        limit = self._tokens_per_minute
        is_spent = limit is not None and used + tokens > limit
        return self._recent[0][0] + MINUTE_S - now if is_full or is_spent else 0.0
