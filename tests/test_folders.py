"""What goes through a run's folder: batch files, kernels by people and agents, briefs, trajectories."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpu_runner import batch, inbox, trajectories
from gpu_runner.__main__ import app
from gpu_runner.core.ledger import ModelCall
from gpu_runner.core.task import Budget, RunSpec
from gpu_runner.core.verdicts import RunState, Verdict
from gpu_runner.driver import run
from gpu_runner.evolution.results import RunResult
from gpu_runner.journal import Journal, history
from gpu_runner.proposals.models import Models
from gpu_runner.proposals.models.profiles import Profile, Profiles
from tests.evolution.making import evaluation, source
from tests.proposals.endpoint import completion
from tests.test_driver import SOURCES, TASK, FakePool, mark_of, spec
from tests.test_driver_models import NOTHING

# A key that is named and not set: files need none.
PROFILE = Profile(
    base_url="http://127.0.0.1:9/v1", model="m", key="FOUNDRY_MODEL_KEY_NONE", max_tokens=2000
)
MODELS = Models(Profiles(profiles={"local": PROFILE}), {})
WITH_MODEL = RunSpec(task=TASK, seed=3, model="local", budget=Budget(evaluations=9))


def go_on(folder: Path, lines: list[str] | None = None) -> RunResult:
    with Journal(folder, WITH_MODEL) as journal:
        if lines is not None:
            assert not batch.take_answers(journal, lines).problems
        return run(journal, FakePool(), models=MODELS, sources=NOTHING, batch=1)


def answered(custom_id: str, text: str, **more: Any) -> str:
    response = {"status_code": 200, "body": completion(text), **more}
    return json.dumps({"id": "b", "custom_id": custom_id, "response": response, "error": None})


def whole(mark: int) -> str:
    return f"MOVE: mark {mark}\n```python\n{source(mark)}```"


def test_a_whole_run_alternates_between_files_and_evaluation(tmp_path: Path) -> None:
    result, rounds, marks = go_on(tmp_path), 0, iter(range(1, 100))
    while result.state is RunState.PAUSED:
        rounds += 1
        requests = [json.loads(line) for line in batch.as_lines(batch.pending(tmp_path))]
        assert {request["url"] for request in requests} == {"/v1/chat/completions"}
        assert all(request["body"]["messages"] for request in requests)
        assert result.stop_reason == f"{len(requests)} requests wait for answers from a batch file"
        assert len({request["custom_id"] for request in requests}) == len(requests) <= 3
        assert go_on(tmp_path).state is RunState.PAUSED, "without answers nothing changes"
        assert len(batch.pending(tmp_path)) == len(requests)
        lines = [answered(request["custom_id"], whole(next(marks))) for request in requests]
        result = go_on(tmp_path, lines)
    told = history(tmp_path)
    assert (result.state, result.stop_reason) == (RunState.FINISHED, "budget: 9 evaluations")
    assert rounds >= 3
    assert {candidate.origin for candidate in told.candidates.values()} == {"model:local"}
    assert max(candidate.generation for candidate in told.candidates.values()) >= 1
    assert [call.candidate_id for call in told.calls] == list(range(1, 10))
    assert result.spent["tokens"] == 120 * 9


def test_a_malformed_answer_is_asked_about_once_more(tmp_path: Path) -> None:
    go_on(tmp_path)
    first = batch.pending(tmp_path)
    go_on(tmp_path, [answered(question.id, "I would fuse it.") for question in first])
    second = batch.pending(tmp_path)
    assert [question.number for question in second] == [question.number for question in first]
    assert all(question.is_mending for question in second)
    assert "exactly one fenced block" in second[0].body["messages"][-1]["content"]
    result = go_on(tmp_path, [answered(q.id, whole(n)) for n, q in enumerate(second)])
    assert result.counts["correct"] == len(second)


def test_lines_are_judged_one_by_one_and_taken_once(tmp_path: Path) -> None:
    go_on(tmp_path)
    a, b, c = (question.id for question in batch.pending(tmp_path))
    lines = [
        "{",
        "[]",
        answered("nobody", "x"),
        answered(a, whole(1)),
        answered(a, whole(2)),
        json.dumps({"custom_id": b, "content": whole(3)}),
        "",
    ]
    with Journal(tmp_path, WITH_MODEL) as journal:
        imported = batch.take_answers(journal, lines)
        again = batch.take_answers(journal, lines)
        other = batch.take_answers(journal, [answered(a, whole(9))])
        late = [answered(c, "", status_code=429)]
        assert batch.take_answers(journal, late).taken == 1
    assert imported.problems == [
        (1, "no JSON"),
        (2, "no object with a custom_id"),
        (3, "'nobody' is no question of this run"),
        (5, f"{a} is answered twice; the first counts"),
    ]
    assert (imported.taken, imported.known, imported.missing) == (2, 0, (c,))
    assert (again.taken, again.known) == (0, 2)
    assert other.problems == [(1, f"{a} had another answer; that one counts")]
    marks = {mark_of(candidate.source) for candidate in _candidates_after(tmp_path)}
    assert marks == {1, 3}
    outcomes = [call.outcome for call in history(tmp_path).calls]
    assert sorted(outcomes) == ["ok", "ok", "refused"]


def _candidates_after(folder: Path) -> list[Any]:
    go_on(folder)
    return list(history(folder).candidates.values())


def test_a_file_in_the_inbox_becomes_a_candidate_of_its_author(tmp_path: Path) -> None:
    with Journal(tmp_path, spec(4)) as journal:
        inbox.submit(tmp_path, source(99), author="ada", island=1, move="by hand")
        (tmp_path / "inbox" / "broken.py").write_text("def f(:\n")
        run(journal, (pool := FakePool()), sources=SOURCES)
        mine = next(c for c in journal.candidates() if mark_of(c.source) == 99)
    assert (mine.origin, mine.island, mine.move) == ("person:ada", 1, "by hand")
    assert pool.evaluated.count(99) == 1
    with Journal(tmp_path, spec(6)) as journal:
        run(journal, (later := FakePool()), sources=SOURCES)
    assert 99 not in later.evaluated
    assert [path.suffix for path in sorted((tmp_path / "inbox" / "refused").iterdir())] == [
        ".py",
        ".txt",
    ]
    assert len(list((tmp_path / "inbox" / "taken").iterdir())) == 1


def test_outside_agents_are_told_the_task_the_best_and_what_failed(tmp_path: Path) -> None:
    def script(mark: int) -> Any:
        if mark == 4:
            return evaluation(verdict=Verdict.INCORRECT, kind="values")
        return evaluation(1.0 + mark / 10)

    with Journal(tmp_path, spec(5)) as journal:
        run(journal, FakePool(script), sources=SOURCES)
    console = CliRunner()
    told = json.loads(console.invoke(app, ["brief", str(tmp_path), "--json"]).stdout)
    assert told["task"]["source"] == TASK.source
    best = max(candidate.fitness for candidate in history(tmp_path).candidates.values())
    assert told["best"][0]["speedup"] == best
    assert [failure["verdict"] for failure in told["failed"]] == ["incorrect/values"]
    text = console.invoke(app, ["brief", str(tmp_path)]).stdout
    assert f"{best:.3f} times as fast as eager (modelled)" in text
    kernel = tmp_path / "kernel.py"
    kernel.write_text(source(7))
    given = console.invoke(app, ["submit", str(tmp_path), str(kernel), "--author", "an agent"])
    assert given.exit_code == 0
    kernel.write_text("x = 1\n")
    refused = console.invoke(app, ["submit", str(tmp_path), str(kernel), "--author", "an agent"])
    assert (refused.exit_code, "no class ModelNew" in refused.output) == (2, True)


def test_trajectories_tell_what_each_step_was_worth(tmp_path: Path) -> None:
    go_on(tmp_path)
    while questions := batch.pending(tmp_path):
        start = len(history(tmp_path).candidates) + 1
        go_on(tmp_path, [answered(q.id, whole(start + n)) for n, q in enumerate(questions)])
    steps = trajectories.steps_of(tmp_path)
    told = history(tmp_path)
    assert [step["candidate"] for step in steps] == list(told.candidates)
    child = next(step for step in steps if step["parents"])
    parent = told.candidates[child["parents"][0]]
    assert child["parent_source"] == parent.source
    assert child["gain"] == pytest.approx(child["speedup"] / parent.fitness)
    assert child["answer"] == whole(mark_of(child["source"]))
    assert TASK.source in child["prompt"]
    gaining = [s for s in steps if trajectories.is_wanted(s, 1.01, prompts_only=True)]
    assert all(step["gain"] >= 1.01 for step in gaining)
    assert {frozenset(step) for step in [*steps, _lost()]} == {frozenset(child)}


def _lost() -> dict[str, Any]:
    call = ModelCall(model="m", role="seed", prompt="p", reply="r", outcome="refused", seconds=0)
    extra = dict.fromkeys(("run", "task", "task_key", "reference", "track", "precision"))
    return {**extra, **trajectories._lost(call)}


def damaged(folder: Path, line: str) -> Path:
    go_on(folder)
    with open(folder / "journal.jsonl", "a") as file:
        file.write(line + "\n")
    return folder


@pytest.mark.parametrize(
    "line",
    [
        '{"record": "note", "kind": "request", "payload": {"id": 1}}',
        '{"record": "note"}',
        '{"record": "together"}',
        '{"record": "together", "records": [1]}',
        '{"record": "x", "a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_a_damaged_journal_is_said_to_be_one(tmp_path: Path, line: str) -> None:
    folder = str(damaged(tmp_path, line))
    for command in (
        ["brief", folder],
        ["export", folder, folder + "/o"],
        ["batch", "export", folder],
    ):
        answer = CliRunner().invoke(app, command)
        assert answer.exception is None or isinstance(answer.exception, SystemExit), command
        assert answer.exit_code in (0, 2)


@pytest.mark.parametrize("made", ["file", "folder", "nothing"])
def test_a_folder_without_a_run_is_wrong_usage(tmp_path: Path, made: str) -> None:
    path, kernel = tmp_path / "journal.jsonl", tmp_path / "kernel.py"
    kernel.write_text(source(1))
    if made == "file":
        path.write_text("")
    elif made == "folder":
        path.mkdir()
    for command in (
        ["brief", str(tmp_path)],
        ["export", str(tmp_path), str(tmp_path / "o")],
        ["batch", "export", str(tmp_path)],
        ["batch", "import", str(tmp_path), str(kernel)],
        ["submit", str(tmp_path), str(kernel), "--author", "ada"],
    ):
        answer = CliRunner().invoke(app, command)
        assert (answer.exit_code, "give the --out folder of one" in answer.output) == (2, True)


def test_a_file_that_cannot_be_written_is_wrong_usage(tmp_path: Path) -> None:
    go_on(tmp_path)
    absent = str(tmp_path / "absent" / "file")
    for command in (
        ["export", str(tmp_path), absent],
        ["batch", "export", str(tmp_path), "--to", absent],
    ):
        answer = CliRunner().invoke(app, command)
        assert (answer.exit_code, "cannot write" in answer.output) == (2, True)


def test_a_kernel_is_submitted_to_what_the_run_has_and_once(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("# island: 2\n# author: eve\n" + source(99))

    def submit(*options: str) -> tuple[int, str]:
        given = ["submit", str(tmp_path), str(kernel), "--author", "ada\nfail()", *options]
        answer = CliRunner().invoke(app, given)
        return answer.exit_code, answer.output

    with Journal(tmp_path, spec(4)) as journal:
        journal.want(RunState.PAUSING)
        run(journal, FakePool(), sources=SOURCES)
    assert submit("--island", "9") == (2, "the run has no island 9; give --island 0 to 2\n")
    assert submit("--parent", "77")[0] == 2
    assert submit()[0] == 0
    with Journal(tmp_path, spec(4)) as journal:
        run(journal, FakePool(), sources=SOURCES)
        mine = next(c for c in journal.candidates() if mark_of(c.source) == 99)
    assert (mine.origin, mine.island) == ("person:ada fail", 0)
    code, told = submit()
    assert (code, "has taken this kernel already" in told) == (2, True)


def test_whatever_lies_in_the_inbox_the_run_goes_on(tmp_path: Path) -> None:
    box = tmp_path / "inbox"
    box.mkdir()
    (tmp_path / "elsewhere.py").write_text(source(99))
    (box / "link.py").symlink_to(tmp_path / "elsewhere.py")
    (box / "dangling.py").symlink_to(tmp_path / "absent.py")
    (box / "folder.py").mkdir()
    os.mkfifo(box / "pipe.py")
    (box / "bytes.py").write_bytes(b"class ModelNew: ...\n# \xff")
    (box / "large.py").write_text("#" * 1_000_000)
    with Journal(tmp_path, spec(3)) as journal:
        assert journal.injected() == []
    refused = {path.name for path in (box / "refused").iterdir() if path.suffix == ".txt"}
    assert refused == {f"{n}.txt" for n in "link dangling folder pipe bytes large".split()}
    assert "ordinary file" in (box / "refused" / "pipe.txt").read_text()


def test_an_inbox_that_cannot_be_sorted_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "refused").write_text("in the way")
    (tmp_path / "inbox" / "broken.py").write_text("def f(:\n")
    with Journal(tmp_path, spec(3)) as journal:
        assert journal.injected() == []


def test_answers_may_hold_any_character(tmp_path: Path) -> None:
    """JSON allows line separators within strings, and halves of characters."""
    go_on(tmp_path)
    a, b, _ = (question.id for question in batch.pending(tmp_path))
    odd = whole(1).replace("mark 1", "one\u2028line\x85or \x0ctwo")
    half = '"MOVE: half \\ud800\\n' + json.dumps(whole(2).partition("\n")[2])[1:]
    path = tmp_path / "answers.jsonl"
    lines = [
        json.dumps({"custom_id": a, "content": odd}, ensure_ascii=False),
        f'{{"custom_id": "{b}", "content": {half}}}',
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    with Journal(tmp_path, WITH_MODEL) as journal:
        imported = batch.take_answers(journal, batch.lines_of(path.read_text(encoding="utf-8")))
    assert (imported.taken, imported.problems) == (2, [])
    moves = {candidate.move for candidate in _candidates_after(tmp_path)}
    assert any(move.startswith("half") for move in moves)
