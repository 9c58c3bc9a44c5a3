"""Strategies' texts as populations: what a model is told competes by what the candidates written under it gained.

Each island starts with its strategy's lens. Once every living text of an island has had its trial, a child of the best is
wanted; when the island is full the worst leaves first. `child_of` writes one without a model.

Source: prompts that evolve with the kernels, KernelFoundry (Wiedemann et al.); selection and bounds are ours.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpu_runner.core.search import StrategyText
from gpu_runner.evolution.types import Island, Plan

TRIAL: Final = 6
"""Candidates that a text is given before it is compared."""
MAX_LIVING: Final = 3
PRIOR_GAIN: Final = 0.1
TOLD: Final = 3
LEARNT: Final = "In this run:"

Texts = Mapping[int, StrategyText]


@dataclass(frozen=True)
class Wanted:
    """A new text for an island: a child of these, the best first, with its siblings' figures to learn from."""

    island: int
    parents: tuple[StrategyText, ...]


def first_texts(islands: Sequence[Island]) -> Texts:
    return MappingProxyType(
        {
            number: StrategyText(id=number, island=island.index, text=island.strategy.lens)
            for number, island in enumerate(islands, start=1)
        }
    )


def living(texts: Texts, island: int) -> list[StrategyText]:
    return [text for text in texts.values() if text.island == island and not text.is_retired]


def merit(text: StrategyText) -> float:
    """Expected gain of a candidate written under it, as a logarithm."""
    return (PRIOR_GAIN + text.gain) / (1 + text.tries)


def choose(texts: Texts, island: int, rng: random.Random) -> StrategyText | None:
    """A text that has not had its trial comes first; after that by merit."""
    alive = living(texts, island)
    if not alive:
        return None
    fresh = [text for text in alive if text.tries < TRIAL and text.parents]
    if fresh:
        return fresh[0]
    return rng.choices(alive, [max(merit(text), PRIOR_GAIN / 10) for text in alive])[0]


def wanted(texts: Texts, islands: Sequence[Island]) -> Wanted | None:
    """The island, if any, on which every living text has had its trial."""
    for island in islands:
        alive = living(texts, island.index)
        if alive and all(text.tries >= TRIAL for text in alive):
            ranked = sorted(alive, key=lambda text: (-merit(text), text.id))
            return Wanted(island.index, tuple(ranked))
    return None


def born(texts: Texts, want: Wanted, text: str) -> Texts:
    """A child joins its island; where that is full the worst of the others retires."""
    number = len(texts) + 1
    child = StrategyText(id=number, island=want.island, text=text, parents=(want.parents[0].id,))
    after = {**texts, number: child}
    if len(want.parents) >= MAX_LIVING:
        worst = want.parents[-1]
        after[worst.id] = after[worst.id].model_copy(update={"is_retired": True})
    return MappingProxyType(after)


def child_of(want: Wanted, plan: Plan) -> str:
    """The best text with what the run has learnt since: which kinds of change paid, and which did not or broke."""
    ranked = sorted(plan.lessons.items(), key=lambda known: (-known[1].gain, known[0]))
    paid = [key for key, lesson in ranked if lesson.gain > 0][:TOLD]
    failed = [key for key, lesson in reversed(ranked) if lesson.tries and lesson.gain <= 0][:TOLD]
    parts = [want.parents[0].text.partition(LEARNT)[0].rstrip()]
    if paid or failed:
        parts.append(f"{LEARNT} {', '.join(paid) or 'nothing yet'} paid;")
        parts.append(f"{', '.join(failed) or 'nothing'} did not.")
    return " ".join(parts)[:1000]


def credited(texts: Texts, number: int, gain: float) -> Texts:
    old = texts[number]
    update = {"tries": old.tries + 1, "gain": old.gain + gain}
    return MappingProxyType({**texts, number: old.model_copy(update=update)})
