"""The library's pages: queues, decisions with what stands in their way, several at once, import, worth."""

import json
import math
from typing import Any

import pytest
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from evolution_app import services
from evolution_app.models import Candidate, ExperienceEntry, Run, User
from evolution_app.models.curation import UNDO_FOR
from evolution_app.views import queues, worth
from gpu_runner.core.entries import Entry, EntryContent, EntryState
from gpu_runner.core.entry_lines import written
from gpu_runner.core.worth import WITH, WITHOUT
from tests.web import samples

pytestmark = pytest.mark.django_db


def as_user(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Figures that are kept for a while would outlive a test's rows."""
    cache.clear()


@pytest.fixture
def candidate(run: Run, owner: User) -> Candidate:
    store = samples.claim(run)
    first = store.add(samples.proposal(1))
    store.finish(first.id, samples.correct(1.0))
    second = store.add(samples.proposal(2, parents=(first.id,)))
    store.finish(second.id, samples.correct(3.0))
    services.share_task(task=run.task, by=owner, visibility="shared")
    return Candidate.objects.get(run=run, number=2)


@pytest.fixture
def entry(candidate: Candidate, owner: User) -> ExperienceEntry:
    return services.nominate_entry(candidate=candidate, by=owner, content=samples.LESSON)


@pytest.fixture
def eva(db: None) -> User:
    return samples.user("eva", "expert")


def in_queue(queue: str, user: User) -> list[int]:
    page = as_user(user).get("/library", {"queue": queue}).context["page"]
    return [entry.pk for entry in page.object_list]


def test_every_queue_holds_what_its_name_says(
    candidate: Candidate, owner: User, expert: User, eva: User
) -> None:
    def nominated(content: EntryContent = samples.LESSON) -> ExperienceEntry:
        return services.nominate_entry(candidate=candidate, by=owner, content=content)

    claimed, free, bare, disputed, newer, sent_back = (nominated() for _ in range(6))
    services.claim_entry(entry=claimed, by=expert)
    ExperienceEntry.objects.filter(pk=bare.pk).update(
        changed_at=timezone.now() - 2 * queues.WAITS_TOO_LONG
    )
    services.reject_entry(entry=disputed, by=expert, version=1, reason="no")
    services.restore_entry(entry=disputed, by=eva, version=1, reason="yes")
    services.approve_entry(entry=newer, by=expert, version=1)
    services.edit_entry(entry=newer, by=eva, version=1, content=samples.LESSON)
    services.request_changes(entry=sent_back, by=expert, version=1, reason="when?")

    assert in_queue("mine", expert) == [claimed.pk]
    assert in_queue("mine", owner) == [sent_back.pk]
    assert set(in_queue("unassigned", eva)) == {free.pk, bare.pk, disputed.pk}
    assert in_queue("disputed", eva) == [disputed.pk]
    assert set(in_queue("stale", eva)) == {newer.pk, bare.pk}
    assert in_queue("evidence", eva) == []
    without_pair = Candidate.objects.get(run=candidate.run, number=1)
    lone = services.nominate_entry(candidate=without_pair, by=owner, content=samples.LESSON)
    assert in_queue("evidence", eva) == [lone.pk]
    counts = queues.counts(ExperienceEntry.objects.visible_to(eva), eva)
    assert (counts["review"], counts["disputed"], counts["all"]) == (5, 1, 7)


def test_a_late_decision_shows_what_changed_and_keeps_what_was_typed(
    entry: ExperienceEntry, owner: User, expert: User
) -> None:
    changed = samples.LESSON.model_copy(update={"action": "x + x + 0"})
    services.edit_entry(entry=entry, by=owner, version=1, content=changed)
    sent = {"version": "1", "reason": "too vague"}
    answer = as_user(expert).post(f"/library/{entry.pk}/reject", sent)

    page = answer.content.decode()
    assert answer.status_code == 409
    assert ">too vague</textarea>" in page
    assert "You have read version 1. Meanwhile olga wrote version 2" in page
    change = answer.context["change"]
    assert (change["old"].number, change["new"].number) == (1, 2)
    entry.refresh_from_db()
    assert entry.state == EntryState.NOMINATED


def test_an_open_page_learns_of_a_newer_version_without_losing_its_own(
    entry: ExperienceEntry, owner: User, expert: User
) -> None:
    services.edit_entry(entry=entry, by=owner, version=1, content=samples.LESSON, note="clearer")
    page = as_user(expert).get(f"/library/{entry.pk}", {"seen": "1"}).content.decode()

    assert "olga wrote version 2 (clearer)" in page
    assert '<input type="hidden" name="version" value="1">' in page


def test_one_who_is_reviewing_stands_in_the_way_until_relieved(
    entry: ExperienceEntry, expert: User, eva: User
) -> None:
    address = f"/library/{entry.pk}"
    as_user(expert).post(f"{address}/claim")
    hers = as_user(eva)
    refused = hers.post(f"{address}/approve", {"version": "1"})
    assert (refused.status_code, "is reviewing" in refused.content.decode()) == (422, True)
    hers.post(f"{address}/claim", {"note": "emil is away"})
    assert "Taken over from emil: emil is away" in hers.get(address).content.decode()
    assert hers.post(f"{address}/approve", {"version": "1"}).status_code == 302


def test_several_are_rejected_at_once_and_taken_back(
    candidate: Candidate, owner: User, expert: User
) -> None:
    entries = [
        services.nominate_entry(candidate=candidate, by=by, content=samples.LESSON)
        for by in (owner, owner, expert)
    ]
    client = as_user(expert)
    ticked = {"entry": [f"{e.pk}:1" for e in entries], "decision": "reject", "reason": "vague"}
    page = client.post("/library/decide", ticked, follow=True).content.decode()

    assert f"Rejected: E-{entries[0].pk}, E-{entries[1].pk}." in page
    assert f"E-{entries[2].pk}: nobody decides on what they nominated" in page
    assert 'action="/library/undo"' in page
    client.post("/library/undo")
    assert set(ExperienceEntry.objects.values_list("state", flat=True)) == {"nominated"}
    assert "nothing to take back" in client.post("/library/undo", follow=True).content.decode()


def test_nothing_is_offered_to_be_taken_back_when_it_is_too_late(
    entry: ExperienceEntry, expert: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = as_user(expert)
    client.post(f"/library/{entry.pk}/approve", {"version": "1"})
    assert "library/undo" in client.get("/library").content.decode()
    monkeypatch.setattr("evolution_app.models.curation.UNDO_FOR", -UNDO_FOR)
    assert "library/undo" not in client.get("/library").content.decode()
    client.post("/library/undo")
    entry.refresh_from_db()
    assert entry.state == EntryState.APPROVED


def test_the_address_of_a_merged_entry_leads_to_the_other(
    candidate: Candidate, entry: ExperienceEntry, owner: User, expert: User
) -> None:
    same = services.nominate_entry(candidate=candidate, by=owner, content=samples.LESSON)
    client = as_user(expert)
    sent = {"version": "1", "reason": "the same", "into": f"E-{entry.pk}"}
    assert client.post(f"/library/{same.pk}/merge", sent)["Location"] == f"/library/{entry.pk}"
    assert client.get(f"/library/{same.pk}")["Location"] == f"/library/{entry.pk}"
    history = client.get(f"/library/{same.pk}?history=1").content.decode()
    assert "the same" in history


def test_similar_entries_stand_beside_as_far_as_one_sees_them(
    candidate: Candidate, entry: ExperienceEntry, owner: User, expert: User, other: User
) -> None:
    twin = services.nominate_entry(candidate=candidate, by=owner, content=samples.LESSON)
    foreign = services.submit_task(owner=other, name="his", source=samples.TASK)
    hidden = services.nominate_entry(candidate=candidate, by=other_expert(), content=samples.LESSON)
    ExperienceEntry.objects.filter(pk=hidden.pk).update(task=foreign)
    page = as_user(expert).get(f"/library/{entry.pk}")
    assert [(one.pk, round(likeness, 6)) for one, likeness in page.context["similar"]] == [
        (twin.pk, 1.0)
    ]


def other_expert() -> User:
    return samples.user("enno", "expert")


def test_a_view_is_saved_under_a_name_and_forgotten(entry: ExperienceEntry, expert: User) -> None:
    client = as_user(expert)
    client.post("/library/views", {"name": "mine", "query": "?queue=all&q=multiply"})
    assert 'href="?queue=all&amp;q=multiply"' in client.get("/library").content.decode()
    view = expert.saved_views.get()
    as_user(other_expert()).post(f"/library/views/{view.pk}/forget")
    assert expert.saved_views.exists()
    client.post(f"/library/views/{view.pk}/forget")
    assert not expert.saved_views.exists()


def test_a_file_is_looked_at_before_it_is_imported(expert: User, viewer: User) -> None:
    lines = "".join(written([Entry(id="0" * 32, content=samples.LESSON)]))
    client = as_user(expert)
    file = SimpleUploadedFile("library.jsonl", lines.encode())
    checked = client.post("/library/import", {"file": file, "check": "1"})
    assert (checked.status_code, checked.context["counts"]) == (200, {"new": 1})
    assert not ExperienceEntry.objects.exists()
    client.post("/library/import", {"text": checked.context["text"], "import": "1"})
    assert ExperienceEntry.objects.get().state == EntryState.NOMINATED

    bad = client.post("/library/import", {"text": f"{lines}not json\n", "import": "1"})
    assert (bad.status_code, bad.context["counts"]) == (422, {"unchanged": 1, "unusable": 1})
    assert as_user(viewer).get("/library/import").status_code == 403


def test_an_exported_file_holds_what_one_sees(
    entry: ExperienceEntry, owner: User, other: User
) -> None:
    _, line = as_user(owner).get("/library/export.jsonl").content.decode().splitlines()
    assert json.loads(line)["uid"] == entry.uid
    assert len(as_user(other).get("/library/export.jsonl").content.decode().splitlines()) == 1
    approved = as_user(owner).get("/library/export.jsonl", {"state": "approved"})
    assert len(approved.content.decode().splitlines()) == 1


def shown(run: Run, count: int, speedup: float, arm: str, uids: tuple[str, ...] = ()) -> None:
    """Children of the run's first candidate, all of one arm and one speedup."""
    store = samples.claim(run, samples.runner(f"of {run.pk} {arm}"))
    if not run.candidates.exists():
        store.finish(store.add(samples.proposal(0)).id, samples.correct(1.0))
    for _ in range(count):
        number = run.candidates.count()
        proposal = samples.proposal(number, parents=(1,), arm=arm, entries=uids)
        store.finish(store.add(proposal).id, samples.correct(speedup))
    store.rest()
    Run.objects.filter(pk=run.pk).update(state="queued", runner=None, lease_until=None)


def test_the_worth_of_the_library_is_the_gain_over_what_went_without(
    entry: ExperienceEntry, task: Any, owner: User, expert: User
) -> None:
    for _ in range(2):
        run = samples.run(task, owner)
        shown(run, 3, 2.0, WITH, (entry.uid,))
        shown(run, 3, 1.0, WITHOUT)
    library = worth.library_uplift(worth.uses())
    assert (library.uses, library.wins, library.runs) == (6, 6, 2)
    assert library.ratio == pytest.approx(2.0)
    uplift = worth.worth_of(entry)
    assert (uplift.uses, uplift.wins, uplift.ratio) == (6, 6, None)
    assert math.log(2.0) == pytest.approx(max(use.gain for use in worth.uses()))
    page = as_user(expert).get("/library/worth")
    assert [row[0] for row in page.context["rows"]] == [entry]
    use = entry.uses.first()
    on_its_run = as_user(owner).get(f"/runs/{use.run_id}").context
    [(version, candidates)] = on_its_run["fed"]
    assert (version, [c.number for c in candidates]) == (entry.current, [2, 3, 4])
    assert (on_its_run["hidden"], on_its_run["without"]) == (0, 3)
    assert (use.rank, use.version.number) == (1, 1)
    assert (
        "6 proposals, 6 of them gained"
        in as_user(expert).get(f"/library/{entry.pk}").content.decode()
    )


def test_the_library_starts_with_entries_that_were_executed(viewer: User) -> None:
    call_command("load_library")
    approved = ExperienceEntry.objects.approved().visible_to(viewer)
    assert approved.count() >= 20
    assert all(e.has_evidence() or e.content.cures for e in approved.prefetch_related("evidence"))
    client = as_user(viewer)
    for entry in approved[:3]:
        assert client.get(f"/library/{entry.pk}").status_code == 200
