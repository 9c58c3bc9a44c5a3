"""Real processes killed with SIGKILL: a restarted run loses no finished candidate and doubles none."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.verdicts import State
from gpu_runner.driver import run
from gpu_runner.journal import Journal, read_records
from tests.test_driver import SOURCES, FakePool, spec

KILLS = 4
ROOT = Path(__file__).parents[1]
PROGRAM = """
import sys, time
from pathlib import Path
from gpu_runner.driver import run
from gpu_runner.journal import Journal
from tests.evolution.making import evaluation
from tests.test_driver import SOURCES, FakePool, spec

def script(mark):
    time.sleep(0.15)
    return evaluation(len(str(mark)) + mark % 7 / 10)

print("ready", flush=True)
with Journal(Path(sys.argv[1]), spec()) as journal:
    run(journal, FakePool(script), sources=SOURCES)
"""


def finished(folder: Path) -> dict[int, str]:
    """Each finished candidate's evaluation as it stands in the journal."""
    found: dict[int, str] = {}
    for record in read_records(folder / "journal.jsonl"):
        if record["record"] == "finished":
            assert record["candidate_id"] not in found, "finished twice"
            found[record["candidate_id"]] = json.dumps(record["evaluation"])
    return found


@pytest.mark.timeout(120)
def test_kill_9_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    rng = random.Random(11)
    kept: dict[int, str] = {}
    for _ in range(KILLS):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0.05, 0.9))
            process.send_signal(signal.SIGKILL)
            process.wait()
        after = finished(tmp_path)
        assert after.items() >= kept.items()
        kept = after
    pool = FakePool()
    with Journal(tmp_path, spec()) as journal:
        result = run(journal, pool, sources=SOURCES)
        candidates: list[Candidate] = journal.candidates()
    assert len(kept) > 0
    assert result.stop_reason == "budget: 24 evaluations"
    assert len(pool.evaluated) == 24 - len(kept)
    assert len(finished(tmp_path)) == 24 == sum(c.state is State.FINISHED for c in candidates)
