"""What a proposal is shown of the library: usually the best found, by chance nothing, all but one, or one from further down.

The chances make the comparisons of `core.worth` fair: whether an entry is shown depends on nothing but the draw. What ranks
too low to be shown has its turn as well, or nothing would ever be known of its worth.
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
SHARE_EXPLORING: Final = 0.15
"""Of the proposals, those in which an entry from beyond the best stands in the last place, as if it had ranked there."""
FOUND: Final = 3 * SHOWN
"""How many to look for, so that there is something beyond the best."""


@dataclass(frozen=True)
class Shown:
    """The entries that a proposal sees, the best first, and the arm of the experiment that it belongs to."""

    arm: str
    entries: tuple[Entry, ...] = ()


def show(found: Sequence[Retrieved], rng: random.Random) -> Shown:
    """Draw what to show of what was found, the best first; at most `SHOWN` entries.

    Which entries stand in the places is drawn before anything is withheld, so that every entry is withheld as often for each
    time that it is shown, wherever it ranks: proposals that like it best do not weigh more on one side of its comparison.
    """
    entries = _places(found, rng)
    draw = rng.random()
    if draw < SHARE_WITHOUT:
        return Shown(WITHOUT)
    if draw >= SHARE_WITHOUT + SHARE_WITHHELD:
        return Shown(WITH, entries)
    place = rng.randrange(SHOWN)
    if place >= len(entries):
        return Shown(UNPAIRED, entries)
    return Shown(arm_without(entries[place].id), entries[:place] + entries[place + 1 :])


def _places(found: Sequence[Retrieved], rng: random.Random) -> tuple[Entry, ...]:
    best = [hit.entry for hit in found[:SHOWN]]
    if len(found) > SHOWN and rng.random() < SHARE_EXPLORING:
        best[-1] = found[rng.randrange(SHOWN, len(found))].entry
    return tuple(best)
