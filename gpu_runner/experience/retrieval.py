"""Finding the entries that may help just now: hard filters, then BM25 on what they say and on their code.

What an entry says of itself weighs more than a shared word: an entry that names the finding at hand comes before one that
names others. How much was tuned on `benchmarks/retrieval_judged.jsonl`, which was judged before.
"""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from gpu_runner.core.entries import Entry, EntryContent, EntryKind
from gpu_runner.core.worth import Standing
from gpu_runner.experience.conditions import Alternatives, Conditions
from gpu_runner.experience.interfaces import same_interface
from gpu_runner.experience.queries import Query
from gpu_runner.experience.without_jax import bm25s

SHOWN: Final = 4
ALIKE: Final = 0.8
"""From this share of common words on two entries say the same, and the better one stands for both."""

MOST_COMPARED: Final = 60
"""Hits that are looked at for those that are not alike; a library full of copies must not cost a search of it all."""

FITS: Final = 2.0
MISFITS: Final = 0.5
CODE: Final = 0.15
LENS: Final = 0.3
WORTH: Final[Mapping[Standing, float]] = MappingProxyType(
    {Standing.HELPS: 1.25, Standing.UNDECIDED: 1.0, Standing.RETIRE: 0.5}
)

_WORD = re.compile(r"[a-z0-9]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_COMMON: Final = frozenset(
    "a an and are as at be by each for from in is it its more no not of on once or so than that the then this to"
    " what where which with".split()
)

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Retrieved:
    """An entry with its rank from 1 and its score; equal scores are ordered by id."""

    entry: Entry
    rank: int
    score: float


class Library:
    """Entries ready to be asked: indexed once, then a few milliseconds a question, at 20,000 entries too.

    Args:
        standings: what measuring its worth said about an entry, by id.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        standings: Mapping[str, Standing] = MappingProxyType({}),
    ) -> None:
        self.entries = tuple(sorted(entries, key=lambda entry: entry.id))
        self._conditions = Conditions(self.entries)
        self._texts = [words_of(_text(entry.content)) for entry in self.entries]
        self._text = _Index(self._texts)
        self._code = _Index([_names(entry.content.before) for entry in self.entries])
        self._worth = _worth_of(self.entries, standings)
        self._findings = Alternatives([entry.content.when.bottlenecks for entry in self.entries])
        self._whole = np.array([_is_whole(entry.content) for entry in self.entries], np.bool_)

    def weighed(self, standings: Mapping[str, Standing]) -> Self:
        """The same entries, indexed once, with what has been measured since."""
        other = copy.copy(self)
        other._worth = _worth_of(self.entries, standings)
        return other

    def __len__(self) -> int:
        return len(self.entries)

    def retrieve(self, query: Query, count: int = SHOWN) -> tuple[Retrieved, ...]:
        """The entries in use that apply to a query and share a word with it, the best first, none twice in other words."""
        return self._best(query, self._conditions.admitted(query), count)

    def demonstrations(self, query: Query, count: int = 2) -> tuple[Entry, ...]:
        """Whole kernels for the operators of a task, to start from."""
        admitted = self._conditions.admitted(query) & self._whole
        shared = set(query.operators)
        for place in np.flatnonzero(admitted):
            content = self.entries[place].content
            admitted[place] = bool(shared & set(content.when.operators)) and _is_callable(
                content, query
            )
        return tuple(hit.entry for hit in self._best(query, admitted, count))

    def _best(self, query: Query, admitted: NDArray[np.bool_], count: int) -> tuple[Retrieved, ...]:
        if not admitted.any():
            return ()
        scores = np.where(admitted, self._scores(query), 0.0)
        found = np.flatnonzero(scores)
        order = found[np.argsort(-scores[found], kind="stable")][:MOST_COMPARED]
        kept: list[int] = []
        for place in order:
            if not any(self._alike(place, other) for other in kept):
                kept.append(int(place))
            if len(kept) == count:
                break
        return tuple(
            Retrieved(self.entries[place], rank, float(scores[place]))
            for rank, place in enumerate(kept, start=1)
        )

    def _scores(self, query: Query) -> Scores:
        words = words_of(" ".join([query.words, *query.operators, *query.bottlenecks]))
        scores = self._text.scores(words)
        if query.lens:
            scores = scores + LENS * (scores > 0) * self._text.scores(words_of(query.lens))
        if query.code:
            scores = scores + CODE * (scores > 0) * self._code.scores(_names(query.code))
        fitting: Scores = scores * self._worth * self._fit(query)
        return fitting

    def _fit(self, query: Query) -> Scores:
        """How well the findings that entries name meet those of the query; entries that name none are neutral."""
        if not query.bottlenecks:
            return np.ones(len(self.entries))
        meets = self._findings.hold(query.bottlenecks)
        return np.where(self._findings.empty, 1.0, np.where(meets, FITS, MISFITS))

    def _alike(self, place: int, other: int) -> bool:
        one, two = set(self._texts[place]), set(self._texts[other])
        return len(one & two) >= ALIKE * len(one | two)


def _worth_of(entries: Sequence[Entry], standings: Mapping[str, Standing]) -> Scores:
    weights = [WORTH[standings.get(entry.id, Standing.UNDECIDED)] for entry in entries]
    return np.array(weights, np.float64)


class _Index:
    """BM25 over lists of words; also over none at all."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._count = len(texts)
        self._known = frozenset(word for text in texts for word in text)
        if self._known:
            # In this variant the inverse document frequency stays positive: a word of every entry still counts.
            self._index = bm25s.BM25(method="lucene")
            self._index.index([list(text) for text in texts], show_progress=False)

    def scores(self, words: Sequence[str]) -> Scores:
        asked = [word for word in dict.fromkeys(words) if word in self._known]
        if not asked:
            return np.zeros(self._count)
        return np.asarray(self._index.get_scores(asked), dtype=np.float64)


def _text(content: EntryContent) -> str:
    when = content.when
    return " ".join(
        [
            content.title,
            content.title,
            *when.operators,
            *when.bottlenecks,
            when.shapes,
            content.action,
            content.preconditions,
        ]
    )


def words_of(text: str) -> list[str]:
    """Words in lower case without the commonest and without an ending of their plural."""
    found = _WORD.findall(text.lower())
    return [_stem(word) for word in found if word not in _COMMON]


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _names(code: str) -> list[str]:
    return [name.lower() for name in _NAME.findall(code)]


def _is_callable(content: EntryContent, query: Query) -> bool:
    """Whether a demonstration's module takes what the task gives; unknown on either side, it may."""
    known = bool(content.task and query.reference)
    return not known or same_interface(content.task, query.reference)


def _is_whole(content: EntryContent) -> bool:
    return content.kind is EntryKind.DEMONSTRATION and "class ModelNew" in content.after
