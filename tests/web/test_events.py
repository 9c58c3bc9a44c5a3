import json
from pathlib import Path
from typing import Any

import pytest
from channels.layers import InMemoryChannelLayer
from django.conf import settings
from django.db import transaction
from django.test import Client, override_settings

from evolution_app import events, frames
from evolution_app.frames import frames_after
from evolution_app.models import ApiToken, Hint, Run, RunEvent, User
from gpu_runner.core.verdicts import RunState, Stage
from gpu_runner.store import Store
from tests.web import samples

pytestmark = [pytest.mark.django_db, pytest.mark.rerun]


@pytest.fixture
def ledger(run: Run) -> Store:
    ledger = samples.claim(run)
    ledger.add(samples.proposal())
    ledger.stage(1, Stage.LOAD)
    ledger.stage(1, Stage.PROBE)
    return ledger


@pytest.fixture
def partials(tmp_path: Path) -> Any:
    """Templates of our own in place of those of the pages."""
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "candidate.stage.html").write_text("<b>{{ candidate }} {{ event.payload.stage }}</b>")
    (folder / "candidate.created.html").write_text("{{ event.payload.move }}")

    changed = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    frames._template.cache_clear()
    with override_settings(TEMPLATES=changed):
        yield
    frames._template.cache_clear()


def test_an_event_belongs_to_the_transaction_of_its_change(run: Run) -> None:
    before = RunEvent.objects.count()
    with transaction.atomic():
        events.emit(run.pk, events.LOG, {"text": "x"})
        transaction.set_rollback(True)
    run.refresh_from_db()
    assert (RunEvent.objects.count(), run.last_seq) == (before, before)


def test_two_runs_count_apart(run: Run, owner: User) -> None:
    second = samples.run(run.task, owner)
    with transaction.atomic():
        assert events.emit(run.pk, events.LOG, {}).seq == 2
        assert events.emit(second.pk, events.LOG, {}).seq == 2


@pytest.mark.skipif("channels_redis" in str(settings.CHANNEL_LAYERS), reason="of the tail layer")
@pytest.mark.django_db(transaction=True)
def test_a_hint_in_the_database_comes_with_its_event_or_not_at_all(run: Run) -> None:
    def hinted() -> list[int]:
        hints = Hint.objects.filter(group=events.run_group(run.pk)).order_by("id")
        return [hint.message["seq"] for hint in hints]

    before = hinted()
    with transaction.atomic():
        events.emit(run.pk, events.LOG, {})
        transaction.set_rollback(True)
    assert hinted() == before
    with transaction.atomic():
        events.emit(run.pk, events.LOG, {})
    assert hinted() == [*before, 2]


@pytest.mark.django_db(transaction=True)
def test_a_hint_that_is_no_row_is_sent_after_the_commit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    hints: list[int] = []
    monkeypatch.setattr(events, "get_channel_layer", InMemoryChannelLayer)
    monkeypatch.setattr(events, "send_hint", lambda run_id, seq: hints.append(seq))
    with transaction.atomic():
        events.emit(run.pk, events.LOG, {})
        assert hints == []
    assert hints == [2]


@pytest.mark.usefixtures("partials")
def test_a_frame_carries_the_partial_of_its_kind_escaped(run: Run, ledger: Store) -> None:
    ledger.add(samples.proposal(2).model_copy(update={"move": "<script>"}))
    found = frames_after(run.pk, 1)
    assert [frame.get("content") for frame in found] == [
        "x + x",
        None,
        "<b>c-1 probe</b>",
        "&lt;script&gt;",
    ]


@pytest.mark.usefixtures("partials")
def test_only_html_that_is_drawn_again_is_left_out(run: Run, ledger: Store) -> None:
    """Stages are replaced by later ones; data is never left out."""
    payloads = [frame["payload"] for frame in frames_after(run.pk, 2)]
    assert [payload["stage"] for payload in payloads] == ["load", "probe"]


def test_frames_need_few_queries(
    run: Run, ledger: Store, django_assert_max_num_queries: Any
) -> None:
    for number in range(2, 12):
        ledger.add(samples.proposal(number, parents=(1,)))
    with django_assert_max_num_queries(6):
        frames_after(run.pk, 0, with_html=False)


# Over HTTP


def get(client: Client, run: Run, query: str = "", **extra: Any) -> Any:
    return client.get(f"/runs/{run.pk}/events{query}", **extra)


def test_the_same_events_come_over_http(
    run: Run, ledger: Store, owner: User, client: Client
) -> None:
    client.force_login(owner)
    answer = get(client, run, "?since=1").json()
    assert [frame["seq"] for frame in answer["events"]] == [2, 3, 4]
    assert (answer["last_seq"], answer["is_over"]) == (4, False)


def test_programs_read_lines(run: Run, ledger: Store, owner: User, client: Client) -> None:
    token = ApiToken.objects.issue(owner, "laptop")
    answer = client.get(
        f"/api/v1/runs/{run.pk}/events?since=2",
        headers={"authorization": f"Bearer {token}", "accept": "application/x-ndjson"},
    )
    assert answer.status_code == 200, answer.content
    lines = [json.loads(line) for line in answer.content.splitlines()]
    assert [line["seq"] for line in lines] == [3, 4]
    assert answer["Content-Type"] == "application/x-ndjson"


def test_a_run_that_is_over_says_so(run: Run, ledger: Store, owner: User, client: Client) -> None:
    ledger.set_state(RunState.FINISHED)
    client.force_login(owner)
    assert get(client, run, "?since=99").json() == {"events": [], "last_seq": 5, "is_over": True}


@pytest.mark.parametrize("who", ["nobody", "stranger"])
def test_events_of_what_one_may_not_see_are_404(
    run: Run, other: User, client: Client, who: str
) -> None:
    if who == "stranger":
        client.force_login(other)
    assert get(client, run).status_code == 404
