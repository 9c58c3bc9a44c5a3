"""The best of each generation of a run, as it was evaluated or on another device: what a model's answers gained over the first.

Run: python benchmarks/generations.py FROM ... [--device cuda] [--slots 3] [--out FILE]

FROM is a folder that `evolve --out` or `batch import` wrote, or an earlier FILE. Without --device nothing is evaluated. With it
every candidate that was correct there is evaluated here, and the table says what became of it.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings
from gpu_runner.journal import Journal


@dataclass(frozen=True)
class Known:
    """A candidate of an earlier run: its row, and the task as it was there."""

    task: TaskSpec
    row: dict[str, Any]


def known_in(place: Path) -> Iterator[Known]:
    if place.is_file():
        for line in place.read_text().splitlines():
            row = json.loads(line)
            yield Known(TaskSpec.model_validate(row["spec"]), row)
        return
    with Journal.reopened(place) as journal:
        task = journal.spec.task
        for c in journal.candidates():
            if c.evaluation is not None:
                about = {"candidate": c.id, "generation": c.generation, "origin": c.origin}
                row = {"task": task.name, **about, "move": c.move, "source": c.source}
                row["spec"] = task.model_dump(mode="json")
                yield Known(task, row | found(c.evaluation))


def found(evaluation: Evaluation) -> dict[str, Any]:
    """What a row says of an evaluation."""
    ratios = {name: getattr(evaluation.speedup, name) for name in ("eager", "torch_compile")}
    return {
        "verdict": str(evaluation.verdict or evaluation.state),
        "kind": evaluation.kind,
        "device": evaluation.device,
        "us": evaluation.candidate.device_us if evaluation.candidate else None,
        **{name: ratio.model_dump() if ratio else None for name, ratio in ratios.items()},
    }


def evaluated(known: list[Known], pool: LocalPool) -> Iterator[dict[str, Any]]:
    """Rows as they come: what was measured when time runs out is measured."""
    wanted = [k for k in known if k.row["verdict"] == "correct"]
    with ThreadPoolExecutor(pool.slots) as threads:
        again = threads.map(lambda k: pool.evaluate(k.task, k.row["source"]), wanted)
        for one, evaluation in zip(wanted, again, strict=True):
            yield one.row | found(evaluation)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| task | generation | candidates | correct | best us | over eager | over torch.compile | by |"
    ]
    lines.append("|---" * 8 + "|")
    for task in dict.fromkeys(r["task"] for r in rows):
        for generation in sorted({r["generation"] for r in rows if r["task"] == task}):
            mine = [r for r in rows if r["task"] == task and r["generation"] == generation]
            timed = [r for r in mine if r["us"] is not None]
            best = min(timed, key=lambda r: r["us"], default=None)
            cells = [task, generation, len(mine), sum(r["verdict"] == "correct" for r in mine)]
            if best is None:
                cells += ["-"] * 4
            else:
                cells += [f"{best['us']:.1f}", _ratio(best["eager"]), _ratio(best["torch_compile"])]
                cells.append(best["origin"])
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _ratio(ratio: dict[str, float | None] | None) -> str:
    if ratio is None:
        return "-"
    if ratio["low"] is None:
        return f"{ratio['ratio']:.2f}"
    return f"{ratio['ratio']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("places", metavar="FROM", nargs="+", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON lines, one a candidate")
    options = parser.parse_args()
    known = [k for place in options.places for k in known_in(place)]
    if not options.device:
        rows = [k.row for k in known]
        _write(rows, options.out)
    else:
        rows = []
        with open_pool(EvaluationSettings(device=options.device, slots=options.slots)) as pool:
            for row in evaluated(known, pool):
                rows.append(row)
                print(f"{row['task']} {row['candidate']}: {row['verdict']} {row['us']}", flush=True)
                _write(rows, options.out)
    print(table(rows))


def _write(rows: list[dict[str, Any]], out: Path | None) -> None:
    if out:
        out.write_text("".join(f"{json.dumps(r)}\n" for r in rows))


if __name__ == "__main__":
    main()
