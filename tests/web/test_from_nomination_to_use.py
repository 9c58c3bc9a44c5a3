"""The way of a lesson: a run nominates it, execution verifies it, an expert approves it, a run on another task uses it."""

import re
from pathlib import Path
from typing import Any

import pytest

from evolution_app import services
from evolution_app.models import Candidate, ExperienceEntry, Run, User
from gpu_runner import driver, store
from gpu_runner.core.entries import EntryKind, EntryState
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.task import Budget, TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Verdict
from gpu_runner.sources import Sources
from gpu_runner.store import Store
from gpu_runner.verifying import work_on_library
from tests.evolution.making import evaluation
from tests.proposals.endpoint import serve
from tests.test_driver import SOURCES, FakePool
from tests.test_driver_models import NOTHING, answers, models
from tests.web import samples

pytestmark = pytest.mark.django_db


class Pool(FakePool):
    """Every task is a softmax; sources are the faster the longer their mark, and without a mark they are wrong."""

    def inspect(self, task: TaskSpec) -> TaskReport:
        nodes = [{"name": "y", "kind": "call", "op": "aten.softmax.int"}]
        return super().inspect(task).model_copy(update={"graph": {"nodes": nodes}})

    def evaluate(self, task: TaskSpec, source: str, **_: Any) -> Evaluation:
        mark = re.search(r"^MARK = (\d+)$", source, re.MULTILINE)
        if mark is None:
            return evaluation(verdict=Verdict.INCORRECT, kind="values")
        return evaluation(float(len(mark[1])))


def driven(run: Run, name: str, sources: Sources = SOURCES, **options: Any) -> Store:
    claim = samples.claim(run, samples.runner(name))
    driver.run(claim, Pool(), sources=sources, library=store.library_for(run.pk), **options)
    return claim


@pytest.fixture
def nomination(owner: User) -> ExperienceEntry:
    """What a run of one person has learned, after execution has spoken."""
    task = samples.task(owner, visibility="shared")
    run = samples.run(task, owner, budget=Budget(evaluations=8))
    driven(run, "first:1")
    assert ExperienceEntry.objects.filter(state=EntryState.DRAFT, nominated_by=None).exists()
    while work_on_library(Pool(), lambda: False):
        pass
    entry = ExperienceEntry.objects.filter(state=EntryState.VERIFIED).earliest("id")
    assert {evidence.role for evidence in entry.evidence.all()} == {"nomination", "verification"}
    return entry


def other_run(other: User, **options: Any) -> Run:
    """A run of somebody else on another task."""
    task = services.submit_task(
        owner=other, name="another", source=samples.TASK.replace("x * 2", "x * 3")
    )
    return services.start_run(task=task, by=other, seed=1, **options)


def test_a_lesson_becomes_a_first_candidate_elsewhere_without_a_model(
    nomination: ExperienceEntry, owner: User, expert: User, other: User
) -> None:
    whole = nomination.content.model_copy(update={"kind": EntryKind.DEMONSTRATION})
    version = nomination.current.number if nomination.current else 0
    services.approve_entry(entry=nomination, by=expert, version=version, content=whole)

    unseen = other_run(other, budget=Budget(evaluations=2))
    driven(unseen, "second:1", NOTHING)
    assert not unseen.candidates.exists()

    services.share_entry(entry=nomination, by=owner, visibility="public")
    run = other_run(other, budget=Budget(evaluations=2))
    driven(run, "third:1", NOTHING)
    candidate = Candidate.objects.get(run=run, number=1)
    assert candidate.source.text.strip() == whole.after.strip()
    use = candidate.entry_uses.get()
    assert (use.entry, use.version.number, use.rank) == (nomination, version + 1, 1)


@pytest.mark.exam
@pytest.mark.django_db(transaction=True)
def test_a_model_is_told_the_lesson_on_another_task_and_the_use_is_recorded(
    nomination: ExperienceEntry, owner: User, expert: User, other: User, tmp_path: Path
) -> None:
    """Rows are committed: the model is asked, and its answers are kept, in threads of their own."""
    version = nomination.current.number if nomination.current else 0
    services.approve_entry(entry=nomination, by=expert, version=version)
    services.share_entry(entry=nomination, by=owner, visibility="public")

    run = other_run(other, model="local", budget=Budget(evaluations=16))
    first = Sources(SOURCES.initialisers, {})
    with serve(answers()) as endpoint:
        driven(run, "second:1", first, models=models(tmp_path, endpoint.url))

    told = [request["messages"][1]["content"] for request in endpoint.requests]
    assert any(nomination.content.title in prompt for prompt in told)
    uses = {use.candidate: use for use in nomination.uses.filter(candidate__run=run)}
    assert uses
    assert {use.version.number for use in uses.values()} == {version}
    for candidate in run.candidates.filter(origin="model:local").prefetch_related("model_calls"):
        calls = candidate.model_calls.all()
        was_told = any(nomination.content.title in call.prompt for call in calls)
        assert was_told == (candidate in uses), candidate
