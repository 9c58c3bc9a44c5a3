"""An endpoint that does not answer: whom to let try again, and when; shared by all runs that use it."""

import threading
from collections.abc import Callable
from typing import Final

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 300.0


class Outage:
    """Doubles its pauses while an endpoint is unreachable, and then lets one request through to see.

    Args:
        patience_s: how long an outage may last until the endpoint counts as lost.
    """

    def __init__(self, patience_s: float, clock: Callable[[], float]) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._began = 0.0
        self._until = 0.0
        self._is_probed = False

    @property
    def is_on(self) -> bool:
        """Whether a request would be in vain just now."""
        with self._lock:
            return self._is_closed()

    @property
    def is_over_long(self) -> bool:
        with self._lock:
            return self._failures > 0 and self._clock() - self._began > self._patience_s

    def enter(self) -> bool:
        """Ask to send a request; False if it would be in vain. `succeeded`, `failed` or `left` must follow."""
        with self._lock:
            if self._is_closed():
                return False
            self._is_probed = self._failures > 0
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._failures, self._is_probed = 0, False

    def failed(self) -> float:
        """The endpoint did not answer; seconds until it is tried again."""
        with self._lock:
            now = self._clock()
            self._is_probed = False
            if self._failures == 0:
                self._began = now
            elif now < self._until:
                # A request that was sent before the outage was noticed says nothing new.
                return self._until - now
            self._failures += 1
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self._failures - 1))
            self._until = now + pause_s
            return pause_s

    def _is_closed(self) -> bool:
        return self._failures > 0 and (self._is_probed or self._clock() < self._until)
