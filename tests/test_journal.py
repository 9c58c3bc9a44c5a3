"""A run in a folder: what is written is read again, and a folder that cannot be used says why."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from gpu_runner.core.candidate import Candidate, Proposal
from gpu_runner.core.ledger import ModelCall
from gpu_runner.core.source import fingerprint
from gpu_runner.core.task import Budget, RunSpec, TaskSpec
from gpu_runner.core.verdicts import RunState, Stage, State
from gpu_runner.evolution import engine, results
from gpu_runner.journal import SWITCHES, Journal, JournalError
from tests.evolution.making import evaluation, source

TASK = TaskSpec(name="soft\nmax", source="class Model: ...")
SPEC = RunSpec(task=TASK)


def proposal(mark: int = 1) -> Proposal:
    return Proposal(source=source(mark), island=0, origin="compiler:default", move="first")


def write_some(journal: Journal) -> None:
    for mark in range(1, 5):
        journal.add(proposal(mark))
    journal.stage(1, Stage.COMPILE)
    journal.finish(1, evaluation(1.5))
    journal.stage(2, Stage.LOAD)
    journal.requeue(2, "the device stopped answering")
    journal.abandon(3, "three failures")
    journal.stage(4, Stage.LOAD)
    journal.note("answer", {"event": "told", "candidate": 1})
    journal.spend(evaluations=1, wall_s=2.5)
    journal.spend(evaluations=1)
    journal.model_call(
        ModelCall(model="m", role="improve", prompt="p", reply="r", outcome="ok", seconds=1)
    )
    journal.set_state(RunState.RUNNING)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    with Journal(tmp_path, SPEC) as journal:
        write_some(journal)
        before = journal.candidates()
    with Journal(tmp_path, SPEC) as journal:
        assert journal.candidates() == before
        assert [c.state for c in before] == [
            State.FINISHED,
            State.QUEUED,
            State.ABANDONED,
            State.EVALUATING,
        ]
        assert before[0].fitness == 1.5
        assert journal.notes("answer") == [{"event": "told", "candidate": 1}]
        assert journal.notes("best") == []
        assert journal.spent() == {"evaluations": 2, "wall_s": 2.5}
        assert journal.add(proposal(9)).id == 5


def test_every_prefix_of_a_journal_can_be_opened(tmp_path: Path) -> None:
    with Journal(tmp_path / "whole", SPEC) as journal:
        write_some(journal)
    content = (tmp_path / "whole" / "journal.jsonl").read_bytes()
    for cut in {*range(0, len(content), 97), len(content) - 1}:
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "journal.jsonl").write_bytes(content[:cut])
        with Journal(folder, SPEC) as journal:
            journal.note("log", {"text": "going on"})
        lines = (folder / "journal.jsonl").read_text().splitlines()
        assert all(json.loads(line)["record"] for line in lines)


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with Journal(tmp_path, SPEC), pytest.raises(JournalError, match="another process is writing"):
        Journal(tmp_path, SPEC)
    Journal(tmp_path, SPEC).close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"task": TaskSpec(name="other", source="class Other: ...")},
            "holds a run of another task",
        ),
        ({"seed": 7}, "--seed 0"),
        ({"islands": 5}, "--islands 3"),
    ],
)
def test_a_folder_of_another_run_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    Journal(tmp_path, SPEC).close()
    with pytest.raises(JournalError, match=message):
        Journal(tmp_path, SPEC.model_copy(update=change))


def test_a_larger_budget_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    Journal(tmp_path, SPEC).close()
    with Journal(tmp_path, SPEC.model_copy(update={"budget": Budget(evaluations=99)})) as journal:
        assert journal.spec.budget.evaluations == 99


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"something else\nand more\n", "line 1 .* is damaged"),
        (b"torn by somebody else", "line 1 .* is damaged"),
        (b'{"record": "candidate"}\n{"record": "x"}\n', "no journal of a run"),
        (b'{"record": "run", "format": 99, "spec": {}}\n', "format 99"),
        (b'{"record": "run"}\n', "cannot be understood"),
    ],
)
def test_a_damaged_journal_is_refused_and_left_alone(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=message):
        Journal(tmp_path, SPEC)
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="choose another --out"):
        Journal(tmp_path / "file" / "out", SPEC)


def test_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(tmp_path, SPEC) as journal:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(JournalError, match=r"the disk is full: .* run the same command"):
            journal.add(proposal())


def test_numbers_that_json_does_not_know_become_null(tmp_path: Path) -> None:
    with Journal(tmp_path, SPEC) as journal:
        journal.add(proposal())
        journal.finish(1, evaluation(1.5, profile={"error": float("nan"), "rates": [float("inf")]}))
    with Journal(tmp_path, SPEC) as journal:
        found = journal.candidates()[0].evaluation
        assert found is not None
        assert found.profile == {"error": None, "rates": [None]}


def best(journal: Journal) -> Candidate:
    journal.add(proposal())
    journal.finish(1, evaluation(1.25))
    journal.note("best", {"candidate_id": 1})
    return journal.candidates()[0]


def test_the_best_file_states_what_was_verified(tmp_path: Path) -> None:
    with Journal(tmp_path, SPEC) as journal:
        best(journal)
    text = (tmp_path / "best.py").read_text()
    assert text.startswith("# Triton kernel for the task soft max,")
    for fact in (
        "# Verdict:     correct",
        "# Verified at: probe size",
        "# Device:      cpu",
        "# Speed:       modelled (computed for the target h200; nothing was timed)",
        "#   1.25 times as fast as PyTorch eager",
        "# Track:       own_kernels",
        "# Precision:   reference",
        "python -m gpu_runner evaluate task.py best.py --track own_kernels --precision reference",
    ):
        assert fact in text
    assert fingerprint(text) == fingerprint(source(1))


def test_a_kill_before_the_best_file_is_made_up_for(tmp_path: Path) -> None:
    with Journal(tmp_path, SPEC) as journal:
        best(journal)
    (tmp_path / "best.py").unlink()
    Journal(tmp_path, SPEC).close()
    assert "1.25 times" in (tmp_path / "best.py").read_text()


def test_the_result_has_the_evaluation_and_where_it_came_from(tmp_path: Path) -> None:
    with Journal(tmp_path, SPEC) as journal:
        found = best(journal)
        state = engine.told(engine.begin(3), found)
        result = results.summarise(
            SPEC,
            state,
            journal.candidates(),
            {"evaluations": 1},
            run_state=RunState.FINISHED,
            stop_reason="budget: 1 evaluations",
            best=found,
        )
        journal.note("result", result.as_json())
    written = json.loads((tmp_path / "result.json").read_text())
    assert found.evaluation is not None
    assert written["best"].items() >= found.evaluation.model_dump(mode="json").items()
    assert {
        name: written["best"][name] for name in ("candidate_id", "island", "generation", "origin")
    } == {"candidate_id": 1, "island": 0, "generation": 0, "origin": "compiler:default"}
    assert written["counts"] == {"correct": 1}
    assert written["spent"] == {"evaluations": 1}
    assert written["stop_reason"] == "budget: 1 evaluations"
    assert (written["seed"], written["moves"], len(written["islands"])) == (0, [], 3)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_run_is_gone_on_with_by_the_switches_that_it_has(tmp_path: Path, name: str) -> None:
    """Else half of a run would use what the other half is compared without."""
    with Journal(tmp_path, SPEC):
        pass
    other = SPEC.model_copy(update={name: False})
    with pytest.raises(JournalError, match=f"use --{SWITCHES[name]} to go on"):
        Journal(tmp_path, other)
    Journal(tmp_path / "other", other).close()
    with pytest.raises(JournalError, match=f"use --no-{SWITCHES[name]} to go on"):
        Journal(tmp_path / "other", SPEC)


@pytest.mark.parametrize(
    "line",
    [
        '{"record": "changed", "candidate_id": 1, "state": "bogus"}',
        '{"record": "together", "records": ["x"]}',
        '{"record": "x", "a": ' + "[" * 100_000 + "]" * 100_000 + '}\n{"record": "log"}',
    ],
)
def test_a_line_of_another_kind_is_named(tmp_path: Path, line: str) -> None:
    with Journal(tmp_path, SPEC) as journal:
        write_some(journal)
        count = len((tmp_path / "journal.jsonl").read_text().splitlines())
    with open(tmp_path / "journal.jsonl", "a") as file:
        file.write(line + "\n")
    with pytest.raises(JournalError, match=f"line {count + 1} of .* use a new --out"):
        Journal(tmp_path, SPEC)
