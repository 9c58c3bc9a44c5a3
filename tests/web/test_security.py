import logging
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client, override_settings

from evolution_app.models import User
from foundry_web.logs import WithoutTokens
from foundry_web.security import is_same_origin

pytestmark = pytest.mark.django_db

PROJECT = Path(__file__).resolve().parents[2]


def test_every_page_says_what_it_may_load(client: Client) -> None:
    policy = client.get("/login")["Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'self'"
    assert "unsafe-inline" not in rules["script-src"]
    assert "unsafe-eval" not in policy
    assert rules["frame-ancestors"] == "'none'"


def test_a_nonce_is_new_each_time(client: Client) -> None:
    policies = {client.get("/login")["Content-Security-Policy"] for _ in range(2)}
    assert len(policies) == (2 if any("nonce" in policy for policy in policies) else 1)


def test_a_host_that_is_not_ours_is_refused(client: Client) -> None:
    assert client.get("/login", headers={"host": "evil.example"}).status_code == 400


def test_a_post_from_another_origin_is_refused(owner: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    client.get("/welcome")
    token = client.cookies["csrftoken"].value
    for origin, status in (("http://127.0.0.1:9", 403), ("http://evil.example", 403)):
        answer = client.post(
            "/welcome",
            {"token": "x", "csrfmiddlewaretoken": token},
            headers={"origin": origin, "host": "127.0.0.1:8000"},
        )
        assert answer.status_code == status
    answer = client.post(
        "/welcome",
        {"token": "x", "csrfmiddlewaretoken": token},
        headers={"origin": "http://127.0.0.1:8000", "host": "127.0.0.1:8000"},
    )
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000", True),
        ("LOCALHOST:8000", "http://localhost:8000", True),
        ("foundry.example", "https://foundry.example", True),
        ("127.0.0.1:8000", None, True),
        ("127.0.0.1:8000", "http://127.0.0.1:8001", False),
        ("127.0.0.1:8000", "http://localhost:8000", False),
        ("127.0.0.1:8000", "null", False),
        ("127.0.0.1:8000", "file://127.0.0.1:8000", False),
        ("evil.example", "http://evil.example", False),
        (None, None, False),
    ],
)
def test_origins(host: str | None, origin: str | None, allowed: bool) -> None:
    with override_settings(ALLOWED_HOSTS=["127.0.0.1", "localhost", "foundry.example"]):
        assert is_same_origin(host, origin) is allowed


def test_metrics_are_for_operators_and_this_machine(
    client: Client, owner: User, operator: User
) -> None:
    outside = {"REMOTE_ADDR": "192.0.2.1"}
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", headers={"x-forwarded-for": "192.0.2.1"}).status_code == 404
    assert client.get("/metrics", **outside).status_code == 404
    client.force_login(owner)
    assert client.get("/metrics", **outside).status_code == 404
    client.force_login(operator)
    assert client.get("/metrics", **outside).status_code == 200


def test_the_metrics_count_runs_and_runners(client: Client, run: object, runner: object) -> None:
    text = client.get("/metrics").content.decode()
    assert 'foundry_runs{state="queued"} 1.0' in text
    assert "foundry_runners_alive 1.0" in text


@pytest.mark.parametrize(
    "line",
    [
        "POST token=abcdefghijklmnopqrstuvwxyz",
        "Authorization: Bearer abcdefghijklmnopqrstuvwxyz",
        '{"key": "abcdefghijklmnopqrstuvwxyz"}',
    ],
)
def test_what_looks_like_a_secret_is_not_logged(line: str) -> None:
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, line, None, None)
    assert WithoutTokens().filter(record)
    assert "abcdefghijkl" not in record.getMessage()


def test_a_library_that_turns_on_its_own_details_does_not_fill_the_terminal() -> None:
    details = "import bm25s, logging; logging.getLogger('bm25s').debug('a detail')"
    code = f"import django; django.setup(); {details}; logging.getLogger('foundry').info('a word')"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT
    )
    assert "a word" in ran.stderr
    assert "a detail" not in ran.stderr
