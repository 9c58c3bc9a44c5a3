"""Landscapes on which the search can be judged without a GPU or a model: what a kernel is worth, by construction.

A synthetic kernel has structure (choices of three kinds each: what rewrites and models change), numbers (what tuning changes)
and bugs (what repairs remove). Its logarithm of the speedup is 1 at the optimum of every landscape, in units of `SCALE`, and
0 for the reference. Each landscape says beforehand whom it suits; more than half are neutral or adverse to islands, plans or
bandit. The family was committed before the search was tuned on it; `docs/search.md` has the results.

Written as text, a kernel shows the archive what a real one would: launches in the profile, memory pattern, parallel shape and
numeric path in the source. The last two choices show nothing, as much of an algorithm does not.
"""

import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Final

from gpu_runner.core.evaluation import Baselines, Evaluation, Ratio, Speedup, Timing
from gpu_runner.core.findings import Finding, Severity, Source
from gpu_runner.core.verdicts import Fidelity, Precision, Stage, Track, Verdict, VerifiedAt

CHOICES: Final = 6
KINDS: Final = 3
NUMBERS: Final = 3
SETTINGS: Final = 8
SCALE: Final = math.log(4)
"""The optimum of every landscape is four times as fast as its reference."""
SUGGESTED: Final = 4
"""Moves that the diagnosis of a correct kernel suggests, the largest expected gain first."""

Levels = tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """`salt` tells broken texts apart that fail alike."""

    choices: tuple[int, ...]
    numbers: tuple[int, ...]
    bugs: int = 0
    salt: int = 0

    @property
    def source(self) -> str:
        shown = (
            ("load", "atomic_add", "make_block_ptr")[self.choices[1]],
            ("program_id(0)", "program_id(1)", "num_programs")[self.choices[2]],
            ("exp", "dot", "dot(input_precision='ieee')")[self.choices[3]],
        )
        facts = (self.choices, self.numbers, (self.bugs, self.salt))
        numbers = "; ".join(" ".join(map(str, fact)) for fact in facts)
        return "\n".join([f"'{numbers}'[0]", *(f"tl.{name}" for name in shown)])

    def with_choice(self, place: int, kind: int) -> "Kernel":
        return replace(self, choices=(*self.choices[:place], kind, *self.choices[place + 1 :]))


@lru_cache(maxsize=8192)
def kernel_of(source: str) -> Kernel:
    facts = source.splitlines()[0].split("'")[1].split(";")
    choices, numbers, (bugs, salt) = (tuple(map(int, fact.split())) for fact in facts)
    return Kernel(choices, numbers, bugs, salt)


@dataclass(frozen=True)
class Move:
    """A change of structure: this choice becomes that kind."""

    place: int
    kind: int

    @property
    def name(self) -> str:
        return f"choice_{self.place}_to_{self.kind}"


def move_named(name: str) -> Move:
    place, kind = re.findall(r"\d+", name)
    return Move(int(place), int(kind))


@dataclass(frozen=True)
class Landscape:
    """One member of the family; an instance of it (`at`) places the optimum by a seed.

    Args:
        suits: islands, neutral or adverse, said before anything was run.
        shape: worth of levels (0 the plainest, 2 the best of each choice), at most 1.
        tuning: share of the optimum's logarithm that the numbers decide.
        coupling: how many settings the best numbers move when one choice changes.
        noise: standard deviation of the logarithm of a measured speedup.
        broken: chance that a change of structure leaves bugs; repaired: chance that a repair removes one.
        insight: correlation between the gain that is expected of a move and the truth; negative misleads.
        foresight: whether that truth is the move's distance to the optimum rather than its immediate gain.
        forbidden: share of structures that no device can run.
        early_tuning: the first numbers are this many settings off, so that tuning pays early and no more.
    """

    name: str
    suits: str
    why: str
    shape: Callable[[Levels, "Instance"], float]
    tuning: float = 0.25
    coupling: float = 0.0
    noise: float = 0.02
    broken: float = 0.35
    repaired: float = 0.5
    insight: float = 0.5
    foresight: bool = False
    forbidden: float = 0.0
    first_levels: tuple[float, float, float] = (0.6, 0.32, 0.08)
    early_tuning: int = 1

    @lru_cache(maxsize=64)  # noqa: B019
    def at(self, seed: int) -> "Instance":
        return Instance(self, seed)


class Instance:
    """A landscape with its optimum placed; everything about it follows from the landscape's name and the seed."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        self.landscape = landscape
        self.key = f"{landscape.name}:{seed}"
        rng = random.Random(self.key)
        self.kinds = [rng.sample(range(KINDS), KINDS) for _ in range(CHOICES)]
        self.order = rng.sample(range(CHOICES), CHOICES)
        raw = [rng.uniform(0.5, 1.5) for _ in range(CHOICES)]
        self.weights = [weight / sum(raw) for weight in raw]
        self._suggestions: dict[tuple[int, ...], tuple[Finding, ...]] = {}
        self.tables: dict[int, dict[Levels, float]] = {}
        self.best_numbers = [rng.randrange(1, SETTINGS - 1) for _ in range(NUMBERS)]
        self.shifts = [
            [[rng.choice((-1, 0, 1)) for _ in range(NUMBERS)] for _ in range(KINDS)]
            for _ in range(CHOICES)
        ]

    def draw(self, *parts: object) -> random.Random:
        """A generator for a fact of the landscape, the same whoever asks."""
        return random.Random(f"{self.key}:{parts}")

    def levels(self, choices: tuple[int, ...]) -> Levels:
        return tuple(self.kinds[place].index(kind) for place, kind in enumerate(choices))

    def choices(self, levels: Levels) -> tuple[int, ...]:
        return tuple(self.kinds[place][level] for place, level in enumerate(levels))

    def structure(self, choices: tuple[int, ...]) -> float:
        return self._structures[choices]

    def is_forbidden(self, choices: tuple[int, ...]) -> bool:
        return choices in self._forbidden

    @cached_property
    def _forbidden(self) -> frozenset[tuple[int, ...]]:
        """A random share of all structures but the plainest and the best."""
        inner = [c for c in product(range(KINDS), repeat=CHOICES) if 0 < sum(self.levels(c)) < 12]
        count = round(self.landscape.forbidden * len(inner))
        return frozenset(self.draw("forbidden").sample(inner, count))

    @cached_property
    def _structures(self) -> dict[tuple[int, ...], float]:
        """Every structure's worth, scaled so that the best one that runs has 1."""
        raw = {
            choices: self.landscape.shape(self.levels(choices), self)
            for choices in product(range(KINDS), repeat=CHOICES)
        }
        best = max(worth for choices, worth in raw.items() if not self.is_forbidden(choices))
        return {choices: worth / best for choices, worth in raw.items()}

    def tuned(self, choices: tuple[int, ...]) -> list[int]:
        """The best numbers for a structure."""
        moved = [
            best + round(self.landscape.coupling * sum(self._shift(choices, number)))
            for number, best in enumerate(self.best_numbers)
        ]
        return [min(SETTINGS - 1, max(0, setting)) for setting in moved]

    def _shift(self, choices: tuple[int, ...], number: int) -> Iterator[int]:
        for place, kind in enumerate(choices):
            if self.kinds[place].index(kind) > 0:
                yield self.shifts[place][kind][number]

    def worth(self, kernel: Kernel) -> float | None:
        """The true share of the optimum's logarithm of the speedup; None where the kernel does not work."""
        if kernel.bugs or self.is_forbidden(kernel.choices):
            return None
        off = [abs(a - b) for a, b in zip(kernel.numbers, self.tuned(kernel.choices), strict=True)]
        lost = sum(min(1.0, (distance / 4) ** 2) for distance in off) / NUMBERS
        share = self.landscape.tuning
        return (1 - share) * self.structure(kernel.choices) + share * (1 - 2 * lost)

    def moves(self, kernel: Kernel) -> list[Move]:
        return [
            Move(place, kind)
            for place in range(CHOICES)
            for kind in range(KINDS)
            if kind != kernel.choices[place]
        ]

    def expected(self, kernel: Kernel, move: Move) -> float:
        """The gain, as a share of the optimum, that a careful reader of this kernel expects of a move."""
        insight = self.landscape.insight
        noise = self.draw("expected", kernel.choices, move).gauss(0, 0.15)
        return insight * self._truth(kernel, move) + math.sqrt(1 - insight**2) * noise

    def _truth(self, kernel: Kernel, move: Move) -> float:
        if self.landscape.foresight:
            step = self.kinds[move.place].index(move.kind) - self.levels(kernel.choices)[move.place]
            return step * self.weights[move.place]
        changed = kernel.with_choice(move.place, move.kind)
        return self.structure(changed.choices) - self.structure(kernel.choices)

    def difficulty(self, move: Move) -> float:
        """The chance that the move leaves bugs; it belongs to the move, so that it can be learnt."""
        spread = self.draw("difficulty", move).uniform(-0.25, 0.25)
        return min(0.95, max(0.02, self.landscape.broken + spread))

    def evaluate(self, kernel: Kernel, rng: random.Random) -> Evaluation:
        """What the evaluator would say: a verdict, and of a correct kernel a noisy ratio with its interval and suggestions."""
        worth = self.worth(kernel)
        if worth is None:
            return _failed(self.is_forbidden(kernel.choices))
        noise = self.landscape.noise
        ratio = math.exp(SCALE * worth + rng.gauss(0, noise))
        margin = math.exp(1.96 * noise)
        return Evaluation(
            verdict=Verdict.CORRECT,
            fidelity=Fidelity.MEASURED,
            verified_at=VerifiedAt.FULL,
            candidate=Timing(device_us=100 / ratio, n=10),
            baselines=Baselines(eager=Timing(device_us=100, n=10)),
            speedup=Speedup(eager=Ratio(ratio=ratio, low=ratio / margin, high=ratio * margin)),
            findings=self.suggestions(kernel),
            profile={"candidate": {"parts": [{}] * (1, 2, 3)[kernel.choices[0]]}},
            **_PLACE,
        )

    def suggestions(self, kernel: Kernel) -> tuple[Finding, ...]:
        """As findings with a predicted gain, the form in which a diagnosis gives them."""
        if kernel.choices not in self._suggestions:
            self._suggestions[kernel.choices] = self._suggested(kernel)
        return self._suggestions[kernel.choices]

    def _suggested(self, kernel: Kernel) -> tuple[Finding, ...]:
        ranked = sorted(self.moves(kernel), key=lambda move: -self.expected(kernel, move))
        return tuple(
            Finding(
                stage=Stage.PROFILE,
                kind=move.name,
                severity=Severity.HINT,
                source=Source.INTERPRETER,
                title=move.name,
                evidence={
                    "predicted_gain": math.exp(SCALE * max(0.0, self.expected(kernel, move)))
                },
                suggestion=f"change choice {move.place} to {move.kind}",
            )
            for move in ranked[:SUGGESTED]
        )


_PLACE: Final = {
    "device": "landscape",
    "track": Track.OWN_KERNELS,
    "precision": Precision.REFERENCE,
}


def _failed(is_forbidden: bool) -> Evaluation:
    if is_forbidden:
        return Evaluation(verdict=Verdict.COMPILE_ERROR, kind="resources", **_PLACE)
    return Evaluation(verdict=Verdict.INCORRECT, kind="values", **_PLACE)


# Shapes: what levels are worth together.


def slope(levels: Levels, here: Instance) -> float:
    return sum(weight * level / 2 for weight, level in zip(here.weights, levels, strict=True))


def valleys(levels: Levels, here: Instance) -> float:
    """Choices pay in pairs: one without the other is slower than neither."""
    total = 0.0
    for first, second in zip(here.order[::2], here.order[1::2], strict=True):
        a, b = levels[first], levels[second]
        total += 1 / 3 if a == b == 2 else 0.1 * min(a, 1, b) - 0.12 * (max(a, b) == 2)
    return total


def traps(levels: Levels, here: Instance) -> float:
    """Order-three traps: each step towards the best corner is a step down until the last."""
    total = 0.0
    for block in (here.order[:3], here.order[3:]):
        best = sum(levels[place] == 2 for place in block)
        total += 0.5 if best == 3 else 0.15 * sum(levels[place] == 1 for place in block) / 3
    return total


def basins(levels: Levels, here: Instance) -> float:
    """One choice decides between a basin that pays at once and ends at half, and one that pays late."""
    gate, *rest = here.order
    climbed = sum(levels[place] / 2 for place in rest) / len(rest)
    if levels[gate] == 2:
        return 1.3 * climbed - 0.3
    return 0.5 * climbed + 0.05 * levels[gate]


def blocks(levels: Levels, here: Instance) -> float:
    """Two halves that each pay when they are complete; whoever has one of each crosses over."""
    halves = (here.order[:3], here.order[3:])
    done = [sum(levels[place] == 2 for place in half) for half in halves]
    return sum((0.0, 0.08, 0.2, 0.5)[count] for count in done)


def rugged(levels: Levels, here: Instance) -> float:
    """Each choice's worth depends on two others, at random: many peaks (an NK landscape with K = 2)."""
    total = 0.0
    for place in range(CHOICES):
        seen = tuple(
            levels[here.order[(here.order.index(place) + step) % CHOICES]] for step in range(3)
        )
        total += _rugged_table(here, place)[seen]
    return total


def _rugged_table(here: Instance, place: int) -> dict[Levels, float]:
    if place not in here.tables:
        rng = here.draw("rugged", place)
        seen = product(range(KINDS), repeat=3)
        here.tables[place] = {levels: rng.uniform(-0.1, 0.2) for levels in seen}
    return here.tables[place]


def ladder(levels: Levels, here: Instance) -> float:
    """Choices pay in one order only: depth is everything."""
    climbed = 0.0
    for place in here.order:
        climbed += levels[place] / 2
        if levels[place] < 2:
            break
    return climbed / CHOICES


def flat(levels: Levels, here: Instance) -> float:
    return 1.0


def needle(levels: Levels, here: Instance) -> float:
    return 1.0 if min(levels) == 2 else 0.2


def lottery(levels: Levels, here: Instance) -> float:
    """Nothing near a kernel says anything about it."""
    return here.draw("lottery", levels).expovariate(6) if any(levels) else 0.1


FAMILY: Final = (
    Landscape("valleys", "islands", "pairs of choices pay together only", valleys, foresight=True),
    Landscape("traps", "islands", "three choices at once, deceptive before", traps, foresight=True),
    Landscape("basins", "islands", "the better basin starts lower", basins, coupling=0.5),
    Landscape("blocks", "islands", "two halves, found apart and joined", blocks, broken=0.3),
    Landscape("rugged", "islands", "many peaks of different height", rugged, insight=0.3),
    Landscape(
        "retuning", "islands", "new structure is slow until tuned again", slope,
        tuning=0.5, coupling=1.5, insight=0.4,
    ),
    Landscape(
        "broken ground", "islands", "the better basin is behind broken code", basins,
        broken=0.7, repaired=0.4, foresight=True,
    ),
    Landscape("slope", "adverse", "every single step pays: one climber is best", slope, noise=0.0),
    Landscape("ladder", "adverse", "one order of steps: depth is everything", ladder, broken=0.2),
    Landscape("numbers", "adverse", "only tuning pays", flat, tuning=0.9, early_tuning=3),
    Landscape("noise", "adverse", "a slope under heavy noise", slope, noise=0.3),
    Landscape("false prophet", "adverse", "expected gains mislead", slope, insight=-0.5),
    Landscape(
        "late structure", "adverse", "tuning pays early and never again: credit misleads", ladder,
        tuning=0.4, early_tuning=3, broken=0.5,
    ),
    Landscape("needle", "neutral", "nothing leads to the optimum", needle, insight=0.0),
    Landscape("lottery", "neutral", "neighbours say nothing of each other", lottery, insight=0.0),
    Landscape(
        "minefield", "neutral", "most changes break and repairs fail", slope,
        broken=0.85, repaired=0.15, forbidden=0.3,
    ),
)  # fmt: skip
