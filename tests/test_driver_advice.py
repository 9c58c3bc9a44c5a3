"""Runs whose models also plan, put lessons into words and order entries; and runs with several models."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpu_runner import drafting
from gpu_runner.core.entries import Entry, EntryContent, EntryKind, EntryState
from gpu_runner.core.ledger import ModelCall
from gpu_runner.core.task import Budget, RunSpec
from gpu_runner.core.verdicts import RunState
from gpu_runner.driver import run
from gpu_runner.evolution import replay
from gpu_runner.evolution.types import Operator, Settings
from gpu_runner.journal import Journal, history
from gpu_runner.proposals.models import Models
from gpu_runner.sources import Sources
from tests.evolution.making import source
from tests.proposals.endpoint import Script, says, sends, serve
from tests.test_driver import SOURCES, FakePool
from tests.test_driver_models import NOTHING, spec

WRITING = '"initialiser", "optimiser", "repairer"'
PLANNER, SUMMARISER, RERANKER = "You keep the plan", "Write down what others", "Put these lessons"


def models(folder: Path, url: str, **roles: str) -> Models:
    """A profile for each name, whose model has that name as well."""
    path = folder / "models.toml"
    path.write_text(
        "".join(
            f'[profiles.{name}]\nbase_url = "{url}"\nmodel = "{name}"\nretries = 0\ntimeout_s = 10\n'
            f"usd_per_million_in = 1000\nusd_per_million_out = 1000\nroles = [{played}]\n"
            for name, played in roles.items()
        )
    )
    return Models.load(path)


class Scripted:
    """Writes another kernel each time; gives advice by what it is asked."""

    def __init__(self, **advice: Any) -> None:
        self._advice = advice
        self._marks = iter(range(1, 1000))
        self.asked: list[str] = []

    @property
    def script(self) -> Script:
        def answer(handler: Any, request: dict[str, Any]) -> None:
            prompt = request["messages"][-1]["content"]
            for name, opening in (
                ("plan", PLANNER), ("summary", SUMMARISER), ("order", RERANKER),
            ):  # fmt: skip
                if opening in prompt:
                    self.asked.append(prompt)
                    given = self._advice[name]
                    told = given(prompt) if callable(given) else given
                    says(told if isinstance(told, str) else json.dumps(told))(handler, request)
                    return
            mark = next(self._marks)
            says(f"MOVE: number {mark}\n```python\n{source(mark)}```")(handler, request)

        return answer


def calls(folder: Path, role: str) -> list[ModelCall]:
    return [call for call in history(folder).calls if call.role == role]


def an_idea(prompt: str) -> dict[str, Any]:
    bases = [int(number) for number in re.findall(r"^Candidate (\d+)\.", prompt, re.MULTILINE)]
    still_open = [int(n) for n in re.findall(r"^(\d+)\. open", prompt, re.MULTILINE)]
    new = {
        "base": bases[0],
        "key": "split rows",
        "text": "Split the rows over programs.",
        "gain": 3,
        "difficulty": 0,
    }
    return {"add": [new], "drop": still_open}  # fmt: skip


def test_a_planner_edits_the_plan_and_its_ideas_are_tried(tmp_path: Path) -> None:
    scripted = Scripted(plan=an_idea)
    wanted = spec(budget=Budget(evaluations=20), model="w", more_models=("p",))
    with serve(scripted.script) as endpoint, Journal(tmp_path, wanted) as journal:
        known = models(tmp_path, endpoint.url, w=WRITING, p='"planner"')
        result = run(journal, FakePool(), models=known, sources=NOTHING)
        plan = {idea["id"]: idea for note in journal.notes("plan") for idea in note["ideas"]}
        kept = {candidate.id: candidate for candidate in journal.candidates()}
        again = replay.replay(
            3, kept, journal.notes("answer"), Settings(models=wanted.models)
        ).plan.ideas  # fmt: skip
    planned = [idea for idea in plan.values() if idea["origin"] == "planner"]
    assert planned[0]["text"] == "Split the rows over programs."
    assert any(idea["attempts"] for idea in planned)
    prompts = [request["messages"][-1]["content"] for request in endpoint.requests]
    assert any("Try this now:\nSplit the rows over programs." in prompt for prompt in prompts)
    assert {n: i.model_dump(mode="json") for n, i in again.items()} == plan
    asked = calls(tmp_path, "planner")
    assert {(call.model, call.outcome) for call in asked} == {("p", "ok")}
    assert len(asked) == len(scripted.asked) >= 2
    assert result.spent["tokens"] == 120 * len(endpoint.requests)
    assert result.spent["evaluations"] == 20


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("no plan today", "the answer is not one JSON object"),
        ({"add": [{"base": 999, "key": "k", "text": "t", "gain": 2, "difficulty": 0}]}, "no candidate 999"),
        ({"drop": [999]}, "idea 999 is not open"),
        ({"add": [{"base": 1, "key": "k", "text": "t", "gain": -2, "difficulty": 0}]}, "add.0.gain"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_used_is_paid_for_and_said(
    tmp_path: Path, plan: Any, words: str
) -> None:
    scripted = Scripted(plan=plan)
    with (
        serve(scripted.script) as endpoint,
        Journal(tmp_path, spec(budget=Budget(evaluations=12), model="m")) as journal,
    ):
        known = models(tmp_path, endpoint.url, m=f'{WRITING}, "planner"')
        result = run(journal, FakePool(), models=known, sources=NOTHING)
        log = [note["text"] for note in journal.notes("log")]
    assert result.state is RunState.FINISHED
    assert [call.outcome for call in calls(tmp_path, "planner")] == ["malformed"]
    assert any(words in text for text in log)
    assert result.spent["tokens"] == 120 * len(endpoint.requests)


def test_a_profile_that_names_no_roles_is_asked_for_code_only(tmp_path: Path) -> None:
    scripted = Scripted()
    with (
        serve(scripted.script) as endpoint,
        Journal(tmp_path, spec(budget=Budget(evaluations=14), model="m")) as journal,
    ):
        known = models(tmp_path, endpoint.url, m=WRITING)
        run(journal, FakePool(), models=known, sources=NOTHING)
        nominated = journal.notes("nomination")
    assert nominated
    assert not scripted.asked


def test_a_summariser_puts_a_lesson_into_words_that_are_marked_as_its_own(tmp_path: Path) -> None:
    words = {"title": "Give each program several rows", "action": "Loop.", "if_violated": ""}
    scripted = Scripted(summary=f"```json\n{json.dumps(words)}\n```")
    with (
        serve(scripted.script) as endpoint,
        Journal(tmp_path, spec(budget=Budget(evaluations=14), model="m")) as journal,
    ):
        known = models(tmp_path, endpoint.url, m=f'{WRITING}, "summariser"')
        run(journal, FakePool(), models=known, sources=NOTHING)
        nominated = [EntryContent.model_validate(n) for n in journal.notes("nomination")]
        told = [EntryContent.model_validate(n) for n in journal.notes("summary")]
    assert len(told) == len(nominated) == len(scripted.asked) > 0
    by_step = {content.provenance: content for content in nominated}
    for content in told:
        assert content == by_step[content.provenance].model_copy(
            update={**words, "by_model": ("title", "action")}
        )


def test_a_reranker_decides_which_lesson_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafting, "MODEL_OPERATORS", frozenset({Operator.IMPROVE}))
    library = [
        Entry(
            id=name,
            state=EntryState.APPROVED,
            content=EntryContent(kind=EntryKind.TECHNIQUE, title=title, action=action),
        )
        for name, title, action in (
            ("E1", "softmax in one pass", "fuse the reduction"),
            ("E2", "softmax with exp2", "scale the exponent"),
        )
    ]

    scripted = Scripted(order={"order": ["E2"]})
    first = Sources(SOURCES.initialisers, {})
    with (
        serve(scripted.script) as endpoint,
        Journal(tmp_path, spec(budget=Budget(evaluations=16), model="m")) as journal,
    ):
        known = models(tmp_path, endpoint.url, m=f'{WRITING}, "reranker"')
        result = run(journal, FakePool(), models=known, library=library, sources=first)
        improved = [c for c in journal.candidates() if c.arm == "with"]
    found = {re.findall(r"^\[(E\d)\]", prompt, re.MULTILINE)[0] for prompt in scripted.asked}
    assert "E1" in found
    assert {candidate.entries for candidate in improved} == {("E2", "E1")}
    assert len(calls(tmp_path, "reranker")) == len(scripted.asked)
    assert result.spent["tokens"] == 120 * len(endpoint.requests)


def test_islands_have_models_of_their_own_and_the_rest_is_shared_by_gain(tmp_path: Path) -> None:
    wanted = spec(budget=Budget(evaluations=24), model="a", more_models=("b",), islands=2)
    with serve(Scripted().script) as endpoint, Journal(tmp_path, wanted) as journal:
        known = models(tmp_path, endpoint.url, a=WRITING, b=WRITING)
        run(journal, FakePool(), models=known, sources=NOTHING)
        shares = journal.notes("shares")[-1]["ways"]
        candidates = journal.candidates()
    seeds = {c.island: c.origin for c in candidates if not c.parents}
    assert seeds == {0: "model:a", 1: "model:b"}
    assert {request["model"] for request in endpoint.requests} == {"a", "b"}
    tried = {way["model"]: way["tries"] for way in shares if way["operator"] == "improve"}
    assert min(tried.values()) > 0


def test_a_run_goes_on_with_the_model_that_answers(tmp_path: Path) -> None:
    scripted = Scripted().script

    def script(handler: Any, request: dict[str, Any]) -> None:
        (sends(b"{}", 503) if request["model"] == "b" else scripted)(handler, request)

    wanted = spec(budget=Budget(evaluations=8), model="a", more_models=("b",), islands=2)
    with serve(script) as endpoint, Journal(tmp_path, wanted) as journal:
        known = models(tmp_path, endpoint.url, a=WRITING, b=WRITING)
        result = run(journal, FakePool(), models=known, sources=NOTHING)
        origins = {candidate.origin for candidate in journal.candidates()}
    assert result.stop_reason == "budget: 8 evaluations"
    assert origins == {"model:a"}


def test_more_models_come_after_the_first() -> None:
    with pytest.raises(ValueError, match="name that one too"):
        RunSpec(task=spec().task, more_models=("b",))
    assert spec(model="a", more_models=("b", "a")).models == ("a", "b")
