"""Which tasks of a suite get a correct first candidate from the initialisers alone, on a CPU, and in what time.

    python benchmarks/first_candidates.py [SUITE] [--tracks library_allowed own_kernels] [--only NAME ...] [--again]

For each task and track the initialisers are asked as a run asks them, and their drafts of generation 0 are evaluated in the
order in which a run of three islands deals them, until one is correct. Each row is added to the results as it ends, with the
digest of the task; rows of tasks that did not change are kept, `--failed` makes those without a correct candidate anew and
`--again` all that are asked for. Seconds are wall time: the
task's inspection, then until the first correct candidate, drafts included.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Track
from gpu_runner.drafting import SOURCE_TROUBLE, unique_drafts
from gpu_runner.evaluation.errors import InvalidTask
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings
from gpu_runner.evolution import engine
from gpu_runner.evolution.seeding import deal
from gpu_runner.proposals.types import Draft
from gpu_runner.sources import standard_sources

RESULTS: Final = ROOT / "benchmarks/results/first_candidates_cpu.jsonl"
HEAD: Final = "| task | track | first candidate | origin | tried | inspect s | s |"
ISLANDS: Final = 3
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", nargs="?", type=Path, default=ROOT / "examples")
    parser.add_argument("--tracks", nargs="+", type=Track, default=list(Track)[::-1])
    parser.add_argument("--only", nargs="+", default=[], help="tasks by level/name or a part of it")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--failed", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    known = read(options.results)
    print(f"{HEAD}\n{'|---' * 7}|", flush=True)
    with open_pool(EvaluationSettings(device="cpu", seed=1)) as pool:
        for track in options.tracks:
            for name, task in tasks(options.suite, track):
                if not wanted(name, options.only):
                    continue
                row = known.get((name, track.value))
                is_kept = row is not None and row["digest"] == digest(task.source)
                if options.failed and row is not None and row["outcome"] != "correct":
                    is_kept = False
                if row is None or not is_kept or options.again:
                    row = {"task": name, "track": track.value, "digest": digest(task.source)}
                    row |= first_candidate(pool, task)
                    known[name, track.value] = row
                    append(options.results, row)
                print(line(row), flush=True)
    write(options.results, known)
    shown = [row for row in known.values() if wanted(row["task"], options.only)]
    print("\n".join(summary(shown)))
    return 0 if all(row["outcome"] == "correct" for row in shown) else 1


def tasks(suite: Path, track: Track) -> Iterator[tuple[str, TaskSpec]]:
    """Every task below the folder, by level and name."""
    for path in sorted(suite.rglob("*.py")):
        name = path.relative_to(suite).with_suffix("").as_posix()
        yield name, TaskSpec(name=path.stem, source=path.read_text(encoding="utf-8"), track=track)


def wanted(name: str, only: list[str]) -> bool:
    return not only or any(part in name for part in only)


def first_candidate(pool: LocalPool, task: TaskSpec) -> Row:
    """The first correct candidate, or what became of all of them."""
    started = time.perf_counter()
    try:
        report = pool.inspect(task)
    except InvalidTask as error:
        return {
            "outcome": "invalid task",
            "tried": [],
            "troubles": [str(error)[:300]],
            **spent(started),
        }
    inspect_s = round(time.perf_counter() - started, 1)
    row: Row = {"warnings": [w.kind for w in report.warnings], "inspect_s": inspect_s}
    started = time.perf_counter()
    drafts, troubles = first_drafts(pool, task, report)
    row |= {"drafts_s": spent(started)["seconds"], "troubles": troubles, "tried": []}
    for draft in drafts:
        evaluation = pool.evaluate(task, draft.source)
        row["tried"].append({"origin": draft.origin, **found(evaluation)})
        if evaluation.is_correct:
            return row | {"outcome": "correct", "origin": draft.origin, **spent(started)}
    outcome = row["tried"][0]["verdict"] if row["tried"] else "no draft"
    return row | {"outcome": outcome, **spent(started)}


def first_drafts(
    pool: LocalPool, task: TaskSpec, report: TaskReport
) -> tuple[list[Draft], list[str]]:
    """The initialisers' drafts in the order of their evaluation, and why a source has none."""
    offers: dict[str, list[Draft]] = {}
    troubles = []
    for kind, initialise in standard_sources().initialisers.items():
        try:
            offers[kind] = initialise(pool, task, report)
        except SOURCE_TROUBLE as error:
            troubles.append(f"{kind}: {error}"[:600])
    unique = unique_drafts(offers, frozenset())
    islands = engine.begin(ISLANDS).islands
    return [draft for _, draft in deal(unique, islands, sum(map(len, unique.values())))], troubles


def found(evaluation: Evaluation) -> Row:
    verdict = str(evaluation.verdict or evaluation.state)
    kind = f"/{evaluation.kind}" if evaluation.kind else ""
    reason = evaluation.lead.title if evaluation.lead and not evaluation.is_correct else ""
    return {"verdict": verdict + kind, "reason": reason}


def spent(started: float) -> Row:
    return {"seconds": round(time.perf_counter() - started, 1)}


def digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def line(row: Row) -> str:
    reason = ""
    if row["outcome"] != "correct":
        reasons = [tried["reason"] for tried in row["tried"]] + row["troubles"]
        reason = f": {reasons[0][:160]}" if reasons else ""
    cells = (
        row["task"],
        row["track"],
        f"{row['outcome']}{reason}".replace("|", "/"),
        row.get("origin", "-"),
        str(len(row["tried"])),
        str(row.get("inspect_s", "-")),
        str(row["seconds"]),
    )
    return f"| {' | '.join(cells)} |"


def summary(rows: list[Row]) -> Iterator[str]:
    for track in sorted({row["track"] for row in rows}):
        of_track = [row for row in rows if row["track"] == track]
        correct = [row for row in of_track if row["outcome"] == "correct"]
        quick = sum(row["inspect_s"] + row["seconds"] <= 20 for row in correct)
        yield f"{track}: {len(correct)} of {len(of_track)} correct, {quick} of them within 20 s"


def read(path: Path) -> dict[tuple[str, str], Row]:
    """The latest row of each task and track."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(text) for text in lines]
    return {(row["task"], row["track"]): row for row in rows}


def append(path: Path, row: Row) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def write(path: Path, rows: dict[tuple[str, str], Row]) -> None:
    """One row a task and track, in their order."""
    path.write_text("".join(json.dumps(rows[key]) + "\n" for key in sorted(rows)))


if __name__ == "__main__":
    sys.exit(main())
