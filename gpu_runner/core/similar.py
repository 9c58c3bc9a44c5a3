"""Texts that say much the same: cosine of their words, rare ones counting more. Plain Python, for some ten thousand texts."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

_WORD: Final = re.compile(r"[a-z0-9]{2,}")


class Alike:
    """An index of texts by id, built once and asked often."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        counts = {key: Counter(_words(text)) for key, text in texts.items()}
        found_in = Counter(word for words in counts.values() for word in words)
        self._rarity = {word: math.log((1 + len(counts)) / n) for word, n in found_in.items()}
        self._length = {key: self._norm(words) for key, words in counts.items()}
        self._where: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for key, words in counts.items():
            for word, times in words.items():
                self._where[word].append((key, times))

    def like(
        self, text: str, *, least: float = 0.1, count: int = 6, without: Iterable[int] = ()
    ) -> list[tuple[int, float]]:
        """At most `count` ids of similar texts with their likeness from 0 to 1, the most similar first; ties by id."""
        words = Counter(_words(text))
        own = self._norm(words)
        shared: dict[int, float] = defaultdict(float)
        for word, times in words.items():
            for key, other in self._where.get(word, ()):
                shared[key] += times * other * self._rarity[word] ** 2
        left_out = set(without)
        alike = (
            (key, value / (own * self._length[key]))
            for key, value in shared.items()
            if key not in left_out and own * self._length[key] > 0
        )
        found = [(key, min(1.0, likeness)) for key, likeness in alike if likeness >= least]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:count]

    def _norm(self, words: Counter[str]) -> float:
        return math.sqrt(
            sum((times * self._rarity.get(word, 0.0)) ** 2 for word, times in words.items())
        )


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
