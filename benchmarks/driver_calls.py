"""What one evaluation costs the thread that drives, in Python calls and statements: a busy machine changes neither.

    python benchmarks/driver_calls.py --database postgres://postgres@127.0.0.1:5432/ --out benchmarks/results/driver_calls.json

The worker, search, prompts, client and ledger of `driver_load.py` with two runs of five islands, counted over `--evaluations`
once ten are done. What happens by the clock (heartbeats, looking for people's wishes) weighs more here than at full pace.
"""

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import driver_load

WARM = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--database", help="a PostgreSQL server; else SQLite")
    parser.add_argument("--evaluations", type=int, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.runs, options.islands = 2, 5
    with tempfile.TemporaryDirectory(prefix="driver-calls-") as folder:
        driver_load.prepared(Path(folder), options)
        command = [sys.executable, driver_load.__file__, "--answer-s", "0.2", "--part", "endpoint"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as endpoint:
            assert endpoint.stdout is not None
            driver_load.profile(Path(folder), int(endpoint.stdout.readline()))
            try:
                figures = counted(options.evaluations)
            finally:
                endpoint.kill()
        if options.database:
            driver_load.drop(options.database, os.environ["DATABASE_URL"])
    figures["database"] = "PostgreSQL" if options.database else "SQLite"
    text = json.dumps(figures, indent=2) + "\n"
    print(text, end="", flush=True)
    if options.out:
        options.out.write_text(text)
    # Its threads still wait for the endpoint.
    os._exit(0)


def counted(evaluations: int) -> dict[str, Any]:
    from django.db import connection

    from foundry_web import logs
    from gpu_runner.proposals.models import load_models
    from gpu_runner.settings import WorkerSettings
    from gpu_runner.sources import Sources
    from gpu_runner.worker import Worker

    logs.configure()
    models = load_models()
    pool = driver_load.SleepingPool(8, 0.05)
    worker = Worker(
        WorkerSettings(slots=8, runs=2, idle_s=0.01),
        lambda: pool,
        lambda driver, claim: driver.add(claim, models=models, sources=Sources({}, {})),
    )
    profile, statements = cProfile.Profile(), 0

    def count(execute: Any, *arguments: Any) -> Any:
        nonlocal statements
        statements += 1
        return execute(*arguments)

    assert worker._register()
    with connection.execute_wrapper(count):
        while pool.busy_s()[1] < WARM:
            worker._turn()
        begun, statements = pool.busy_s()[1], 0
        while (done := pool.busy_s()[1] - begun) < evaluations:
            profile.runcall(worker._turn)
    calls = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return {
        "evaluations": done,
        "calls_per_evaluation": round(calls / done),
        "statements_per_evaluation": round(statements / done, 1),
    }


if __name__ == "__main__":
    main()
