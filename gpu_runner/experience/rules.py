"""Where a technique applies, learned from the steps of several lineages: which findings a kernel shows that lacks it.

As long as having a technique gained in every example, it applies wherever it is missing: nothing speaks for a condition. An
example in which it gained nothing asks for one: then the findings decide that speak for the technique more often than against
it. Without any example it is what is known of the technique beforehand. Where the diagnosis says that nothing is left to gain,
no technique applies.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_runner.experience.lineage import Tried
from gpu_runner.experience.techniques import TECHNIQUES

NOTHING_LEFT: Final = "at_memory_ceiling"


@dataclass(frozen=True)
class Rule:
    """Args:
    findings: kinds of findings, any of which says that the technique applies; None: wherever it is missing.
    gained, idle: examples in which having the technique gained, and in which it did not.
    """

    findings: frozenset[str] | None
    gained: int = 0
    idle: int = 0

    @property
    def is_learned(self) -> bool:
        """Whether a lineage has taught the technique; without a gain there is no lesson of it."""
        return self.gained > 0

    def applies(self, shown: Iterable[str]) -> bool:
        shown = frozenset(shown)
        if NOTHING_LEFT in shown:
            return False
        return self.findings is None or bool(self.findings & shown)


def learned(tried: Sequence[Tried]) -> Mapping[str, Rule]:
    """A rule for every technique, from steps that passed; those that failed show no kernel that could gain."""
    return {
        technique: _rule(technique, [t for t in tried if t.step.technique == technique])
        for technique in TECHNIQUES
    }


def _rule(technique: str, tried: Sequence[Tried]) -> Rule:
    gained = [frozenset(t.shown) for t in tried if t.cost is not None and t.costs]
    idle = [frozenset(t.shown) for t in tried if t.cost is not None and not t.costs]
    if gained and not idle:
        return Rule(None, len(gained), 0)
    if not gained:
        # Nothing was ever gained, or nothing tried: what is known beforehand, less what was seen to say nothing.
        known = frozenset(TECHNIQUES[technique].shows) - frozenset().union(*idle)
        return Rule(known, 0, len(idle))
    return Rule(_telling(gained, idle, TECHNIQUES[technique].shows), len(gained), len(idle))


def _telling(
    gained: Sequence[frozenset[str]], idle: Sequence[frozenset[str]], known: Sequence[str]
) -> frozenset[str]:
    """The findings to go by: taken one by one, each the one that explains most examples not explained yet.

    Of equals one that is known beforehand is taken, then the first in the alphabet.
    """
    chosen: frozenset[str] = frozenset()
    while True:
        missing = [shown for shown in gained if not shown & chosen]
        wrong = [shown for shown in idle if not shown & chosen]
        worth = {
            kind: sum(kind in shown for shown in missing) - sum(kind in shown for shown in wrong)
            for kind in frozenset().union(*missing)
        }
        if not worth or max(worth.values()) <= 0:
            return chosen
        best = max(sorted(worth), key=lambda kind: (worth[kind], kind in known))
        chosen |= {best}
