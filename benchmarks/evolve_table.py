"""Evolve several examples and set eager, torch.compile and the best found side by side.

Run: python benchmarks/evolve_table.py examples/level2/mlp_block.py ... [--device cuda] [--evaluations 24] [--out FOLDER]
"""

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpu_runner import driver
from gpu_runner.core.evaluation import Ratio, Timing
from gpu_runner.core.task import Budget, RunSpec, TaskSpec
from gpu_runner.core.verdicts import Precision, Track
from gpu_runner.evaluation.errors import InvalidTask, RunnerError
from gpu_runner.evaluation.pool import open_pool
from gpu_runner.evaluation.settings import EvaluationSettings
from gpu_runner.evolution.results import RunResult
from gpu_runner.journal import Journal

HEAD = "| task | track | eager us | torch.compile us | best us | over eager | over torch.compile | generation | verdicts | s |"


def row(result: RunResult, task: TaskSpec, seconds: float) -> str:
    counts = " ".join(f"{count} {verdict}" for verdict, count in sorted(result.counts.items()))
    best = result.best
    if best is None or best.evaluation is None:
        return (
            f"| {task.name} | {task.track} | - | - | none | - | - | - | {counts} | {seconds:.0f} |"
        )
    found = best.evaluation
    cells = (
        task.name,
        task.track,
        _time(found.baselines.eager),
        _time(found.baselines.torch_compile),
        _time(found.candidate),
        _ratio(found.speedup.eager),
        _ratio(found.speedup.torch_compile),
        f"{best.generation} ({best.origin})",
        counts,
        f"{seconds:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _time(timing: Timing | None) -> str:
    return f"{timing.device_us:.1f}" if timing else "-"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.2f}"
    return f"{ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", nargs="+", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--evaluations", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=None, help="wall time per task")
    parser.add_argument("--islands", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--track", type=Track, default=Track.OWN_KERNELS)
    parser.add_argument("--precision", type=Precision, default=Precision.REFERENCE)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    pool = open_pool(EvaluationSettings(device=options.device, slots=options.slots))
    fidelity = "modelled" if pool.device.kind == "cpu" else "measured"
    print(f"{pool.device.name}, {fidelity}\n{HEAD}\n{'|---' * 10}|", flush=True)
    for path in options.tasks:
        task = TaskSpec(
            name=path.stem,
            source=path.read_text(),
            track=options.track,
            precision=options.precision,
        )
        budget = Budget(evaluations=options.evaluations, wall_s=options.seconds)
        spec = RunSpec(
            task=task,
            seed=options.seed,
            islands=options.islands,
            budget=budget,
            device=options.device,
        )
        started = time.perf_counter()
        try:
            with Journal(options.out / path.stem, spec) as journal:
                result = driver.run(journal, pool)
        except (InvalidTask, RunnerError) as error:
            print(f"| {path.stem} | {options.track} | failed: {error} |", flush=True)
            continue
        print(row(result, task, time.perf_counter() - started), flush=True)
        (options.out / f"{path.stem}.json").write_text(json.dumps(result.as_json()))
    pool.close()


if __name__ == "__main__":
    main()
