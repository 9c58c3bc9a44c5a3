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
from evolution_app.library_worth import uses
from evolution_app.models import AuditEvent, Candidate, ExperienceEntry, Run, User
from evolution_app.models.curation import UNDO_FOR
from evolution_app.views import queues, worth
from gpu_runner.core.entries import Entry, EntryContent, EntryState, When
from gpu_runner.core.entry_lines import written
from gpu_runner.core.worth import WITH, WITHOUT, arm_without
from gpu_runner.experience import Query
from gpu_runner.store import shelf_for
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


def test_junk_is_named_line_by_line_and_nothing_of_its_file_is_taken_over(expert: User) -> None:
    good, head = (
        Entry(id="0" * 32, content=samples.LESSON),
        '{"schema": "kernel-foundry/entries", "version": 9}',
    )
    client = as_user(expert)

    def tried(content: bytes) -> str:
        file = SimpleUploadedFile("library.jsonl", content)
        answer = client.post("/library/import", {"file": file, "import": "1"})
        assert answer.status_code == 422
        assert not ExperienceEntry.objects.exists()
        return answer.content.decode()

    lines = "".join(written([good]))
    assert "line 3 holds other bytes" in tried(lines.encode() + '{"title": "é"}'.encode("latin-1"))
    assert "is not UTF-8 text" in tried(lines.encode("utf-16"))
    assert "not a file of kernel-foundry/entries that this version reads" in tried(
        f"{head}\n{lines}".encode()
    )
    assert "more than 16 MiB" in tried(b"x" * (20 << 20))
    assert "an entry has at most" in tried(lines.encode() + b"y" * (2 << 20))
    assert "stands twice" in tried((lines + lines.splitlines()[1]).encode())
    many = lines + "half\n" * 1200
    page = tried(many.encode())
    assert page.count("Invalid JSON") == 1000
    assert "and 201 more lines" in page


def test_text_of_an_entry_is_never_markup(expert: User) -> None:
    nasty = "<script>alert(1)</script><b>bold</b>"
    content = samples.LESSON.model_copy(
        update={
            "title": nasty,
            "action": nasty,
            "preconditions": nasty,
            "when": When(operators=(nasty,), shapes=nasty),
            "before": nasty,
            "after": nasty + "x",
        }
    )
    client = as_user(expert)
    lines = "".join(written([Entry(id="0" * 32, content=content)]))
    client.post("/library/import", {"text": lines, "check": "1"})
    client.post("/library/import", {"text": lines, "import": "1"})
    entry = ExperienceEntry.objects.get()
    for address in ("/library", f"/library/{entry.pk}", f"/library/{entry.pk}/edit"):
        page = client.get(address).content.decode()
        assert "<script>alert" not in page
        assert "<b>bold" not in page
        assert "&lt;script&gt;" in page


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
    library = worth.library_uplift(uses())
    assert (library.uses, library.wins, library.runs) == (6, 6, 2)
    assert library.ratio == pytest.approx(2.0)
    uplift = worth.worth_of(entry)
    assert (uplift.uses, uplift.wins, uplift.ratio) == (6, 6, None)
    assert math.log(2.0) == pytest.approx(max(use.gain for use in uses()))
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


@pytest.mark.parametrize(
    ("speedup_with", "standing", "weight"), [(2.0, "helps", 1.25), (1.0, "retire", 0.5)]
)
def test_what_was_measured_of_an_entry_ranks_it_and_is_told_to_experts(
    entry: ExperienceEntry,
    task: Any,
    owner: User,
    expert: User,
    speedup_with: float,
    standing: str,
    weight: float,
) -> None:
    services.approve_entry(entry=entry, by=expert, version=1)
    for number in range(9):
        run = samples.run(task, owner)
        shown(run, 2, speedup_with + number / 100, WITH, (entry.uid,))
        shown(run, 2, 3.0 - speedup_with, arm_without(entry.uid))
    [row] = as_user(expert).get("/library/worth").context["rows"]
    assert (row[0], row[2]) == (entry, standing)
    is_harmful = standing == "retire"
    assert in_queue("harmful", expert) == ([entry.pk] if is_harmful else [])
    page = as_user(expert).get(f"/library/{entry.pk}").content.decode()
    assert ("consider retiring it" in page) is is_harmful
    assert ("helps beyond chance" in page) is not is_harmful
    library = shelf_for(run.pk).library()
    query = Query(operators=(), dtypes=(), target="", words=entry.current.title)
    [hit] = library.retrieve(query)
    [plain] = library.weighed({}).retrieve(query)
    assert hit.score == pytest.approx(weight * plain.score)


def test_the_library_starts_with_entries_that_were_executed(viewer: User) -> None:
    call_command("load_library")
    used = ExperienceEntry.objects.in_use().visible_to(viewer)
    assert used.count() >= 20
    assert all(e.has_evidence() for e in used.prefetch_related("evidence"))
    client = as_user(viewer)
    for entry in used[:3]:
        page = client.get(f"/library/{entry.pk}").content.decode()
        assert "Checked by execution; no person has confirmed it" in page
    exported = client.get("/library/export.jsonl", {"state": "in_use"}).content.decode()
    assert len(exported.splitlines()) == 1 + used.count()
    listed = client.get("/library").content.decode()
    assert "checked, unconfirmed" in listed
    assert "mends runtime error" in client.get("/library?sort=title").content.decode()
    assert ">approved<" not in listed


def test_what_was_checked_is_confirmed_several_at_once_and_says_by_whom(expert: User) -> None:
    call_command("load_library")
    unconfirmed = list(ExperienceEntry.objects.filter(state=EntryState.CHECKED).order_by("pk"))
    cure = next(e for e in unconfirmed if e.content.cures)
    chosen = [cure, *[e for e in unconfirmed if e != cure][:2]]
    assert set(in_queue("unconfirmed", expert)) <= {e.pk for e in unconfirmed}
    client = as_user(expert)
    client.post("/library/decide", {"decision": "approve", "entry": [f"{e.pk}:1" for e in chosen]})
    for entry in chosen:
        entry.refresh_from_db()
        assert (entry.state, entry.approved) == (EntryState.APPROVED, entry.current)
        assert [(r.reviewer, r.decision, r.waiver) for r in entry.reviews.all()] == [
            (expert, "approve", "")
        ]
        event = AuditEvent.objects.about(entry).newest_first().first()
        assert (event.actor, event.verb, event.before, event.after) == (
            expert,
            "entry.approve",
            "checked",
            "approved",
        )
        page = client.get(f"/library/{entry.pk}").content.decode()
        assert "no person has confirmed it" not in page
    client.post("/library/undo")
    cure.refresh_from_db()
    assert cure.state == EntryState.CHECKED
