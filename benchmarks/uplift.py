"""Whether the estimate of an entry's worth is right, on simulated runs whose effects are known.

    python benchmarks/uplift.py [--experiments 2000] [--entries 60] [--libraries 200]

Coverage: how often the 95 % interval holds the true effect, over designs that differ in the number of runs, their length, how
much runs and the effect in them differ, and how rarely proposals gain at all. Promotion: how often a library of entries that
do nothing has any of them promoted or suggested for retirement, and how often one that helps is promoted.
"""

import argparse
import json
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_runner.core.worth import (
    WITH,
    WITHOUT,
    Standing,
    Use,
    arm_without,
    entry_uplift,
    library_uplift,
    standings,
)


@dataclass(frozen=True)
class Design:
    """A world to estimate in.

    Args:
        proposals: least and most proposals of a run.
        effect: mean gain of showing, in logarithms.
        run_spread: standard deviation of the runs' own levels; `effect_spread` that of the effect between runs.
        share_zero: of the proposals that gain nothing in either arm.
    """

    name: str
    runs: int
    proposals: tuple[int, int]
    effect: float
    run_spread: float
    effect_spread: float
    share_zero: float


DESIGNS = (
    Design("few runs", 10, (20, 40), 0.05, 0.05, 0.0, 0.5),
    Design("no effect", 30, (20, 40), 0.0, 0.05, 0.0, 0.7),
    Design("runs differ", 40, (10, 60), 0.05, 0.2, 0.0, 0.5),
    Design("the effect differs", 40, (24, 32), 0.05, 0.1, 0.05, 0.5),
    Design("gains are rare", 60, (20, 60), 0.03, 0.05, 0.0, 0.9),
    Design("many short runs", 200, (4, 12), 0.05, 0.1, 0.02, 0.6),
)


def uses_of(design: Design, rng: random.Random) -> tuple[list[Use], float]:
    """One experiment on the library as a whole, and the true effect on a proposal's mean gain."""
    uses = []
    for run in range(design.runs):
        level = rng.gauss(0.0, design.run_spread)
        gained = design.effect + rng.gauss(0.0, design.effect_spread)
        for _ in range(rng.randint(*design.proposals)):
            is_shown = rng.random() < 0.7
            uses.append(
                Use(
                    run,
                    WITH if is_shown else WITHOUT,
                    (),
                    _gain(design, level, gained * is_shown, rng),
                )
            )
    return uses, design.effect * (1 - design.share_zero)


def _gain(design: Design, level: float, effect: float, rng: random.Random) -> float:
    """Nothing, or a skewed positive gain; its level is that of the run, its mean moved by the effect."""
    if rng.random() < design.share_zero:
        return 0.0
    return 0.3 + level + effect + rng.expovariate(5.0) - 0.2


def coverage(design: Design, experiments: int, seed: int) -> dict[str, float]:
    rng = random.Random(seed)
    covered = 0
    width = 0.0
    bias = 0.0
    for _ in range(experiments):
        uses, truth = uses_of(design, rng)
        found = library_uplift(uses)
        assert found.ratio is not None
        assert found.low is not None
        assert found.high is not None
        covered += math.log(found.low) <= truth <= math.log(found.high)
        bias += math.log(found.ratio) - truth
        width += math.log(found.high) - math.log(found.low)
    return {
        "coverage": covered / experiments,
        "bias": bias / experiments,
        "width": width / experiments,
    }


def library_of_uses(
    entries: int, helping: int, effect: float, runs: int, rng: random.Random
) -> Iterator[Use]:
    """Runs in which four of the entries are found for each proposal; the first `helping` of all do help."""
    design = Design("", runs, (20, 40), 0.0, 0.1, 0.0, 0.6)
    for run in range(runs):
        level = rng.gauss(0.0, design.run_spread)
        for _ in range(rng.randint(*design.proposals)):
            found = rng.sample(range(entries), 4)
            arm = WITH
            if rng.random() < 0.25:
                hidden = found.pop(rng.randrange(4))
                arm = arm_without(str(hidden))
            gained = effect * sum(number < helping for number in found)
            yield Use(run, arm, tuple(map(str, found)), _gain(design, level, gained, rng))


def promotion(entries: int, libraries: int, seed: int) -> dict[str, float]:
    rng = random.Random(seed)
    spoiled = promoted = single = 0
    for _ in range(libraries):
        null = list(library_of_uses(entries, 0, 0.0, 40, rng))
        named = {str(n): entry_uplift(str(n), null) for n in range(entries)}
        decided = standings(named)
        spoiled += any(standing is not Standing.UNDECIDED for standing in decided.values())
        promoted += any(standing is Standing.HELPS for standing in decided.values())
        single += sum(standing is Standing.HELPS for standing in decided.values())
    helping = 0
    for _ in range(max(1, libraries // 4)):
        uses = list(library_of_uses(12, 1, 0.3, 60, rng))
        decided = standings({str(n): entry_uplift(str(n), uses) for n in range(12)})
        helping += decided["0"] is Standing.HELPS
    return {
        "null_libraries_with_a_promotion": promoted / libraries,
        "null_libraries_with_any_decision": spoiled / libraries,
        "null_entries_promoted": single / (libraries * entries),
        "helping_entries_promoted": helping / max(1, libraries // 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=2000)
    parser.add_argument("--entries", type=int, default=60)
    parser.add_argument("--libraries", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    for number, design in enumerate(DESIGNS):
        found[design.name] = coverage(design, options.experiments, number)
        figures = "  ".join(f"{name} {value:+.4f}" for name, value in found[design.name].items())
        print(f"{design.name:20} {figures}", flush=True)
    decided = promotion(options.entries, options.libraries, 11)
    for name, value in decided.items():
        print(f"{name:36} {value:.4f}")
    if options.json:
        options.json.write_text(
            json.dumps({"coverage": found, "promotion": decided}, indent=1) + "\n"
        )
    good = all(0.93 <= figures["coverage"] <= 0.97 for figures in found.values())
    return 0 if good and decided["null_libraries_with_a_promotion"] <= 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
