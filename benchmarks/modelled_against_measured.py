"""Does the model of speed order candidates as a GPU does? Kendall's tau within each task, and a picture.

    python benchmarks/modelled_against_measured.py collect FOLDER --sitting NAME    takes measured candidates out of journals
    python benchmarks/modelled_against_measured.py report    prints the table, draws docs/modelled_against_measured.svg

FOLDER holds the outputs of `evolve --device cuda`, anywhere below. Only the order within a task matters to a selection, so
pairs whose measured times differ by less than 3 % are left out, and tasks are never compared with each other.
"""

import argparse
import hashlib
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RESULTS = ROOT / "benchmarks/results/measured_candidates.jsonl"
PICTURE = ROOT / "docs/modelled_against_measured.svg"
ALIKE = 1.03
DISTURBED = "disturbed"
"""The sitting in which other tasks' baselines were compiled and called while candidates were timed: kept, not counted."""
COLOURS = "#1f77b4 #ff7f0e #2ca02c #d62728 #9467bd #8c564b #e377c2 #7f7f7f #bcbd22 #17becf".split()


def measured_in(journal: Path) -> Iterator[dict[str, Any]]:
    """The measured evaluations of one journal, each with what was modelled of it."""
    sources: dict[int, tuple[str, str]] = {}
    task = ""
    for line in journal.read_text().splitlines():
        record = json.loads(line)
        if record.get("record") == "run":
            task = record["spec"]["task"]["name"]
        for one in record.get("records", [record]):
            if one.get("record") == "candidate":
                digest = hashlib.sha256(one["source"].encode()).hexdigest()[:12]
                sources[one["id"]] = (digest, one["origin"])
            evaluation = one.get("evaluation")
            if isinstance(evaluation, dict) and evaluation.get("fidelity") == "measured":
                number = int(one.get("candidate_id", 0))
                yield _row(task, number, sources.get(number, ("", "")), evaluation)


def _row(
    task: str, number: int, source: tuple[str, str], evaluation: dict[str, Any]
) -> dict[str, Any]:
    parts = (evaluation.get("profile") or {}).get("candidate", {}).get("parts", [])
    timing = evaluation.get("candidate") or {}
    return {
        "task": task,
        "candidate": number,
        "source": source[0],
        "origin": source[1],
        "verdict": evaluation["verdict"],
        "kind": evaluation["kind"],
        "measured_us": timing.get("device_us"),
        "iqr_us": timing.get("iqr_us"),
        "modelled_us": sum(part["us"] for part in parts) or None,
        "baselines_us": {
            name: one["device_us"] for name, one in evaluation["baselines"].items() if one
        },
        "speedup": evaluation["speedup"],
        "stages_s": {one["name"]: round(one["seconds"], 2) for one in evaluation["stages"]},
        "timing_s": (evaluation.get("profile") or {}).get("timing_s"),
        "environment": {
            name: evaluation["environment"].get(name)
            for name in ("gpu", "driver", "torch", "triton")
        },
    }


def collect(folder: Path, sitting: str) -> None:
    rows = [
        {"sitting": sitting, **row}
        for journal in sorted(folder.rglob("journal.jsonl"))
        for row in measured_in(journal)
    ]
    with RESULTS.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    print(f"{len(rows)} measured candidates of {sitting}")


def kendall(points: list[tuple[float, float]]) -> tuple[float, int]:
    """Tau over the pairs whose second values differ by more than 3 %, and how many pairs those are."""
    signs = [
        math.copysign(1, (a[0] - b[0]) * (a[1] - b[1])) if a[0] != b[0] else 0
        for a, b in combinations(points, 2)
        if max(a[1], b[1]) / min(a[1], b[1]) > ALIKE
    ]
    return (sum(signs) / len(signs) if signs else math.nan), len(signs)


def points_by_task() -> dict[str, list[tuple[float, float]]]:
    """(modelled, measured) of each distinct source, by task; the last measurement of a source counts."""
    found: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for line in RESULTS.read_text().splitlines():
        row = json.loads(line)
        if row["sitting"] != DISTURBED and row["measured_us"] and row["modelled_us"]:
            key = row["source"] or f"{row['sitting']}/{row['candidate']}"
            found[row["task"]][key] = (row["modelled_us"], row["measured_us"])
    return {task: list(points.values()) for task, points in sorted(found.items())}


def report() -> None:
    by_task = points_by_task()
    print(
        "| task | variants | pairs | Kendall's tau | measured / modelled |\n|---|---|---|---|---|"
    )
    for task, points in by_task.items():
        tau, pairs = kendall(points)
        factors = sorted(measured / modelled for modelled, measured in points)
        print(
            f"| {task} | {len(points)} | {pairs} | {tau:.2f} | {factors[0]:.2f} to {factors[-1]:.2f} |"
        )
    PICTURE.write_text(svg(by_task))


def svg(by_task: dict[str, list[tuple[float, float]]]) -> str:
    """Both axes logarithmic and alike; on the diagonal the model is right."""
    every = [value for points in by_task.values() for point in points for value in point]
    low, high = math.log10(min(every)) - 0.1, math.log10(max(every)) + 0.1
    size, left, top = 420, 60, 20

    def at(value: float) -> float:
        return (math.log10(value) - low) / (high - low) * size

    ticks = [10**n * m for n in range(5) for m in (1, 2, 5) if low < math.log10(10**n * m) < high]
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 490" font-family="sans-serif" font-size="12">',
        '<rect width="680" height="490" fill="white"/>',
        f'<line x1="{left}" y1="{top + size}" x2="{left + size}" y2="{top}" stroke="#bbb"/>',
        f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" stroke="#555"/>',
        f'<text x="{left + size / 2}" y="480" text-anchor="middle">modelled, us</text>',
        f'<text transform="translate(14 {top + size / 2}) rotate(-90)" text-anchor="middle">measured, us</text>',
    ]
    for tick in ticks:
        x, y = left + at(tick), top + size - at(tick)
        parts.append(f'<text x="{x:.1f}" y="{top + size + 16}" text-anchor="middle">{tick}</text>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>')
    for number, (task, points) in enumerate(by_task.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<circle cx="500" cy="{30 + 20 * number}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="512" y="{34 + 20 * number}">{task}</text>')
        parts += [
            f'<circle cx="{left + at(modelled):.1f}" cy="{top + size - at(measured):.1f}" r="4" fill="{colour}" '
            f'fill-opacity="0.7"><title>{task}: {modelled:.1f} modelled, {measured:.1f} measured</title></circle>'
            for modelled, measured in points
        ]
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("folder", type=Path)
    collecting.add_argument("--sitting", required=True)
    commands.add_parser("report")
    options = parser.parse_args()
    if options.command == "collect":
        collect(options.folder, options.sitting)
    else:
        report()


if __name__ == "__main__":
    main()
