"""Makers of synthetic kernels for the search's operators: models that mean well and break things, rewrites, tuning.

They know no more than their real counterparts would: of a correct parent the suggestions of its diagnosis, of a failing one
that it fails, of the run what was tried on the parent. With an idea of the plan they do what it says; without one they choose
among the same suggestions.
"""

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.landscapes import (
    CHOICES,
    KINDS,
    NUMBERS,
    SCALE,
    SETTINGS,
    Instance,
    Kernel,
    Move,
    kernel_of,
    move_named,
)
from gpu_runner.core.candidate import Candidate
from gpu_runner.proposals.types import Draft


@dataclass(frozen=True)
class Model:
    """How a synthetic model writes.

    Args:
        price: of one answer, in units of one evaluation.
        care: factor on the chance of leaving bugs.
        wander: chance to do something else than what was suggested.
    """

    name: str
    price: float
    care: float
    wander: float


CHEAP: Final = Model("cheap", price=0.5, care=1.0, wander=0.35)
STRONG: Final = Model("strong", price=3.0, care=0.6, wander=0.15)
MODELS: Final = {model.name: model for model in (CHEAP, STRONG)}
SCRIPT_PRICE: Final = 0.1
"""Of a rewrite or a tuning proposal, in units of one evaluation."""
EAGERNESS: Final = 0.1
"""Spread of expected gains over which a model is undecided between suggestions."""
ALSO: Final = 0.25
"""Chance that a model changes one thing more than it was asked for."""
REWRITTEN: Final = (0, 1, 2)
"""The choices that rewrites can change, each by one kind at a time and hardly ever wrongly."""
REWRITE_BREAKS: Final = 0.05


@dataclass(frozen=True)
class Makers:
    """All operators on one instance."""

    here: Instance

    def first(self, model: Model, rng: random.Random) -> Draft:
        """A first kernel, written from the reference alone."""
        landscape = self.here.landscape
        levels = tuple(rng.choices(range(KINDS), landscape.first_levels, k=CHOICES))
        choices = self.here.choices(levels)
        away = landscape.early_tuning
        numbers = [self._near(best, away, rng) for best in self.here.tuned(choices)]
        is_broken = rng.random() < landscape.broken * model.care
        return _draft(_broken(Kernel(choices, tuple(numbers)), is_broken, rng), model.name)

    def improve(
        self,
        parent: Candidate,
        model: Model,
        rng: random.Random,
        *,
        wanted: str = "",
        tried: Collection[str] = (),
        focus: Collection[int] = (),
    ) -> Draft:
        """A change of structure by a model: the wanted move, or one of the suggestions that was not tried on this parent.

        Args:
            wanted: the name of a move, of an idea of the plan.
            focus: the choices that the strategy's text speaks of; it decides where there is no idea.
        """
        kernel = kernel_of(parent.source)
        move = move_named(wanted) if wanted else self._chosen(parent, kernel, tried, focus, rng)
        if rng.random() < model.wander:
            move = rng.choice(self.here.moves(kernel))
        child = kernel.with_choice(move.place, move.kind)
        chance = self.here.difficulty(move)
        if rng.random() < ALSO:
            also = rng.choice(self.here.moves(child))
            child = child.with_choice(also.place, also.kind)
            chance = 1 - (1 - chance) * (1 - self.here.difficulty(also))
        child = replace(child, numbers=_nudged(kernel.numbers, 0.2, rng))
        is_broken = rng.random() < chance * model.care
        return _draft(_broken(child, is_broken, rng), model.name, move.name)

    def repair(self, parent: Candidate, model: Model, rng: random.Random) -> Draft:
        kernel = kernel_of(parent.source)
        if not kernel.bugs:
            # What no device can run is not mended but left: another kind for one of the choices.
            move = rng.choice(self.here.moves(kernel))
            return _draft(kernel.with_choice(move.place, move.kind), model.name, move.name)
        is_mended = rng.random() < self.here.landscape.repaired / model.care
        bugs = kernel.bugs - is_mended
        salt = rng.randrange(10**6) if bugs else 0
        return _draft(replace(kernel, bugs=bugs, salt=salt), model.name, "repair")

    def cross(
        self, parent: Candidate, other: Candidate, model: Model | None, rng: random.Random
    ) -> Draft:
        """By a model the choices of both; without one the other's numbers alone."""
        ours, theirs = kernel_of(parent.source), kernel_of(other.source)
        if model is None:
            return _draft(replace(ours, numbers=theirs.numbers), "crossover")
        pairs = zip(ours.choices, theirs.choices, strict=True)
        choices = tuple(rng.choice(pair) for pair in pairs)
        is_broken = rng.random() < 0.5 * self.here.landscape.broken * model.care
        child = _broken(replace(ours, choices=choices), is_broken, rng)
        return _draft(child, model.name, "crossover")

    def rewrite(self, parent: Candidate, rng: random.Random) -> list[Draft]:
        """Every rewrite that applies, with the gain that is expected of it."""
        kernel = kernel_of(parent.source)
        drafts = []
        for place in REWRITTEN:
            move = Move(place, (kernel.choices[place] + 1) % KINDS)
            changed = kernel.with_choice(move.place, move.kind)
            changed = _broken(changed, rng.random() < REWRITE_BREAKS, rng)
            gain = math.exp(SCALE * self.here.expected(kernel, move))
            drafts.append(_draft(changed, "rewrite", move.name, gain))
        return drafts

    def tune(self, parent: Candidate, rng: random.Random) -> list[Draft]:
        """Configurations near the parent's, and now and then one from anywhere."""
        kernel = kernel_of(parent.source)
        drafts = []
        for _ in range(4):
            numbers = _nudged(kernel.numbers, 0.5, rng)
            if rng.random() < 0.15:
                numbers = tuple(rng.randrange(SETTINGS) for _ in range(NUMBERS))
            if numbers != kernel.numbers:
                drafts.append(_draft(replace(kernel, numbers=numbers), "tune", "tune"))
        return drafts

    def _chosen(
        self,
        parent: Candidate,
        kernel: Kernel,
        tried: Collection[str],
        focus: Collection[int],
        rng: random.Random,
    ) -> Move:
        found = parent.evaluation.findings if parent.evaluation else ()
        moves = [move_named(finding.kind) for finding in found if finding.kind not in tried]
        moves = [move for move in moves if move.place in focus] or moves
        if not moves:
            return rng.choice(self.here.moves(kernel))
        weights = [math.exp(self.here.expected(kernel, move) / EAGERNESS) for move in moves]
        return rng.choices(moves, weights)[0]

    def _near(self, best: int, away: int, rng: random.Random) -> int:
        return min(SETTINGS - 1, max(0, best + rng.choice((-away, away)) + rng.choice((-1, 0, 1))))


def next_to(text: str, rng: random.Random) -> str:
    """A child of a strategy's text: what it speaks of, with one choice more, less or another."""
    focus = set(focus_of(text))
    focus ^= {rng.randrange(CHOICES)}
    return text_of(sorted(focus or {rng.randrange(CHOICES)}))


def text_of(focus: Sequence[int]) -> str:
    return "Look at " + ", ".join(f"choice {place}" for place in focus)


def focus_of(text: str) -> tuple[int, ...]:
    """The choices that a strategy's text speaks of; none where it speaks of nothing that exists here."""
    return tuple(place for place in range(CHOICES) if f"choice {place}" in text)


def _nudged(numbers: tuple[int, ...], chance: float, rng: random.Random) -> tuple[int, ...]:
    return tuple(
        min(SETTINGS - 1, max(0, number + rng.choice((-2, -1, 1, 2))))
        if rng.random() < chance
        else number
        for number in numbers
    )


def _broken(kernel: Kernel, is_broken: bool, rng: random.Random) -> Kernel:
    if not is_broken:
        return kernel
    bugs = 1 + (rng.random() < 0.3)
    return replace(kernel, bugs=bugs + kernel.bugs, salt=rng.randrange(10**6))


def _draft(kernel: Kernel, origin: str, move: str = "", gain: float | None = None) -> Draft:
    return Draft(source=kernel.source, origin=origin, move=move, predicted_gain=gain)
