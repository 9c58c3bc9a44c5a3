"""Every address of the site, read from its own table, for every kind of person: what is hidden is 404, whatever one asks for.

A new route is in here by itself. The socket's roles are in `test_consumers`.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, get_resolver

from evolution_app import services
from evolution_app.models import ApiToken, Candidate, ExperienceEntry, Finding, User
from gpu_runner.core.entries import EntryState
from tests.web import samples

pytestmark = pytest.mark.django_db

SECRET = "unheard-of"
WORDS = {"action": "stop", "decision": "reject", "tab": "code"}
OF_EVERYBODY = {"token_id", "view_id"}
"""Ids of things that belong to one person only; they are looked up among one's own."""


def routes() -> list[str]:
    """Patterns such as `runs/<run_id>/log`, of the site without Django's own admin."""
    return sorted({simplified(pattern) for pattern in _walk(get_resolver(), "")})


def _walk(resolver: Any, prefix: str) -> Iterator[str]:
    for pattern in resolver.url_patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield path
        elif pattern.app_name != "admin":
            yield from _walk(pattern, path)


def simplified(pattern: str) -> str:
    pattern = re.sub(r"\(\?P<(\w+)>(?:[^()]|\([^()]*\))*\)", r"<\1>", pattern)
    return re.sub(r"<\w+:(\w+)>", r"<\1>", pattern).strip("^$")


def names_in(route: str) -> set[str]:
    return set(re.findall(r"<(\w+)>", route))


OF_THINGS = [route for route in routes() if names_in(route) - OF_EVERYBODY - {"action"}]
LISTS = [route for route in routes() if not names_in(route) and route not in ("metrics", "logout")]


@dataclass
class Things:
    """A task with a run, two candidates, a finding, a submission and an entry; ids by the names in the routes."""

    ids: dict[str, Any]
    entry: ExperienceEntry

    def address(self, route: str) -> str:
        return "/" + re.sub(r"<(\w+)>", lambda name: str(self.ids[name[1]]), route)


@pytest.fixture
def things(owner: User) -> Things:
    task = services.submit_task(owner=owner, name=f"a {SECRET} task", source=samples.TASK)
    run = samples.run(task, owner)
    store = samples.claim(run)
    store.finish(store.add(samples.proposal(1)).id, samples.correct(1.5))
    store.note("best", {"candidate_id": 1})
    store.finish(store.add(samples.proposal(2, parents=(1,))).id, samples.wrong())
    steering = services.inject(run=run, by=owner, source=samples.KERNEL)
    lesson = samples.LESSON.model_copy(update={"title": f"an {SECRET} lesson"})
    candidate = Candidate.objects.get(run=run, number=1)
    entry = services.nominate_entry(candidate=candidate, by=owner, content=lesson)
    return Things(
        {
            **WORDS,
            "task_id": task.pk,
            "run_id": run.pk,
            "number": 2,
            "entry_id": entry.pk,
            "finding_id": Finding.objects.get().pk,
            "submission_id": steering.pk,
        },
        entry,
    )


def client_of(user: User) -> Client:
    """Signed in to the pages by a session, to the API by a token."""
    client = Client(headers={"authorization": f"Bearer {ApiToken.objects.issue(user, 'matrix')}"})
    client.force_login(user)
    return client


def asks_of(client: Client, address: str) -> dict[str, int]:
    """What reading and writing at an address answers."""
    if address.startswith("/api/"):
        body = {"source": samples.KERNEL} if address.endswith("/submissions") else {}
        post = client.post(address, json.dumps(body), content_type="application/json")
    else:
        post = client.post(address, {"version": "1", "reason": "because", "text": "x"})
    return {"get": client.get(address).status_code, "post": post.status_code}


@pytest.mark.parametrize("who", ["viewer", "other", "expert"])
def test_what_is_hidden_is_not_there_at_any_address(
    who: str, things: Things, request: pytest.FixtureRequest
) -> None:
    client = client_of(request.getfixturevalue(who))
    for route in OF_THINGS:
        answers = set(asks_of(client, things.address(route)).values())
        assert answers <= {404, 405}, route
        assert 404 in answers, route
    things.entry.refresh_from_db()
    assert things.entry.state == EntryState.NOMINATED


def test_its_owner_finds_it_at_every_address(things: Things, owner: User) -> None:
    client = client_of(owner)
    for route in OF_THINGS:
        assert client.get(things.address(route)).status_code in (200, 204, 405), route


def test_a_viewer_of_a_public_task_changes_nothing_at_any_address(
    things: Things, owner: User, viewer: User
) -> None:
    services.share_task(task=things.entry.task, by=owner, visibility="public")
    assert len(OF_THINGS) > 40
    client = client_of(viewer)
    for route in OF_THINGS:
        answers = asks_of(client, things.address(route))
        assert answers["post"] in (403, 405), route
        assert answers["get"] in (200, 204, 403, 405), route


@pytest.mark.parametrize("who", ["viewer", "other", "expert"])
def test_no_list_and_no_export_names_what_is_hidden(
    who: str, things: Things, request: pytest.FixtureRequest
) -> None:
    client = client_of(request.getfixturevalue(who))
    for route in LISTS:
        for query in ("", "?queue=all", "?state="):
            answer = client.get(f"/{route}{query}")
            assert SECRET not in answer.content.decode(), route


def test_nobody_is_asked_to_sign_in_or_refused(things: Things) -> None:
    for route in OF_THINGS:
        address = things.address(route)
        answer = Client().get(address)
        expected = 404 if route == "runs/<run_id>/events" else 401 if "api/" in route else 302
        assert answer.status_code in (expected, 405), route
