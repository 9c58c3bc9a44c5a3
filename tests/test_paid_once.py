"""Runs with a model killed with SIGKILL at random moments: no answer that was kept is paid for twice, none is lost.

A process asks for more only once it has written down what it got, so that a kill loses at most what was in flight. That is
counted and not timed: a socket takes what is sent to a process that is dead already, and a busy machine is late at everything.
"""

import os
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
KEY = "FOUNDRY_MODEL_KEY_PROCESS"
PROGRAM = """
import sys, time
from pathlib import Path
from gpu_runner.driver import run
from gpu_runner.journal import Journal
from gpu_runner.proposals.models import outage
from tests.evolution.making import evaluation
from tests.test_driver import FakePool
from tests.test_driver_models import NOTHING, models, spec
from tests.test_paid_once import BUDGET, KEY

outage.FIRST_PAUSE_S = 0.1
folder, url = Path(sys.argv[1]), sys.argv[2]

def script(mark):
    time.sleep(0.05)
    return evaluation(1 + mark % 7 / 10)

print("ready", flush=True)
with Journal(folder / "run", spec(budget=BUDGET)) as journal:
    run(journal, FakePool(script), models=models(folder, url, key=f'"{KEY}"'), sources=NOTHING)
"""


class Sent:
    """What the endpoint sent whole, and to which process; well, badly, late, cut off, with errors."""

    def __init__(self) -> None:
        self.to: dict[int, str] = {}
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
                    self.to[mark] = handler.headers["Authorization"]

        return answer


@pytest.mark.exam
@pytest.mark.timeout(600)
def test_kill_9_at_20_random_moments_pays_no_kept_answer_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(23)
    journal_file = tmp_path / "run" / "journal.jsonl"
    sent = Sent()
    monkeypatch.setenv(KEY, "last")
    monkeypatch.setattr("gpu_runner.proposals.models.outage.FIRST_PAUSE_S", 0.1)
    with serve(sent.script) as endpoint:
        for kill in range(KILLS):
            command = [sys.executable, "-c", PROGRAM, str(tmp_path), endpoint.url]
            environment = {**os.environ, KEY: f"process-{kill}"}
            with subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment
            ) as process:
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
                process.wait()
        with Journal(tmp_path / "run", spec(budget=BUDGET)) as journal:
            result = run(
                journal,
                FakePool(),
                models=models(tmp_path, endpoint.url, key=f'"{KEY}"'),
                sources=NOTHING,
            )
    told = history(tmp_path / "run")
    marks = [int(found) for call in told.calls for found in re.findall(r"MARK = (\d+)", call.reply)]
    kept = Counter(marks)
    assert result.state is RunState.FINISHED
    assert max(kept.values()) == 1, "an answer was recorded twice"
    candidates = Counter(call.candidate_id for call in told.calls if call.outcome == "ok")
    assert max(candidates.values()) == 1
    lost = Counter(process for mark, process in sent.to.items() if mark not in kept)
    assert "Bearer last" not in lost, "an answer was lost without a kill"
    assert max(lost.values(), default=0) <= spec().islands, "more than was in flight"
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
