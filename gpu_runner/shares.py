"""Who gets the next free slot: the run that had the least of them, unless the last one may stay a little longer."""

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

TURN_S: Final = 30.0
"""How far ahead of the neediest a run may be and still keep its slot: opening another task's judge takes seconds."""


class Shares(Generic[K]):
    """Slot seconds of each run; a run that joins begins where the neediest of the others stands.

    Source: the virtual run time of fair schedulers; time is charged when a slot is given back.
    """

    def __init__(self, turn_s: float = TURN_S) -> None:
        self._turn_s = turn_s
        self._used_s: dict[K, float] = {}

    def join(self, run: K) -> None:
        self._used_s[run] = min(self._used_s.values(), default=0.0)

    def leave(self, run: K) -> None:
        self._used_s.pop(run, None)

    def charge(self, run: K, seconds: float) -> None:
        if run in self._used_s:
            self._used_s[run] += seconds

    def in_order(self, hungry: Iterable[K], last: K | None) -> list[K]:
        """The hungry, the one to be served first first; `last` is who gave the free slot back."""
        order = sorted(hungry, key=self._use)
        if last in order and self._use(last) - self._use(order[0]) < self._turn_s:
            order.remove(last)
            order.insert(0, last)
        return order

    @property
    def _use(self) -> Callable[[K], float]:
        return self._used_s.__getitem__
