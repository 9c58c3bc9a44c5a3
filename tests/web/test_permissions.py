from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.http import Http404

from evolution_app import permissions, services
from evolution_app.models import AuditEvent, Candidate, ExperienceEntry, Run, Task, User
from evolution_app.permissions import get_visible
from tests.web import samples

pytestmark = [pytest.mark.django_db, pytest.mark.rerun]

PEOPLE = ("anonymous", "viewer", "named", "other", "expert", "operator", "owner")


@pytest.fixture
def people(viewer: User, other: User, expert: User, operator: User, owner: User) -> dict[str, Any]:
    return {
        "anonymous": AnonymousUser(),
        "viewer": viewer,
        "named": samples.user("nina", "viewer"),
        "other": other,
        "expert": expert,
        "operator": operator,
        "owner": owner,
    }


@pytest.fixture
def things(owner: User, expert: User, people: dict[str, Any]) -> dict[str, list[Any]]:
    """For each visibility a task with its run, candidate and entry; all shared with nina by name."""
    found = {}
    for visibility in Task.Visibility.values:
        task = samples.task(owner, visibility=visibility)
        services.share_task(task=task, by=owner, add=[people["named"]])
        run = samples.run(task, owner)
        ledger = samples.claim(run, samples.runner(visibility, 1))
        ledger.add(samples.proposal())
        candidate = run.candidates.get()
        entry = services.nominate_entry(candidate=candidate, by=owner, content=samples.LESSON)
        found[visibility] = [task, run, candidate, entry]
    return found


SEEN_BY = {
    "private": {"named", "operator", "owner"},
    "shared": {"named", "expert", "operator", "owner"},
    "public": set(PEOPLE) - {"anonymous"},
}


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("visibility", SEEN_BY)
def test_who_sees_a_task_sees_all_of_it_and_nobody_else_any(
    who: str, visibility: str, people: dict[str, Any], things: dict[str, list[Any]]
) -> None:
    for thing in things[visibility]:
        visible = type(thing).objects.visible_to(people[who])
        assert visible.filter(pk=thing.pk).exists() == (who in SEEN_BY[visibility]), thing


STEERED_BY = {
    "private": {"operator", "owner"},
    "shared": {"expert", "operator", "owner"},
    "public": {"operator", "owner"},
}


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("visibility", STEERED_BY)
def test_who_steers(
    who: str, visibility: str, people: dict[str, Any], things: dict[str, list[Any]]
) -> None:
    task, run, *_ = things[visibility]
    for thing in (task, run):
        assert permissions.may_steer(people[who], thing) == (who in STEERED_BY[visibility])


@pytest.mark.parametrize(
    ("who", "may"),
    [
        ("anonymous", (False, False, False)),
        ("viewer", (False, False, False)),
        ("other", (True, False, False)),
        ("owner", (True, False, False)),
        ("expert", (True, True, False)),
        ("operator", (True, True, True)),
    ],
)
def test_what_a_role_may(who: str, may: tuple[bool, ...], people: dict[str, Any]) -> None:
    user = people[who]
    asked = (permissions.may_submit, permissions.may_review, permissions.may_operate)
    assert tuple(ask(user) for ask in asked) == may


@pytest.mark.parametrize(
    ("who", "visibility", "may"),
    [
        ("owner", "private", True),
        ("other", "public", False),
        ("viewer", "public", False),
        ("named", "private", False),
        ("expert", "private", False),
        ("expert", "shared", True),
        ("expert", "public", True),
        ("operator", "private", True),
    ],
)
def test_who_nominates(
    who: str, visibility: str, may: bool, people: dict[str, Any], things: dict[str, list[Any]]
) -> None:
    assert permissions.may_nominate(people[who], things[visibility][2]) == may


@pytest.mark.parametrize(
    ("who", "visibility", "may"),
    [
        ("owner", "private", True),
        ("expert", "shared", False),
        ("expert", "public", True),
        ("other", "public", False),
        ("operator", "private", True),
    ],
)
def test_who_makes_an_entry_more_visible(
    who: str, visibility: str, may: bool, people: dict[str, Any], things: dict[str, list[Any]]
) -> None:
    assert permissions.may_widen_entry(people[who], things[visibility][3]) == may


def test_an_entry_made_public_is_seen_without_its_task(
    things: dict[str, list[Any]], owner: User, viewer: User
) -> None:
    task, _, _, entry = things["private"]
    services.share_entry(entry=entry, by=owner, visibility="public")
    assert ExperienceEntry.objects.visible_to(viewer).filter(pk=entry.pk).exists()
    assert not Task.objects.visible_to(viewer).filter(pk=task.pk).exists()


def test_somebody_deactivated_sees_nothing(things: dict[str, list[Any]], owner: User) -> None:
    owner.is_active = False
    owner.save()
    for model in (Task, Run, Candidate, ExperienceEntry):
        assert not model.objects.visible_to(owner).exists()


def test_what_one_may_not_see_does_not_exist(
    things: dict[str, list[Any]], other: User, owner: User
) -> None:
    task = things["private"][0]
    assert get_visible(Task, owner, pk=task.pk) == task
    with pytest.raises(Http404):
        get_visible(Task, other, pk=task.pk)
    with pytest.raises(Http404):
        get_visible(Task, owner, pk=0)


def test_an_operator_who_looks_at_what_only_the_role_opens_leaves_a_trace(
    things: dict[str, list[Any]], operator: User, owner: User
) -> None:
    for visibility in ("public", "private"):
        for thing in things[visibility]:
            for user in (operator, owner):
                get_visible(type(thing), user, pk=thing.pk)
    looks = AuditEvent.objects.filter(verb="task.looked_at")
    assert [(look.actor, look.object_id) for look in looks] == [
        (operator, str(things["private"][0].pk))
    ]
