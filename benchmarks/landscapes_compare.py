"""Compare the search with simpler ones, and with itself without one part, at equal evaluations on the family of landscapes.

Run: python benchmarks/landscapes_compare.py [--seeds 30] [--evaluations 40] [--jobs 1] [--out benchmarks/results]

Writes `landscapes.json`, `landscapes.md` and `landscapes.svg`, anew after each seed. Arms meet on the same instances, so their
differences are paired by seed; intervals are Student's at 95 %. Seeds from 1000 on were for tuning and are not reported.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.landscapes import FAMILY
from benchmarks.landscapes_run import Arm, Game
from gpu_runner.core.intervals import t_quantile
from gpu_runner.core.search import Method
from gpu_runner.evolution.types import Settings

FULL: Final = Settings()
PLAIN: Final = Settings(
    migration=False, archive=False, plans=False, bandit=False, texts=False, restarts=False
)
OURS: Final = Arm("ours")
ARMS: Final = (
    OURS,
    Arm("single population", islands=1, settings=PLAIN),
    Arm("random restart", islands=1, settings=PLAIN, restart_after=15),
    Arm("best of n", islands=1, settings=Settings(method=Method.SAMPLING)),
    Arm("ours, one island", islands=1),
    Arm("without migration", settings=replace(FULL, migration=False)),
    Arm("without archive", settings=replace(FULL, archive=False)),
    Arm("without plans", settings=replace(FULL, plans=False)),
    Arm("without bandit", settings=replace(FULL, bandit=False)),
)
GROUPS: Final = ("islands", "adverse", "neutral", "all")
EARLY: Final = 24
"""Also reported after this many evaluations, the default budget of a run."""

Scores = dict[tuple[str, str], list[tuple[float, ...]]]
"""By landscape and arm, one curve per seed."""


@dataclass(frozen=True)
class Interval:
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        half = t_quantile(len(values) - 1) * stdev(values) / len(values) ** 0.5
        return cls(fmean(values), fmean(values) - half, fmean(values) + half)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"

    @property
    def says(self) -> str:
        """Of a difference, ours less the other's."""
        return "win" if self.low > 0 else "loss" if self.high < 0 else "even"


def played(seeds: int, evaluations: int, jobs: int) -> Iterator[Scores]:
    """The scores after each seed, all landscapes and arms in each."""
    scores: Scores = {}
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(_played, range(seeds), [evaluations] * seeds):
            for key, curve in found.items():
                scores.setdefault(key, []).append(curve)
            yield scores


def _played(seed: int, evaluations: int) -> dict[tuple[str, str], tuple[float, ...]]:
    return {
        (landscape.name, arm.name): Game(arm, landscape.at(seed), seed, evaluations).play().curve
        for landscape in FAMILY
        for arm in ARMS
    }


def names_in(group: str) -> list[str]:
    return [found.name for found in FAMILY if group in (found.suits, "all")]


def worth(scores: Scores, landscapes: Iterable[str], arm: str, at: int) -> Interval:
    """The mean over landscapes, its interval over seeds."""
    return Interval.of(_by_seed(scores, landscapes, arm, at))


def lead(scores: Scores, landscapes: Sequence[str], arm: str, at: int) -> Interval:
    """How far ours is ahead of an arm, paired by seed."""
    ours = _by_seed(scores, landscapes, OURS.name, at)
    theirs = _by_seed(scores, landscapes, arm, at)
    return Interval.of([a - b for a, b in zip(ours, theirs, strict=True)])


def _by_seed(scores: Scores, landscapes: Iterable[str], arm: str, at: int) -> list[float]:
    curves = [scores[name, arm] for name in landscapes]
    return [fmean(curve[at - 1] for curve in seed) for seed in zip(*curves, strict=True)]


def markdown(scores: Scores, seeds: int, evaluations: int) -> str:
    lines = [
        f"Share of the optimum's logarithm of the speedup, {seeds} seeds, {len(FAMILY)} landscapes.",
        "",
    ]
    for at in (EARLY, evaluations):
        lines += [f"## After {at} evaluations", "", "How far ours is ahead (95 % interval):", ""]
        lines += _row(["arm", "its worth", *GROUPS], head=True)
        for arm in ARMS:
            own = worth(scores, names_in("all"), arm.name, at)
            ahead = [lead(scores, names_in(g), arm.name, at) for g in GROUPS]
            cells = ["-"] * len(GROUPS) if arm is OURS else [f"{a}, {a.says}" for a in ahead]
            lines += _row([arm.name, f"{own.mean:.3f} ({own.low:.3f} to {own.high:.3f})", *cells])
        lines.append("")
    lines += [f"## Each landscape after {evaluations} evaluations", ""]
    lines += _row(["landscape", "suits", *[arm.name for arm in ARMS]], head=True)
    for landscape in FAMILY:
        cells = [_cell(scores, landscape.name, arm, evaluations) for arm in ARMS]
        lines += _row([landscape.name, landscape.suits, *cells])
    lines += ["", "`+` ours is ahead of this arm, `-` behind, beyond the interval.", ""]
    return "\n".join(lines)


def _cell(scores: Scores, name: str, arm: Arm, at: int) -> str:
    own = worth(scores, [name], arm.name, at)
    mark = {"win": " +", "loss": " -", "even": ""}
    says = "" if arm is OURS else mark[lead(scores, [name], arm.name, at).says]
    return f"{own.mean:.2f}{says}"


def _row(cells: Sequence[str], *, head: bool = False) -> list[str]:
    line = f"| {' | '.join(cells)} |"
    return [line, f"|{'---|' * len(cells)}"] if head else [line]


def svg(scores: Scores, seeds: int, evaluations: int) -> str:
    """How far ours is ahead of each arm, by group, with intervals: right of the line ours is better."""
    width, left, row, top = 860, 190, 20, 64
    others = [arm for arm in ARMS if arm is not OURS]
    height = top + len(others) * (len(GROUPS) * row // 2 + 14) + 40
    colours = {"islands": "#2f6fde", "adverse": "#c2452d", "neutral": "#7a7a7a", "all": "#1a1a1a"}
    found = {
        (arm.name, g): lead(scores, names_in(g), arm.name, evaluations)
        for arm in others
        for g in GROUPS
    }
    reach = max(0.05, *(max(abs(i.low), abs(i.high)) for i in found.values()))

    def x(value: float) -> float:
        return left + (width - left - 30) * (value / reach + 1) / 2

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="15">How far the search is ahead after {evaluations} evaluations</text>',
        f'<text x="12" y="40" fill="#555">{seeds} seeds, 95 % intervals; right of the line it is better</text>',
    ]
    for number, group in enumerate(GROUPS):
        parts.append(f'<text x="{480 + 90 * number}" y="58" fill="{colours[group]}">{group}</text>')
    bottom = height - 30
    for step in (-1, -0.5, 0, 0.5, 1):
        at = x(step * reach)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{bottom}" stroke="#{"222" if step == 0 else "ddd"}"/>'
        )
        parts.append(
            f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{step * reach:+.2f}</text>'
        )
    y = top + 14.0
    for arm in others:
        parts.append(f'<text x="12" y="{y + 18:.0f}">{arm.name}</text>')
        for group in GROUPS:
            got = found[arm.name, group]
            parts.append(
                f'<line x1="{x(got.low):.1f}" x2="{x(got.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"'
                f' stroke="{colours[group]}" stroke-width="2"/>'
                f'<circle cx="{x(got.mean):.1f}" cy="{y:.1f}" r="3.5" fill="{colours[group]}"/>'
            )
            y += row / 2
        y += 14
    return "\n".join([*parts, "</svg>", ""])


def summary(scores: Scores, seeds: int, evaluations: int) -> dict[str, object]:
    return {
        "seeds": seeds,
        "evaluations": evaluations,
        "landscapes": {found.name: found.suits for found in FAMILY},
        "worth": {
            f"{at}": {
                arm.name: {
                    name: asdict(worth(scores, [name], arm.name, at)) for name in names_in("all")
                }
                for arm in ARMS
            }
            for at in (EARLY, evaluations)
        },
        "lead": {
            f"{at}": {
                arm.name: {g: asdict(lead(scores, names_in(g), arm.name, at)) for g in GROUPS}
                for arm in ARMS
                if arm is not OURS
            }
            for at in (EARLY, evaluations)
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    began = time.monotonic()
    for done, scores in enumerate(played(options.seeds, options.evaluations, options.jobs), 1):
        print(f"{done} seeds after {time.monotonic() - began:.0f} s", file=sys.stderr)
        if done > 1:
            write(scores, done, options.evaluations, options.out)
    print((options.out / "landscapes.md").read_text())


def write(scores: Scores, seeds: int, evaluations: int, out: Path) -> None:
    told = summary(scores, seeds, evaluations)
    (out / "landscapes.json").write_text(json.dumps(told, indent=1) + "\n")
    (out / "landscapes.md").write_text(markdown(scores, seeds, evaluations))
    (out / "landscapes.svg").write_text(svg(scores, seeds, evaluations))


if __name__ == "__main__":
    main()
