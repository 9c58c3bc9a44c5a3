"""What the runner does for the library while no run waits, in a real database with a scripted pool."""

from typing import Any

import pytest

from evolution_app.models import AuditEvent, Evidence, ExperienceEntry, Task
from evolution_app.services import distilling
from evolution_app.services.entries import add_version
from gpu_runner.core.entries import EntryContent, EntryKind, EntryState
from gpu_runner.core.task import TaskSpec
from gpu_runner.evaluation.errors import ChildCrashed, InvalidTask
from gpu_runner.verifying import work_on_library
from tests.experience.test_verification import OTHER, OWN, Scripted, outcomes

pytestmark = pytest.mark.django_db


class Pool(Scripted):
    """With a device, as the runner's pool has one."""

    class device:
        kind = "cpu"


def entry(
    note: str = "nominated", state: EntryState = EntryState.NOMINATED, **more: Any
) -> ExperienceEntry:
    fields = {"before": "slow", "after": "fast", "task": OWN.source} | more
    content = EntryContent(kind=EntryKind.TECHNIQUE, title="own", action="do it", **fields)
    row = ExperienceEntry.objects.create(state=state, visibility="public")
    add_version(row, content, None, note=note)
    return row


def never() -> bool:
    return False


@pytest.fixture(autouse=True)
def _no_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evolution_app.services.verification.other_tasks", lambda entry: [OTHER])


def test_without_work_nothing_is_done() -> None:
    assert not work_on_library(Pool({}), never)


def test_a_nomination_that_holds_is_verified_and_both_results_are_kept() -> None:
    row = entry()
    assert work_on_library(Pool(outcomes(own=(10.0, 5.0), other=(8.0, 4.0))), never)

    row.refresh_from_db()
    assert row.state == EntryState.VERIFIED
    assert [e.ratio for e in row.evidence.all()] == [2.0, 2.0]
    assert {e.role for e in row.evidence.all()} == {Evidence.Role.VERIFICATION}
    assert not work_on_library(Pool({}), never)


def test_a_nomination_that_fails_says_why_and_goes_back_to_its_author() -> None:
    row = entry()
    work_on_library(Pool(outcomes(own=(10.0, "incorrect/values"))), never)

    row.refresh_from_db()
    assert row.state == EntryState.DRAFT
    told = AuditEvent.objects.about(row).get(verb="entry.not_verified")
    assert "incorrect/values: half of it is wrong" in str(vars(told))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InvalidTask("no Model"), "its own task cannot be used: no Model"),
        (ChildCrashed("killed"), "the evaluator failed: killed; submit the entry again"),
    ],
)
def test_what_cannot_be_run_does_not_block_the_queue(error: Exception, reason: str) -> None:
    row = entry()

    class Broken(Pool):
        def evaluate(self, task: TaskSpec, source: str) -> Any:
            raise error

    assert work_on_library(Broken({}), never)
    row.refresh_from_db()
    assert row.state == EntryState.DRAFT
    assert reason in str(vars(AuditEvent.objects.about(row).get(verb="entry.not_verified")))
    assert not work_on_library(Broken({}), never)


def test_an_edit_meanwhile_leaves_the_newer_version_waiting() -> None:
    row = entry()

    class Edited(Pool):
        def evaluate(self, task: TaskSpec, source: str) -> Any:
            fresh = ExperienceEntry.objects.get(pk=row.pk)
            add_version(fresh, fresh.content, None, note="edited")
            return super().evaluate(task, source)

    assert work_on_library(Edited(outcomes(own=(10.0, 5.0), other=(8.0, 4.0))), never)
    row.refresh_from_db()
    assert row.state == EntryState.NOMINATED
    assert not row.evidence.exists()


def test_a_draft_of_a_run_is_reduced_once_and_nominated(task: Task) -> None:
    row = entry(
        note=distilling.DISTILLED,
        state=EntryState.DRAFT,
        before="a\nb\nc\nd\n",
        after="A\nb\nC\nd\n",
    )
    ExperienceEntry.objects.filter(pk=row.pk).update(task=task)
    pool = Pool(
        {
            ("own", "a\nb\nc\nd\n"): 10.0,
            ("own", "A\nb\nC\nd\n"): 5.0,
            ("own", "A\nb\nc\nd\n"): 10.0,
            ("own", "a\nb\nC\nd\n"): 5.0,
        }
    )
    assert work_on_library(pool, never)
    row.refresh_from_db()
    assert (row.state, row.content.after) == (EntryState.NOMINATED, "a\nb\nC\nd\n")
    assert row.current is not None
    assert row.current.note == "reduced to what the gain rests on"
    assert distilling.next_draft() is None
