"""What a run may take, told before it is started."""

from typing import Any

import pytest
from django.test import Client

from evolution_app.estimates import Range, from_spendings
from evolution_app.models import Run, Task, User
from gpu_runner.core.task import Budget
from gpu_runner.core.verdicts import RunState
from tests.web import samples
from tests.web.test_api import Program

CHEAP = {"evaluations": 10, "tokens": 1000, "money_usd": 0.1, "gpu_s": 20, "wall_s": 100}
DEAR = {"evaluations": 20, "tokens": 8000, "money_usd": 1.0, "gpu_s": 60, "wall_s": 100}
SHORT = {"evaluations": 2, "tokens": 9_000_000, "wall_s": 9}


def test_past_runs_are_scaled_to_the_budget_and_span_a_range() -> None:
    told = from_spendings([CHEAP, DEAR, SHORT], Budget(evaluations=40))
    assert told.runs == 2
    assert told.amounts == {
        "tokens": Range(4000, 10_000, 16_000),
        "money_usd": Range(0.4, pytest.approx(1.2), 2.0),
        "gpu_s": Range(80, 100, 120),
        "wall_s": Range(200, 300, 400),
    }


def test_the_first_limit_that_is_reached_ends_the_run() -> None:
    told = from_spendings([CHEAP], Budget(evaluations=40, wall_s=50))
    assert told.amounts["wall_s"] == Range(50, 50, 50)
    assert told.amounts["tokens"] == Range(500, 500, 500)


@pytest.mark.parametrize("past", [[], [SHORT], [{}]])
def test_without_past_runs_nothing_is_claimed(past: list[dict[str, float]]) -> None:
    told = from_spendings(past, Budget())
    assert (told.runs, told.amounts) == (0, {})


def finished(task: Task, by: User, spent: dict[str, Any], **options: Any) -> Run:
    run = samples.run(task, by, **options)
    samples.claim(run).set_state(RunState.FINISHED, "budget")
    Run.objects.filter(pk=run.pk).update(spent=spent)
    return run


@pytest.mark.django_db
def test_only_runs_with_the_model_that_the_person_may_see_count(
    task: Task, owner: User, other: User
) -> None:
    finished(task, owner, CHEAP, model="tiny")
    finished(task, owner, DEAR)
    samples.run(task, owner, model="tiny")
    path = "/runs/estimate?model=tiny&evaluations=20"
    known = Program(owner).get(path).json()
    assert known["past_runs"] == 1
    assert known["amounts"]["tokens"] == {"low": 2000, "typical": 2000, "high": 2000}
    assert Program(other).get(path).json() == {"past_runs": 0, "amounts": {}}
    without = Program(owner).get("/runs/estimate?evaluations=20").json()
    assert without["amounts"]["money_usd"]["high"] == 1.0
    assert Program(owner).get("/runs/estimate?evaluations=0").status_code == 422


@pytest.mark.django_db
def test_the_form_shows_the_estimate_and_says_where_there_is_none(task: Task, owner: User) -> None:
    finished(task, owner, CHEAP, model="tiny")
    client = Client()
    client.force_login(owner)
    assert "No past runs with no model" in client.get("/tasks/new").content.decode()
    asked = {"model": "tiny", "evaluations": "20", "method": "evolution", "minutes": ""}
    told = client.get("/tasks/estimate", asked).content.decode()
    assert "By 1 past run with tiny" in told
    assert "0.20 USD" in told
    assert "3 min" in told
    assert "Give a limit" in client.get("/tasks/estimate", {"model": "tiny"}).content.decode()
