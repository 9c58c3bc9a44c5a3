"""What the tests need of the outside: a database of their own, and a word on what they run against."""

import importlib
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_VAR = Path(tempfile.gettempdir()) / f"foundry-tests-{os.getuid()}"
_SESSION = os.environ.setdefault("FOUNDRY_TEST_SESSION", uuid.uuid4().hex[:10])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "rerun: also run against PostgreSQL and Redis where they answer"
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    if config.pluginmanager.get_plugin("django") is None:
        return []
    database = (os.environ.get("DATABASE_URL") or "SQLite").split(":")[0]
    layer = "Redis pubsub" if os.environ.get("REDIS_URL") else "TailLayer"
    again = [name for name, port in (("PostgreSQL", 5432), ("Redis", 6379)) if _answers(port)]
    return [
        f"kernel foundry: database {database}, channel layer {layer};"
        f" once more on what answers here: {', '.join(again) or 'nothing'}"
    ]


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None,
) -> Iterator[None]:
    """A file or database that no other test session on this machine uses, visible to other processes."""
    from django.conf import settings

    database: dict[str, Any] = settings.DATABASES["default"]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name = f"foundry_test_{_SESSION}_{worker}"
    if database["ENGINE"].endswith("sqlite3"):
        _VAR.mkdir(parents=True, exist_ok=True)
        name = str(_VAR / f"{name}.sqlite3")
    from django.db import connections

    database.setdefault("TEST", {})["NAME"] = name
    settings_dict = connections["default"].settings_dict
    settings_dict["TEST"]["NAME"] = name
    if connections["default"].vendor == "postgresql":
        # A test's database need not survive the machine.
        settings_dict.setdefault("OPTIONS", {})["options"] = "-c synchronous_commit=off"
    yield
    # What SQLite leaves beside a database that was deleted while a thread still held it.
    for leftover in _VAR.glob(f"{Path(name).name}-*"):
        leftover.unlink()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Connections of threads that asyncio keeps would hold a PostgreSQL database when it is dropped."""
    yield
    from django.db import connection

    with django_db_blocker.unblock():
        if connection.vendor != "postgresql":
            return
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


# People and things of the web side; rows are made on demand only.


@pytest.fixture
def owner(db: None) -> Any:
    return _samples().user("olga", "submitter")


@pytest.fixture
def other(db: None) -> Any:
    return _samples().user("otto", "submitter")


@pytest.fixture
def viewer(db: None) -> Any:
    return _samples().user("vera", "viewer")


@pytest.fixture
def expert(db: None) -> Any:
    return _samples().user("emil", "expert")


@pytest.fixture
def operator(db: None) -> Any:
    return _samples().user("oda", "operator")


@pytest.fixture
def task(owner: Any) -> Any:
    return _samples().task(owner)


@pytest.fixture
def run(task: Any, owner: Any) -> Any:
    return _samples().run(task, owner)


@pytest.fixture
def runner(db: None) -> Any:
    return _samples().runner()


def _samples() -> Any:
    """Imported late: tests without Django load this file too."""
    return importlib.import_module("tests.web.samples")
