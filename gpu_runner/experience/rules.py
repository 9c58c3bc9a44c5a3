"""Where a technique applies, learned from the steps of several lineages: which findings a kernel shows that lacks it.

A kernel that lacks a technique and shows one of the rule's findings should gain by it. A rule keeps the findings that speak for
the technique more often than against it; without any example it is what is known of the technique beforehand.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpu_runner.experience.lineage import Tried
from gpu_runner.experience.techniques import TECHNIQUES


@dataclass(frozen=True)
class Rule:
    """Args:
    findings: kinds of findings, any of which says that the technique applies.
    gained, idle: examples in which having the technique gained, and in which it did not.
    """

    findings: frozenset[str]
    gained: int = 0
    idle: int = 0

    def applies(self, shown: Iterable[str]) -> bool:
        return bool(self.findings & frozenset(shown))


def learned(tried: Sequence[Tried]) -> Mapping[str, Rule]:
    """A rule for every technique, from steps that passed; those that failed show no kernel that could gain."""
    return {
        technique: _rule(technique, [t for t in tried if t.step.technique == technique])
        for technique in TECHNIQUES
    }


def _rule(technique: str, tried: Sequence[Tried]) -> Rule:
    gained = [frozenset(t.shown) for t in tried if t.cost is not None and t.costs]
    idle = [frozenset(t.shown) for t in tried if t.cost is not None and not t.costs]
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
