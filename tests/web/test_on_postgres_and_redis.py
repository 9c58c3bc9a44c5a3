"""The tests of database and live events once more, against the real ones where they answer on their standard ports."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
IS_RERUN = bool(os.environ.get("DATABASE_URL"))


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return True
    except OSError:
        return False


@pytest.mark.timeout(900)
@pytest.mark.skipif(IS_RERUN, reason="this is the second run")
@pytest.mark.skipif(not answers(5432), reason="no PostgreSQL on 127.0.0.1:5432")
def test_database_and_live_events_on_postgresql_and_redis(record_property: object) -> None:
    environment = {**os.environ, "DATABASE_URL": "postgres://postgres@127.0.0.1:5432/postgres"}
    if answers(6379):
        environment["REDIS_URL"] = "redis://127.0.0.1:6379/0"
    for name in ("FOUNDRY_TEST_SESSION", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "rerun", "-p", "no:cacheprovider"]
    command += ["tests/web", "tests/test_store.py", "tests/test_worker.py"]
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=880
    )
    summary = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "passed" in summary
