"""Every judged case, attack and honest kernel on one device, as a table: verdict, expected, seconds.

Run: python benchmarks/judged_cases.py [--device cuda] [--slots 4] [--only WORD ...] [--out FILE]
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpu_runner.evaluation.errors import InvalidTask, RunnerError
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings
from tests.evaluation import exploit_files
from tests.evaluation.exploit_files import Exploit


def all_cases() -> Iterator[Exploit]:
    for folder in sorted(path for path in (ROOT / "tests/cases").iterdir() if path.is_dir()):
        expected = json.loads((folder / "expected.json").read_text())
        yield Exploit(
            name=folder.name,
            reference=(folder / "reference.py").read_text(),
            candidate=(folder / "candidate.py").read_text(),
            expected=frozenset([expected["verdict"], *expected["also_acceptable"]]),
        )
    yield from exploit_files.written("attacks")
    yield from exploit_files.written("honest")
    yield from exploit_files.collected()


def judge(pool: LocalPool, case: Exploit) -> dict[str, object]:
    started = time.perf_counter()
    try:
        result = pool.evaluate(case.task, case.candidate)
        verdict, kind = str(result.verdict or result.state), result.kind
        lead = result.lead.title if result.lead else ""
        stages = {str(stage.name): round(stage.seconds, 2) for stage in result.stages}
        speedup = result.speedup.eager.model_dump() if result.speedup.eager else None
        device_us = result.candidate.device_us if result.candidate else None
    except (InvalidTask, RunnerError) as error:
        verdict, kind, lead, stages, speedup, device_us = (
            type(error).__name__,
            None,
            str(error),
            {},
            None,
            None,
        )
    right = case.may_end(verdict, kind, is_measured=pool.device.kind == "cuda")
    return {
        "case": case.name,
        "right": right,
        "verdict": verdict,
        "kind": kind,
        "expected": "|".join(sorted(case.expected)),
        "seconds": round(time.perf_counter() - started, 2),
        "device_us": device_us,
        "speedup": speedup,
        "stages": stages,
        "lead": lead,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="auto")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the cases' names")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cases = [case for case in all_cases() if any(word in case.name for word in options.only)]
    pool = open_pool(EvaluationSettings(device=options.device, slots=options.slots))
    rows = []
    with ThreadPoolExecutor(options.slots) as threads:
        for row in threads.map(lambda case: judge(pool, case), cases):
            rows.append(row)
            mark = "ok   " if row["right"] else "WRONG"
            found = f"{row['verdict']}/{row['kind']}" if row["kind"] else row["verdict"]
            print(
                f"{mark} {row['seconds']:6.1f} s  {row['case']:44} {found:36} expected {row['expected']}",
                flush=True,
            )
            if not row["right"]:
                print(f"        {str(row['lead'])[:300]}", flush=True)
            if options.out:
                options.out.write_text(json.dumps(rows, indent=1))
    pool.close()
    wrong = sum(not row["right"] for row in rows)
    print(f"{len(rows) - wrong} of {len(rows)} right on {pool.device.name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
