"""What a proposal is shown of the library: usually all that was found, by chance nothing, by chance all but one.

The chances make the comparisons of `core.worth` fair: whether an entry is shown depends on nothing but the draw.
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


@dataclass(frozen=True)
class Shown:
    """The entries that a proposal sees, the best first, and the arm of the experiment that it belongs to."""

    arm: str
    entries: tuple[Entry, ...] = ()


def show(found: Sequence[Retrieved], rng: random.Random) -> Shown:
    """Draw what to show of what was found, at most `SHOWN` entries."""
    entries = tuple(hit.entry for hit in found[:SHOWN])
    draw = rng.random()
    if draw < SHARE_WITHOUT:
        return Shown(WITHOUT)
    if draw >= SHARE_WITHOUT + SHARE_WITHHELD:
        return Shown(WITH, entries)
    place = rng.randrange(SHOWN)
    if place >= len(entries):
        return Shown(UNPAIRED, entries)
    return Shown(arm_without(entries[place].id), entries[:place] + entries[place + 1 :])
