"""Runs with a model, against a real endpoint on the loopback interface: first candidates, steps, and its failures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_runner import drafting
from gpu_runner.core.entries import Entry, EntryContent, EntryKind, EntryState, When
from gpu_runner.core.task import Budget, RunSpec, best_of_10
from gpu_runner.core.verdicts import RunState
from gpu_runner.driver import run
from gpu_runner.evolution.types import Operator
from gpu_runner.journal import Journal
from gpu_runner.proposals.models import Models, Profile, Profiles, outage
from gpu_runner.sources import Sources
from tests.evolution.making import source
from tests.proposals.endpoint import Script, completion, says, sends, serve
from tests.test_driver import SOURCES, TASK, FakePool

NOTHING = Sources({}, {})


def models(folder: Path, url: str, **more: float | str) -> Models:
    path = folder / "models.toml"
    path.write_text(
        f'[profiles.local]\nbase_url = "{url}"\nmodel = "m"\nretries = 0\ntimeout_s = 10\n'
        "usd_per_million_in = 1000\nusd_per_million_out = 1000\n"
        + "".join(f"{name} = {value}\n" for name, value in more.items())
    )
    return Models.load(path)


def spec(**more: Any) -> RunSpec:
    fields = {"task": TASK, "seed": 3, "model": "local", "budget": Budget(evaluations=6)}
    return RunSpec(**(fields | more))


def answers() -> Script:
    """Each time another whole file."""
    count = iter(range(1, 1000))
    return lambda handler, request: says(whole_file(next(count)))(handler, request)


def test_a_model_alone_fills_the_islands_and_improves(tmp_path: Path) -> None:
    with serve(answers()) as endpoint, Journal(tmp_path, spec()) as journal:
        result = run(journal, FakePool(), models=models(tmp_path, endpoint.url), sources=NOTHING)
        candidates = journal.candidates()
    assert result.state is RunState.FINISHED
    assert sorted(candidate.island for candidate in candidates[:3]) == [0, 1, 2]  # as answers come
    assert {candidate.origin for candidate in candidates} == {"model:local"}
    assert max(candidate.generation for candidate in candidates) >= 1
    assert result.spent["evaluations"] == 6
    assert result.spent["tokens"] == 120 * len(endpoint.requests)
    assert result.spent["money_usd"] == pytest.approx(0.12 * len(endpoint.requests))
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    calls = [line for line in lines if '"record": "model_call"' in line]
    assert len(calls) == len(endpoint.requests)
    assert '"candidate_id": 1' in calls[0]


@pytest.mark.parametrize(
    ("limit", "words"),
    [({"tokens": 7_000}, "budget: 7000 tokens"), ({"money_usd": 7.0}, "budget: 7 US dollars")],
)
def test_a_budget_is_looked_at_before_it_is_spent(
    tmp_path: Path, limit: dict[str, Any], words: str
) -> None:
    """Each answer is charged at its limit of 2,000 tokens until its real 120 are known."""
    budget = Budget(evaluations=100, **limit)
    with serve(answers()) as endpoint, Journal(tmp_path, spec(budget=budget)) as journal:
        profiles = models(tmp_path, endpoint.url, max_tokens=2_000)
        result = run(journal, FakePool(), models=profiles, sources=NOTHING)
    assert result.stop_reason.startswith(words)
    ((name, most),) = limit.items()
    assert most / 3 < result.spent[name] <= most
    assert result.spent["tokens"] == 120 * len(endpoint.requests)


def test_a_run_waits_for_its_model_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE_S", 0.2)
    down = sends(b"{}", 503)
    with serve(down, answers()) as endpoint, Journal(tmp_path, spec(islands=1)) as journal:
        profiles = models(tmp_path, endpoint.url)
        result = run(journal, FakePool(), models=profiles, sources=NOTHING)
        log = [note["text"] for note in journal.notes("log")]
    assert result.stop_reason == "budget: 6 evaluations"
    assert "it is tried again in 0 s" in log[0]


def test_a_model_that_stays_away_ends_a_run_that_has_nothing_else(tmp_path: Path) -> None:
    with serve(sends(b"{}", 503)) as endpoint, Journal(tmp_path, spec()) as journal:
        profiles = models(tmp_path, endpoint.url, outage_s=0)
        result = run(journal, FakePool(), models=profiles, sources=NOTHING)
    assert result.stop_reason == "model local did not answer for 0 s"


def test_a_run_goes_on_without_a_model_that_is_gone(tmp_path: Path) -> None:
    with (
        serve(sends(b"{}", 500)) as endpoint,
        Journal(tmp_path, spec(budget=Budget(evaluations=12))) as journal,
    ):
        result = run(journal, FakePool(), models=models(tmp_path, endpoint.url), sources=SOURCES)
        log = [note["text"] for note in journal.notes("log")]
    assert result.spent["evaluations"] == 12
    assert any("model local, unreachable: the endpoint answered 500" in text for text in log)
    assert len(endpoint.requests) <= 4


def test_an_unknown_profile_fails_the_run_with_the_reason(tmp_path: Path) -> None:
    with Journal(tmp_path, spec()) as journal:
        result = run(journal, FakePool(), sources=SOURCES)
    assert (result.state, result.best) == (RunState.FAILED, None)
    assert "unknown model 'local'" in result.stop_reason


def test_entries_are_shown_recorded_and_left_out_of_a_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafting, "MODEL_OPERATORS", frozenset({Operator.IMPROVE}))
    entry = Entry(
        id="E1",
        state=EntryState.APPROVED,
        content=EntryContent(
            kind=EntryKind.TECHNIQUE, title="softmax in one pass", when=When(), action="fuse"
        ),
    )
    first = Sources(SOURCES.initialisers, {})
    with (
        serve(answers()) as endpoint,
        Journal(tmp_path, spec(budget=Budget(evaluations=24))) as journal,
    ):
        run(
            journal,
            FakePool(),
            models=models(tmp_path, endpoint.url),
            library=[entry],
            sources=first,
        )
        improved = [c for c in journal.candidates() if c.parents]
    assert {candidate.arm for candidate in improved} >= {"with", "without", "without:E1"}
    for candidate in improved:
        is_shown = candidate.arm in ("with", "unpaired")
        assert candidate.entries == (("E1",) if is_shown else ())
    shown = [
        "[E1] softmax in one pass" in request["messages"][1]["content"]
        for request in endpoint.requests
    ]
    assert shown.count(True) >= sum(c.arm == "with" for c in improved) > 0


def test_a_demonstration_is_a_first_candidate(tmp_path: Path) -> None:
    entry = Entry(
        id="D1",
        state=EntryState.APPROVED,
        content=EntryContent(
            kind=EntryKind.DEMONSTRATION,
            title="softmax",
            when=When(operators=("softmax",)),
            action="start from it",
            after=source(42),
        ),
    )

    class Traced(FakePool):
        def inspect(self, task: Any) -> Any:
            nodes = [{"name": "y", "kind": "call", "op": "aten.softmax.int"}]
            return super().inspect(task).model_copy(update={"graph": {"nodes": nodes}})

    with Journal(tmp_path, spec(model=None)) as journal:
        run(journal, Traced(), library=[entry], sources=NOTHING)
        (first,) = journal.candidates()
    assert (first.origin, first.source) == ("retrieval:D1", source(42))
    other = tmp_path / "without"
    with Journal(other, spec(model=None, use_library=False)) as journal:
        run(journal, Traced(), library=[entry], sources=NOTHING)
        assert journal.candidates() == []


CANARY = "canary-9f31c7-that-nobody-may-see"


def test_a_key_is_nowhere_but_in_the_request(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The endpoint echoes it in an answer, in an error and in a candidate; the run's folder, logs and output are searched."""
    echo = f"MOVE: {CANARY}\n```python\n{source(1)}# {CANARY}\n```"
    wrong = sends(f'{{"error": {{"message": "bad key {CANARY}"}}}}'.encode(), 401)
    seen: list[str] = []

    class Watching(FakePool):
        def evaluate(self, task: Any, source: str, **more: Any) -> Any:
            seen.append(source)
            return super().evaluate(task, source, **more)

    with serve(says(echo), wrong) as endpoint:
        profile = Profile(base_url=endpoint.url, model="m", key="FOUNDRY_MODEL_KEY_C", retries=0)
        profiles = Models(Profiles(profiles={"local": profile}), {"FOUNDRY_MODEL_KEY_C": CANARY})
        with caplog.at_level("DEBUG"), Journal(tmp_path / "run", spec()) as journal:
            run(journal, Watching(), models=profiles, sources=NOTHING)
        assert endpoint.headers[0]["authorization"] == f"Bearer {CANARY}"
    assert seen, "nothing was evaluated, so nothing was tested"
    kept = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert kept
    told = capfd.readouterr()
    places = [*kept, caplog.text.encode(), *(text.encode() for text in (told.out, told.err, *seen))]
    assert not any(CANARY.encode() in place for place in places)


@pytest.mark.parametrize("repeats", [answers, lambda: says("no"), lambda: says(whole_file(1))])
def test_direct_generation_is_ten_answers_whatever_they_are(
    tmp_path: Path, repeats: Callable[[], Script]
) -> None:
    direct = best_of_10(spec())
    with serve(repeats()) as endpoint, Journal(tmp_path, direct) as journal:
        result = run(journal, FakePool(), models=models(tmp_path, endpoint.url), sources=SOURCES)
        candidates = journal.candidates()
    assert result.stop_reason in ("budget: 10 evaluations", "budget: 10 iterations")
    assert result.spent["iterations"] == 10
    assert all(candidate.parents == () for candidate in candidates)
    assert {candidate.origin for candidate in candidates} <= {"model:local"}
    # The reference alone: nothing of what was found before is told.
    first, *others = (r["messages"] for r in endpoint.requests if len(r["messages"]) == 2)
    assert [other[1]["content"] for other in others] == [first[1]["content"]] * 9


def whole_file(mark: int) -> str:
    return f"MOVE: try\n```python\n{source(mark)}```"


def test_half_a_character_of_a_model_does_not_end_the_run(tmp_path: Path) -> None:
    half = json.dumps(completion(whole_file(1).replace("try", "a\ud800b"))).encode()
    once = spec(budget=Budget(evaluations=1))
    with serve(sends(half)) as endpoint, Journal(tmp_path, once) as journal:
        run(journal, FakePool(), models=models(tmp_path, endpoint.url), sources=NOTHING)
        (candidate,) = journal.candidates()
    assert candidate.move == "a?b"
