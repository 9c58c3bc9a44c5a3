"""Runs with a model killed with SIGKILL at random moments: no answer that was kept is paid for twice, none is lost."""

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from gpu_runner.core.task import Budget
from gpu_runner.core.verdicts import RunState
from gpu_runner.driver import run
from gpu_runner.journal import Journal, history, read_records
from tests.evolution.making import source
from tests.proposals.endpoint import Script, cuts_off, says, sends, serve
from tests.test_driver import FakePool
from tests.test_driver_models import NOTHING, models, spec

ROOT = Path(__file__).parents[1]
KILLS = 20
BUDGET = Budget(evaluations=60)
SEEN_S = 2.0
"""A finished answer that arrived longer than this before a kill must be kept; on a busy machine a write takes its time."""
PROGRAM = """
import sys, time
from pathlib import Path
from gpu_runner.driver import run
from gpu_runner.journal import Journal
from gpu_runner.proposals.models import outage
from tests.evolution.making import evaluation
from tests.test_driver import FakePool
from tests.test_driver_models import NOTHING, models, spec
from tests.test_paid_once import BUDGET

outage.FIRST_PAUSE_S = 0.1
folder, url = Path(sys.argv[1]), sys.argv[2]

def script(mark):
    time.sleep(0.05)
    return evaluation(1 + mark % 7 / 10)

print("ready", flush=True)
with Journal(folder / "run", spec(budget=BUDGET)) as journal:
    run(journal, FakePool(script), models=models(folder, url), sources=NOTHING)
"""


class Sent:
    """What the endpoint sent whole, and when; well, badly, late, cut off, with errors."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}
        self._lock = threading.Lock()
        self._count = 0

    @property
    def script(self) -> Script:
        def answer(handler, request) -> None:  # type: ignore[no-untyped-def]
            with self._lock:
                self._count += 1
                mark = self._count
            time.sleep(random.Random(mark).uniform(0.02, 0.2))
            text = f"MOVE: {mark}\n```python\n{source(mark)}```"
            odd = {
                3: says("no code"),
                5: sends(b"{}", 503),
                7: cuts_off(b"{"),
                8: says("", "length"),
            }
            chosen = odd.get(mark % 10)
            (chosen or says(text))(handler, request)
            if chosen is None:
                with self._lock:
                    self.at[mark] = time.monotonic()

        return answer


@pytest.mark.exam
@pytest.mark.timeout(600)
def test_kill_9_at_20_random_moments_pays_no_kept_answer_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(23)
    journal_file = tmp_path / "run" / "journal.jsonl"
    sent, kills = Sent(), []
    monkeypatch.setattr("gpu_runner.proposals.models.outage.FIRST_PAUSE_S", 0.1)
    with serve(sent.script) as endpoint:
        for _ in range(KILLS):
            command = [sys.executable, "-c", PROGRAM, str(tmp_path), endpoint.url]
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                before = journal_file.stat().st_size if journal_file.exists() else 0
                # At work again: a kill of a process that still starts shows nothing.
                while process.poll() is None and (
                    not journal_file.exists() or journal_file.stat().st_size <= before
                ):
                    time.sleep(0.01)
                time.sleep(rng.uniform(0.0, 1.5))
                process.send_signal(signal.SIGKILL)
                kills.append(time.monotonic())
                process.wait()
        with Journal(tmp_path / "run", spec(budget=BUDGET)) as journal:
            result = run(
                journal, FakePool(), models=models(tmp_path, endpoint.url), sources=NOTHING
            )
    told = history(tmp_path / "run")
    marks = [int(found) for call in told.calls for found in re.findall(r"MARK = (\d+)", call.reply)]
    kept = Counter(marks)
    assert result.state is RunState.FINISHED
    assert max(kept.values()) == 1, "an answer was recorded twice"
    candidates = Counter(call.candidate_id for call in told.calls if call.outcome == "ok")
    assert max(candidates.values()) == 1
    lost = [at for mark, at in sent.at.items() if mark not in kept]
    assert len(lost) <= 3 * KILLS, "more than was in flight"
    assert all(any(0 <= kill - at < SEEN_S for kill in kills) for at in lost)
    numbers = [
        record["payload"]["number"]
        for record in read_records(tmp_path / "run" / "journal.jsonl")
        if record["record"] == "note"
        and record["kind"] == "answer"
        and record["payload"]["event"] == "asked"
    ]
    assert len(numbers) == len(set(numbers)), "a request was answered twice"
    paid = sum((call.tokens_in or 0) + (call.tokens_out or 0) for call in told.calls)
    assert result.spent["tokens"] >= paid > 0
