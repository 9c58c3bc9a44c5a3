"""What people read when the service fails: its name, what to do, and the right status."""

import shutil
from typing import Any, NamedTuple

import pytest
from django.db import OperationalError, connection
from django.test import Client

from evolution_app.models import Task, User
from evolution_app.views.shell import banners
from tests.web import samples

pytestmark = pytest.mark.django_db

FORM = {
    "source": samples.TASK,
    "name": "a task",
    "track": "own_kernels",
    "precision": "reference",
    "target": "h200",
    "device": "auto",
    "method": "evolution",
    "islands": 3,
    "evaluations": 8,
    "visibility": "private",
}


def failing(message: str) -> Any:
    def execute(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("INSERT"):
            raise OperationalError(message)
        return run(sql, params, many, context)

    return connection.execute_wrapper(execute)


@pytest.fixture
def client(owner: User) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(owner)
    return client


@pytest.mark.parametrize(
    ("message", "status", "words"),
    [
        ("database or disk is full", 507, "The disk is full"),
        ('could not extend file "base/1": No space left on device', 507, "The disk is full"),
        ("database is locked", 500, "Something failed on our side"),
    ],
)
def test_a_page_names_a_full_disk(client: Client, message: str, status: int, words: str) -> None:
    with failing(message):
        answer = client.post("/tasks/new", FORM)
    assert answer.status_code == status
    assert f"<h1>{words}</h1>" in answer.content.decode()
    assert not Task.objects.exists()


def test_a_program_reads_it_as_json(client: Client) -> None:
    with failing("database or disk is full"):
        answer = client.post(
            "/api/v1/tasks",
            {"name": "a task", "source": samples.TASK},
            content_type="application/json",
        )
    assert answer.status_code == 507
    assert "Free some space" in answer.json()["detail"]


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_pages_warn_while_the_disk_is_full(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("the disk of a database server is not ours to watch")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(9, 9, 5_000_000))
    first, *_ = banners()
    assert (first.level, first.text[:25]) == ("bad", "The disk is full (5 MB ar")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(9, 9, 5_000_000_000))
    assert not any("disk" in banner.text for banner in banners())
