import json
from typing import Any

import pytest
from django.test import Client

from evolution_app import services
from evolution_app.models import ApiToken, ExperienceEntry, Run, Task, User
from gpu_runner.core.contract import check_candidate
from gpu_runner.core.entries import EntryState
from gpu_runner.core.verdicts import RunState
from tests.web import samples

pytestmark = [pytest.mark.django_db, pytest.mark.rerun]


class Program:
    """A client with a bearer token."""

    def __init__(self, user: User | None) -> None:
        self.client = Client()
        token = ApiToken.objects.issue(user, "test") if user else "nothing"
        self.headers = {"authorization": f"Bearer {token}"}

    def get(self, path: str) -> Any:
        return self.client.get(f"/api/v1{path}", headers=self.headers)

    def post(self, path: str, body: Any = None) -> Any:
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        return self.client.post(
            f"/api/v1{path}", text, content_type="application/json", headers=self.headers
        )


@pytest.fixture
def finished(run: Run) -> Run:
    ledger = samples.claim(run)
    ledger.add(samples.proposal(1))
    ledger.add(samples.proposal(2, parents=(1,), generation=1))
    ledger.finish(1, samples.wrong())
    ledger.finish(2, samples.correct(2.0))
    ledger.note("best", {"candidate_id": 2, "island": 0, "generation": 1, "fitness": 2.0})
    ledger.note("result", {"stop_reason": "budget", "best": {"candidate_id": 2}})
    ledger.set_state(RunState.FINISHED, "budget")
    return run


def test_a_task_is_submitted_and_its_run_started_in_one_call(owner: User) -> None:
    body = {
        "name": "double",
        "source": samples.TASK,
        "run": {"seed": 7, "budget": {"evaluations": 5}},
    }
    answer = Program(owner).post("/tasks", body)
    assert answer.status_code == 201
    run = Run.objects.get(pk=answer.json()["run"]["id"])
    assert (run.spec().seed, run.budget["evaluations"], run.state) == (7, 5, RunState.QUEUED)


def test_a_byte_order_mark_in_front_of_a_source_is_dropped(owner: User) -> None:
    answer = Program(owner).post("/tasks", {"name": "x", "source": "\ufeff" + samples.TASK})
    assert answer.status_code == 201
    assert Task.objects.get().source.text == samples.TASK


def test_a_source_that_is_no_task_is_answered_with_its_lines(owner: User) -> None:
    answer = Program(owner).post("/tasks", {"name": "bad", "source": "def f(:\n"})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["line"] == 1
    assert not Task.objects.exists()


@pytest.mark.parametrize("field", ["owner", "suite", "key", "report"])
def test_fields_that_are_not_the_submitters_are_refused(owner: User, field: str) -> None:
    body = {"name": "x", "source": samples.TASK, field: "1"}
    assert Program(owner).post("/tasks", body).status_code == 422


def test_a_viewer_is_told_that_it_may_not(viewer: User) -> None:
    answer = Program(viewer).post("/tasks", {"name": "x", "source": samples.TASK})
    assert answer.status_code == 403


PATHS = (
    "/tasks/{task}",
    "/runs/{run}",
    "/runs/{run}/candidates",
    "/runs/{run}/candidates/2",
    "/runs/{run}/candidates/2/source",
    "/runs/{run}/best",
    "/runs/{run}/events",
)


@pytest.mark.parametrize("path", PATHS)
def test_what_one_may_not_see_is_404_and_without_a_token_401(
    finished: Run, owner: User, other: User, path: str
) -> None:
    address = path.format(task=finished.task_id, run=finished.pk)
    assert Program(owner).get(address).status_code == 200
    assert Program(other).get(address).status_code == 404
    assert Program(None).get(address).status_code == 401


@pytest.mark.parametrize("action", ["pause", "resume", "stop", "cancel"])
def test_others_do_not_steer(run: Run, owner: User, other: User, action: str) -> None:
    address = f"/runs/{run.pk}/steer/{action}"
    assert Program(other).post(address).status_code == 404
    services.share_task(task=run.task, by=owner, visibility="public")
    assert Program(other).post(address).status_code == 403
    run.refresh_from_db()
    assert run.state == RunState.QUEUED


def test_lists_hold_what_one_sees(finished: Run, owner: User, other: User) -> None:
    assert Program(owner).get("/runs").json()["count"] == 1
    assert Program(other).get("/runs").json() == {"count": 0, "items": []}
    assert Program(other).get("/tasks").json()["count"] == 0


def test_the_result_is_that_of_the_run(finished: Run, owner: User) -> None:
    answer = Program(owner).get(f"/runs/{finished.pk}").json()
    assert (answer["best"]["candidate_id"], answer["best"]["speedup"]) == (2, 2.0)
    assert answer["result"]["stop_reason"] == "budget"
    candidate = Program(owner).get(f"/runs/{finished.pk}/candidates/2").json()
    assert candidate["evaluation"]["verdict"] == "correct"
    assert candidate["parents"] == [1]


def test_the_download_is_a_candidate_under_what_was_verified(finished: Run, owner: User) -> None:
    answer = Program(owner).get(f"/runs/{finished.pk}/best")
    text = answer.content.decode()
    assert "attachment" in answer["Content-Disposition"]
    assert "correct" in text.split("import torch")[0]
    assert "modelled" in text.split("import torch")[0]
    assert check_candidate(text) is None


def test_a_session_needs_its_csrf_token(finished: Run, owner: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    assert client.get("/api/v1/runs").status_code == 200
    body = json.dumps({"name": "x", "source": samples.TASK})
    answer = client.post("/api/v1/tasks", body, content_type="application/json")
    assert answer.status_code == 403
    assert Task.objects.count() == 1


def test_a_revoked_token_signs_nobody_in(run: Run, owner: User) -> None:
    program = Program(owner)
    services.revoke_api_token(token_id=ApiToken.objects.get().pk, by=owner)
    assert program.get("/runs").status_code == 401


def test_an_exported_library_is_imported_elsewhere(
    finished: Run, owner: User, expert: User
) -> None:
    services.share_task(task=finished.task, by=owner, visibility="shared")
    entry = services.nominate_entry(
        candidate=finished.candidates.get(number=2), by=owner, content=samples.LESSON
    )
    services.approve_entry(entry=entry, by=expert, version=1, waiver="a test")
    exported = Program(expert).get("/library/export").content.decode()
    head, line = exported.splitlines()
    assert json.loads(head) == {"schema": "kernel-foundry/entries", "version": 3}
    assert json.loads(line)["uid"] == entry.uid

    # To another installation the entry is unknown: here it is one with another uid.
    exported = exported.replace(entry.uid, "f" * 32)
    program = Program(expert)
    assert program.post("/library/import?dry_run=true", exported).json()["lines"] == [
        {"line": 2, "outcome": "new", "uid": "f" * 32, "problem": None}
    ]
    assert ExperienceEntry.objects.count() == 1
    assert program.post("/library/import", exported).json()["imported"] == 1
    assert program.post("/library/import", exported).json()["imported"] == 0
    imported = ExperienceEntry.objects.get(uid="f" * 32)
    assert (imported.state, imported.content) == (EntryState.NOMINATED, samples.LESSON)


def test_an_import_of_other_bytes_than_text_is_refused_with_the_line(expert: User) -> None:
    good = json.dumps({"uid": "0" * 32, "content": samples.LESSON.model_dump(mode="json")})
    answer = Program(expert).post("/library/import", good.encode() + b"\n\xe9\n")
    assert answer.status_code == 422
    assert "line 2 is not UTF-8 text" in answer.content.decode()
    assert not ExperienceEntry.objects.exists()


def test_an_import_with_a_bad_line_changes_nothing(expert: User) -> None:
    good = json.dumps({"uid": "0" * 32, "content": samples.LESSON.model_dump(mode="json")})
    answer = Program(expert).post("/library/import", f"{good}\n{{}}\n").json()
    assert (answer["imported"], answer["usable"]) == (0, False)
    assert [line["outcome"] for line in answer["lines"]] == ["new", "unusable"]
    assert "uid" in answer["lines"][1]["problem"]
    assert not ExperienceEntry.objects.exists()


def test_an_agent_reads_what_to_beat_and_submits_under_its_name(
    finished: Run, owner: User, other: User
) -> None:
    agent = Program(owner)
    running = samples.run(finished.task, owner)
    store = samples.claim(running, samples.runner("there:1"))
    first = store.add(samples.proposal(1))
    store.finish(first.id, samples.correct(1.5))
    second = store.add(samples.proposal(2))
    store.finish(second.id, samples.wrong())

    brief = agent.get(f"/runs/{running.pk}/brief").json()
    assert brief["task"]["source"] == samples.TASK
    assert [(b["candidate_id"], b["speedup"]) for b in brief["best"]] == [(1, 1.5)]
    assert brief["best"][0]["source"] == first.source
    assert [(f["candidate_id"], f["why"]) for f in brief["failed"]] == [(2, "wrong at the tail")]

    new = {"source": f"# 3\n{samples.KERNEL}", "island": 2, "parent": 1, "agent": "coder"}
    assert Program(other).post(f"/runs/{running.pk}/submissions", new).status_code == 404
    sent = agent.post(f"/runs/{running.pk}/submissions", new)
    assert (sent.status_code, sent.json()["state"]) == (202, "waiting")
    [proposal] = store.injected()
    assert (proposal.origin, proposal.parents) == ("person:olga by coder", (1,))
    store.add(proposal)
    asked = agent.get(f"/runs/{running.pk}/submissions/{sent.json()['id']}").json()
    assert (asked["candidate_id"], asked["state"], asked["agent"]) == (3, "queued", "coder")
    bad = agent.post(f"/runs/{running.pk}/submissions", {"source": "x = 1"})
    assert (bad.status_code, bad.json()["problems"][0]["message"][:7]) == (422, "defines")


def test_the_description_is_served_and_nothing_from_elsewhere(client: Client) -> None:
    answer = client.get("/api/v1/openapi.json")
    assert "/api/v1/tasks" in answer.json()["paths"]
    assert client.get("/api/v1/docs").status_code == 404
