"""Finding the entries that may help just now: hard filters on when they apply, then BM25 on what they say."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_runner.core.entries import Entry, EntryContent, EntryKind, EntryState
from gpu_runner.core.targets import TARGETS
from gpu_runner.experience.queries import Query
from gpu_runner.experience.without_jax import bm25s

SHARE_WITHOUT: Final = 0.25
"""Share of proposals that go without entries, so that the library's worth can be estimated."""
SHOWN: Final = 4

_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Retrieved:
    """An entry with its rank from 1 and its score; equal scores are ordered by id."""

    entry: Entry
    rank: int
    score: float


def retrieve(entries: Sequence[Entry], query: Query, count: int = SHOWN) -> tuple[Retrieved, ...]:
    """The approved entries that apply to a query and share a word with it, the best first."""
    admitted = [entry for entry in entries if applies(entry, query)]
    scores = _scores([_text(entry.content) for entry in admitted], query)
    ranked = sorted(
        (pair for pair in zip(admitted, scores, strict=True) if pair[1] > 0),
        key=lambda pair: (-pair[1], pair[0].id),
    )
    return tuple(
        Retrieved(entry, rank, score) for rank, (entry, score) in enumerate(ranked[:count], start=1)
    )


def demonstrations(entries: Sequence[Entry], query: Query, count: int = 2) -> tuple[Entry, ...]:
    """Whole kernels for the operators of a task, to start from."""
    whole = [
        entry
        for entry in entries
        if entry.content.kind is EntryKind.DEMONSTRATION
        and "class ModelNew" in entry.content.after
        and set(entry.content.when.operators) & set(query.operators)
    ]
    return tuple(hit.entry for hit in retrieve(whole, query, count))


def applies(entry: Entry, query: Query) -> bool:
    """Whether an entry is approved and none of its conditions excludes the query."""
    when = entry.content.when
    return (
        entry.state is EntryState.APPROVED
        and _overlaps(when.operators, query.operators)
        and _overlaps(when.dtypes, query.dtypes)
        and _overlaps(when.hardware, _names_of(query.target))
        and (not when.tracks or query.track in when.tracks)
    )


def _overlaps(wanted: Sequence[str], present: Sequence[str]) -> bool:
    """An empty condition holds; so does any where nothing is known about the query."""
    return not wanted or not present or bool(set(wanted) & set(present))


def _names_of(target: str) -> tuple[str, ...]:
    known = TARGETS.get(target)
    if known is None:
        return (target,)
    arch = f"sm_{known.arch}" if isinstance(known.arch, int) else known.arch
    return (target, known.name, arch)


def _scores(texts: Sequence[str], query: Query) -> list[float]:
    words = _words(" ".join([query.words, *query.operators, *query.bottlenecks]))
    corpus = [_words(text) for text in texts]
    vocabulary = {word for text in corpus for word in text}
    known = [word for word in dict.fromkeys(words) if word in vocabulary]
    if not known:
        return [0.0] * len(texts)
    # In this variant the inverse document frequency stays positive: a word of every entry still counts.
    index = bm25s.BM25(method="lucene")
    index.index(corpus, show_progress=False)
    return [float(score) for score in index.get_scores(known)]


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


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
