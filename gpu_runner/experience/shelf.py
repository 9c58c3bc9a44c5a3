"""The library as a run sees it while it goes on: what is decided or measured meanwhile counts from the next proposal on."""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Self

from gpu_runner.core.entries import Entry
from gpu_runner.core.worth import Standing
from gpu_runner.experience.retrieval import Library

_NOTHING_MEASURED: Final[Mapping[str, Standing]] = MappingProxyType({})


class Shelf:
    """Reads and indexes the entries again only when their revision has changed. Safe for several threads.

    Args:
        read: the entries in use that the run's owner may see.
        revision: changes whenever `read` would give something else; asked before each proposal, so it has to be cheap.
        standings: what measuring its worth says about each entry; asked as often, so it keeps what it found for a while.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[Entry]],
        revision: Callable[[], Hashable],
        standings: Callable[[], Mapping[str, Standing]] = lambda: _NOTHING_MEASURED,
    ) -> None:
        self._read, self._revision, self._standings = read, revision, standings
        self._lock = threading.Lock()
        self._kept: tuple[Hashable, Mapping[str, Standing], Library] | None = None

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Self:
        """A shelf that never changes."""
        return cls(lambda: entries, lambda: None)

    def library(self) -> Library:
        revision, standings = self._revision(), self._standings()
        with self._lock:
            if self._kept is None or self._kept[0] != revision:
                self._kept = revision, standings, Library(self._read(), standings)
            elif self._kept[1] != standings:
                self._kept = revision, standings, self._kept[2].weighed(standings)
            return self._kept[2]
