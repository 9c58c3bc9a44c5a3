"""The library as a run sees it while it goes on: what is approved meanwhile is there at the next proposal."""

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Self

from gpu_runner.core.entries import Entry
from gpu_runner.experience.retrieval import Library


class Shelf:
    """Reads and indexes the entries again only when their revision has changed. Safe for several threads.

    Args:
        read: the approved entries that the run's owner may see.
        revision: changes whenever `read` would give something else; asked before each proposal, so it has to be cheap.
    """

    def __init__(
        self, read: Callable[[], Sequence[Entry]], revision: Callable[[], Hashable]
    ) -> None:
        self._read, self._revision = read, revision
        self._lock = threading.Lock()
        self._kept: tuple[Hashable, Library] | None = None

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Self:
        """A shelf that never changes."""
        return cls(lambda: entries, lambda: None)

    def library(self) -> Library:
        revision = self._revision()
        with self._lock:
            if self._kept is None or self._kept[0] != revision:
                self._kept = revision, Library(self._read())
            return self._kept[1]
