"""The page of what a search thinks: the plan as a tree, shares, texts of strategies, islands begun afresh."""

import pytest
from django.test import Client

from evolution_app.models import Run, User
from evolution_app.views.search import MAX_DEPTH, plan_tree
from gpu_runner.core.search import Idea, IdeaState
from tests.web import played_runs


def idea(number: int, parent: int | None = None, **fields: object) -> Idea:
    known = {"key": "k", "text": f"idea {number}", "origin": "diagnosis", "base": 1, "island": 0}
    return Idea.model_validate(
        {
            **known,
            "id": number,
            "parent": parent,
            "base_speedup": 1,
            "expected_gain": 1.1,
            **fields,
        }
    )


def test_the_plan_is_walked_depth_first_without_what_nobody_tried() -> None:
    dropped = idea(5, 1, state=IdeaState.DROPPED)
    broken = idea(6, state=IdeaState.DROPPED, attempts=3)
    below = idea(7, 5)
    tree = plan_tree([broken, idea(4, 2), idea(3), below, idea(2, 1), dropped, idea(1)])
    assert [(planned.idea.id, planned.depth) for planned in tree] == [
        (1, 0),
        (2, 1),
        (4, 2),
        (3, 0),
        (6, 0),
        (7, 0),
    ]


def test_a_long_line_of_ideas_is_no_wider_than_the_page() -> None:
    line = [idea(1), *(idea(number, number - 1) for number in range(2, 40))]
    assert max(planned.depth for planned in plan_tree(line)) == MAX_DEPTH


@pytest.mark.django_db
def test_the_newest_of_plan_shares_and_texts_are_shown(run: Run, owner: User) -> None:
    store = played_runs.play(run, count=3)
    played_runs.think(store)
    client = Client()
    client.force_login(owner)
    answer = client.get(f"/runs/{run.pk}/search")

    plan = answer.context["plan"]
    assert [(p.idea.id, p.depth, p.idea.state) for p in plan] == [
        (1, 0, "gained"),
        (2, 1, "open"),
        (3, 0, "refuted"),
    ]
    assert (plan[0].idea.gain, answer.context["untried"]) == (1.26, 1)
    assert [way.way.operator for way in answer.context["ways"]] == ["tune", "improve"]
    assert answer.context["ways"][0].mean == pytest.approx(1.21 ** (1 / 4))
    old, new = answer.context["texts"]
    assert (old.text.is_retired, new.text.parents, new.mean) == (True, (1,), None)
    assert old.mean == pytest.approx(1.1)
    page = answer.content.decode()
    assert "Island 1 stood still and begins afresh from" in page
    assert f'href="/runs/{run.pk}/c/3">c-3</a>' in page


@pytest.mark.django_db
def test_a_search_that_has_not_begun_says_what_to_expect(run: Run, owner: User) -> None:
    client = Client()
    client.force_login(owner)
    page = client.get(f"/runs/{run.pk}/search").content.decode()
    assert "No idea yet. They come from the diagnosis" in page
    assert "Only a model reads them" in page
