"""What a proposal is shown of the library: usually the best found, by chance nothing, all but one, or one from further down.

The chances make the comparisons of `core.worth` fair: whether an entry is shown depends on nothing but the draw. What ranks
too low to be shown has its turn as well, shown or withheld alike, or nothing would ever be known of its worth.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_runner.core.entries import Entry
from gpu_runner.core.worth import UNPAIRED, WITH, WITHOUT, arm_without
from gpu_runner.experience.retrieval import SHOWN, Retrieved

SHARE_WITHOUT: Final = 0.2
"""Of the proposals, those that go without the library."""
SHARE_WITHHELD: Final = 0.2
"""Of the proposals, those from which the entry of one rank is withheld; each rank as often as any other."""
SHARE_EXPLORING: Final = 0.1
"""Of the proposals, those in which an entry from beyond the best takes the last place, or, as often, is withheld from it."""
FOUND: Final = 3 * SHOWN
"""How many to look for, so that there is something beyond the best."""


@dataclass(frozen=True)
class Shown:
    """The entries that a proposal sees, the best first, and the arm of the experiment that it belongs to."""

    arm: str
    entries: tuple[Entry, ...] = ()


def show(found: Sequence[Retrieved], rng: random.Random) -> Shown:
    """Draw what to show of what was found, the best first; at most `SHOWN` entries."""
    entries = tuple(hit.entry for hit in found[:SHOWN])
    draw = rng.random()
    if draw < SHARE_WITHOUT:
        return Shown(WITHOUT)
    if draw >= 1 - SHARE_EXPLORING and len(found) > SHOWN:
        return _exploring(found, rng)
    if draw >= SHARE_WITHOUT + SHARE_WITHHELD:
        return Shown(WITH, entries)
    place = rng.randrange(SHOWN)
    if place >= len(entries):
        return Shown(UNPAIRED, entries)
    return Shown(arm_without(entries[place].id), entries[:place] + entries[place + 1 :])


def _exploring(found: Sequence[Retrieved], rng: random.Random) -> Shown:
    tried = found[rng.randrange(SHOWN, len(found))].entry
    best = tuple(hit.entry for hit in found[: SHOWN - 1])
    if rng.random() < 0.5:
        return Shown(arm_without(tried.id), best)
    return Shown(WITH, (*best, tried))
