"""What experts decide on entries, alone and at the same time, and how they take it back."""

import importlib
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from evolution_app import services
from evolution_app.models import AuditEvent, Candidate, ExperienceEntry, Review, Run, User
from evolution_app.services import NotAllowed, Refused
from gpu_runner.core.entries import Effect, Entry, EntryState
from gpu_runner.core.entry_lines import Outcome, written
from gpu_runner.core.verdicts import Fidelity, Precision, Track
from tests.web import samples

pytestmark = [pytest.mark.django_db, pytest.mark.rerun]


@pytest.fixture
def candidate(run: Run) -> Candidate:
    """A correct candidate three times as fast as its correct parent."""
    store = samples.claim(run)
    first = store.add(samples.proposal(1))
    store.finish(first.id, samples.correct(1.0))
    second = store.add(samples.proposal(2, parents=(first.id,)))
    store.finish(second.id, samples.correct(3.0))
    services.share_task(task=run.task, by=run.task.owner, visibility="shared")
    return Candidate.objects.get(run=run, number=2)


@pytest.fixture
def entry(candidate: Candidate, owner: User) -> ExperienceEntry:
    return services.nominate_entry(candidate=candidate, by=owner, content=samples.LESSON)


@pytest.fixture
def eva(db: None) -> User:
    return samples.user("eva", "expert")


@pytest.mark.parametrize(
    ("decide", "state"),
    [
        (services.request_changes, EntryState.DRAFT),
        (services.reject_entry, EntryState.REJECTED),
    ],
)
def test_decisions_need_an_expert_and_a_reason(
    entry: ExperienceEntry, owner: User, expert: User, decide: object, state: EntryState
) -> None:
    with pytest.raises(NotAllowed):
        decide(entry=entry, by=owner, version=1, reason="no")  # type: ignore[operator]
    with pytest.raises(Refused, match="reason"):
        decide(entry=entry, by=expert, version=1, reason=" ")  # type: ignore[operator]
    decide(entry=entry, by=expert, version=1, reason="no")  # type: ignore[operator]
    entry.refresh_from_db()
    assert entry.state == state


def test_a_draft_is_submitted_again(entry: ExperienceEntry, owner: User, expert: User) -> None:
    services.request_changes(entry=entry, by=expert, version=1, reason="say when")
    services.edit_entry(entry=entry, by=owner, version=1, content=samples.LESSON)
    services.resubmit_entry(entry=entry, by=owner, version=2)
    entry.refresh_from_db()
    assert entry.state == EntryState.NOMINATED


def test_a_rejected_entry_is_restored_before_it_is_approved(
    entry: ExperienceEntry, expert: User
) -> None:
    services.reject_entry(entry=entry, by=expert, version=1, reason="no")
    with pytest.raises(Refused, match="restore"):
        services.approve_entry(entry=entry, by=expert, version=1)
    services.restore_entry(entry=entry, by=expert, version=1, reason="yes after all")
    services.approve_entry(entry=entry, by=expert, version=1)


def test_a_merged_entry_points_to_the_other(
    entry: ExperienceEntry, candidate: Candidate, owner: User, expert: User
) -> None:
    same = services.nominate_entry(candidate=candidate, by=owner, content=samples.LESSON)
    services.merge_entry(entry=same, into=entry, by=expert, version=1, reason="the same")
    same.refresh_from_db()
    assert (same.state, same.merged_into) == (EntryState.RETIRED, entry)


def test_only_what_is_approved_is_retired(entry: ExperienceEntry, expert: User) -> None:
    with pytest.raises(Refused, match="retire is not possible"):
        services.retire_entry(entry=entry, by=expert, version=1, reason="old")
    services.approve_entry(entry=entry, by=expert, version=1)
    services.retire_entry(entry=entry, by=expert, version=1, reason="old")
    entry.refresh_from_db()
    assert (entry.state, entry.approved) == (EntryState.RETIRED, entry.current)


def test_who_reviews_is_not_disturbed_and_can_be_relieved_with_a_note(
    entry: ExperienceEntry, expert: User, eva: User, owner: User
) -> None:
    services.claim_entry(entry=entry, by=expert)
    entry.refresh_from_db()
    assert entry.claimant == expert
    with pytest.raises(Refused, match="emil is reviewing"):
        services.approve_entry(entry=entry, by=eva, version=1)
    with pytest.raises(Refused, match="write a note"):
        services.claim_entry(entry=entry, by=eva)
    services.claim_entry(entry=entry, by=eva, note="I know this kernel")
    assert [c.text for c in entry.comments.all()] == ["Taken over from emil: I know this kernel"]
    services.approve_entry(entry=entry, by=eva, version=1)
    entry.refresh_from_db()
    assert (entry.state, entry.claimant) == (EntryState.APPROVED, None)
    with pytest.raises(NotAllowed):
        services.claim_entry(entry=entry, by=owner)


def test_a_claim_ends_by_itself(entry: ExperienceEntry, expert: User, eva: User) -> None:
    services.claim_entry(entry=entry, by=expert)
    past = timezone.now() - timedelta(seconds=1)
    ExperienceEntry.objects.filter(pk=entry.pk).update(claimed_until=past)
    services.approve_entry(entry=entry, by=eva, version=1)


def test_several_are_decided_each_for_itself_and_taken_back_together(
    candidate: Candidate, owner: User, expert: User
) -> None:
    entries = [
        services.nominate_entry(candidate=candidate, by=by, content=samples.LESSON)
        for by in (owner, owner, expert)
    ]
    batch, done, refused = services.decide_together(
        chosen=[(entry, 1) for entry in entries],
        by=expert,
        decide=services.reject_entry,
        reason="too vague",
    )
    assert (done, [entry for entry, _ in refused]) == (entries[:2], entries[2:])
    assert "nominated" in refused[0][1]

    with pytest.raises(Refused, match="nothing to take back"):
        services.undo_reviews(batch=batch, by=owner)
    assert services.undo_reviews(batch=batch, by=expert) == entries[:2]
    assert [e.state for e in ExperienceEntry.objects.order_by("id")] == ["nominated"] * 3
    with pytest.raises(Refused, match="nothing to take back"):
        services.undo_reviews(batch=batch, by=expert)
    assert AuditEvent.objects.about(entries[0]).newest_first().first().verb == "entry.undo"


def test_an_approval_is_taken_back_to_what_was_approved_before(
    entry: ExperienceEntry, expert: User, eva: User
) -> None:
    services.approve_entry(entry=entry, by=expert, version=1)
    better = samples.LESSON.model_copy(update={"title": "Add"})
    review = services.approve_entry(entry=entry, by=eva, version=1, content=better)
    services.undo_reviews(batch=review.batch, by=eva)
    entry.refresh_from_db()
    assert (entry.state, entry.approved.number, entry.current.number) == ("approved", 1, 2)


def test_what_has_changed_since_is_not_taken_back(entry: ExperienceEntry, expert: User) -> None:
    review = services.approve_entry(entry=entry, by=expert, version=1)
    services.edit_entry(entry=entry, by=expert, version=1, content=samples.LESSON)
    with pytest.raises(Refused, match="changed since"):
        services.undo_reviews(batch=review.batch, by=expert)


def test_what_a_model_wrote_is_marked_until_a_person_confirms_it(
    candidate: Candidate, owner: User, expert: User
) -> None:
    written_by_model = samples.LESSON.model_copy(update={"by_model": ("title", "action")})
    entry = services.nominate_entry(candidate=candidate, by=owner, content=written_by_model)
    with pytest.raises(Refused, match="confirm"):
        services.approve_entry(entry=entry, by=expert, version=1)
    edited = written_by_model.model_copy(update={"title": "Add"})
    services.edit_entry(entry=entry, by=expert, version=1, content=edited)
    entry.refresh_from_db()
    assert entry.content.by_model == ("action",)
    services.confirm_entry(entry=entry, by=expert, version=2)
    services.approve_entry(entry=entry, by=expert, version=3)
    entry.refresh_from_db()
    assert entry.content.by_model == ()


def test_an_edit_of_what_was_verified_waits_for_verification_again(
    entry: ExperienceEntry, expert: User
) -> None:
    ExperienceEntry.objects.filter(pk=entry.pk).update(state=EntryState.VERIFIED)
    services.edit_entry(entry=entry, by=expert, version=1, content=samples.LESSON)
    entry.refresh_from_db()
    assert entry.state == EntryState.NOMINATED


def test_decisions_and_comments_are_never_changed(entry: ExperienceEntry, expert: User) -> None:
    services.comment(entry=entry, by=expert, text="why?")
    services.approve_entry(entry=entry, by=expert, version=1)
    for table in ("review", "entrycomment"):
        with (
            pytest.raises(DatabaseError, match="never changed"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(f"UPDATE evolution_app_{table} SET id = id")


# Between installations


def lines_of(*entries: Entry) -> str:
    return "".join(written(entries))


def test_an_import_says_what_it_would_do_and_does_it_once(expert: User) -> None:
    first = Entry(id="0" * 32, state=EntryState.APPROVED, content=samples.LESSON)
    text = lines_of(first)
    assert [r.outcome for r in services.plan_import(by=expert, text=text)] == [Outcome.NEW]
    assert not ExperienceEntry.objects.exists()
    services.import_lines(by=expert, text=text)
    assert [r.outcome for r in services.import_lines(by=expert, text=text)] == [Outcome.UNCHANGED]
    entry = ExperienceEntry.objects.get()
    assert (entry.state, entry.uid, entry.versions.count()) == (EntryState.NOMINATED, first.id, 1)


def test_an_import_tells_nothing_of_an_entry_that_one_may_not_see(
    entry: ExperienceEntry, owner: User, expert: User, viewer: User
) -> None:
    services.share_task(task=entry.task, by=owner, visibility="private")
    hidden = Entry(id=entry.uid, content=samples.LESSON)
    [report] = services.import_lines(by=expert, text=lines_of(hidden))
    assert (report.outcome, report.problem[:17]) == (Outcome.UNUSABLE, "this uid is taken")
    with pytest.raises(NotAllowed):
        services.import_lines(by=viewer, text=lines_of(hidden))


def shipped(state: EntryState = EntryState.CHECKED, **changes: Any) -> Entry:
    effect = Effect(
        device="h200",
        fidelity=Fidelity.MODELLED,
        track=Track.OWN_KERNELS,
        precision=Precision.REFERENCE,
        ratio=1.5,
    )
    content = samples.LESSON.model_copy(update={"effects": (effect,), **changes})
    return Entry(id="a" * 32, state=state, content=content)


def test_the_starting_entries_are_loaded_once_and_kept_up_to_date(viewer: User) -> None:
    assert services.load_starting_entries(entries=[shipped()]) == 1
    assert services.load_starting_entries(entries=[shipped()]) == 0
    entry = ExperienceEntry.objects.visible_to(viewer).get()
    assert (entry.state, entry.approved.number, entry.has_evidence()) == ("checked", 1, True)
    assert services.load_starting_entries(entries=[shipped(EntryState.REJECTED, title="x")]) == 1
    entry.refresh_from_db()
    assert (entry.state, entry.approved, entry.current.number) == ("rejected", None, 2)


def test_no_release_says_that_an_expert_has_approved(viewer: User) -> None:
    services.load_starting_entries(entries=[shipped(EntryState.APPROVED)])
    entry = ExperienceEntry.objects.visible_to(viewer).get()
    assert (entry.state, entry.approved) == (EntryState.DRAFT, None)


def test_an_edit_leaves_what_was_checked_in_use(expert: User) -> None:
    services.load_starting_entries(entries=[shipped(effects=())])
    entry = ExperienceEntry.objects.get()
    assert entry.has_evidence()
    services.edit_entry(entry=entry, by=expert, version=1, content=samples.LESSON)
    entry.refresh_from_db()
    assert (entry.state, entry.as_core().version, entry.current.number) == ("checked", 1, 2)
    assert not entry.has_evidence(), "the newer version was never run"
    with pytest.raises(Refused, match="no executed evidence"):
        services.approve_entry(entry=entry, by=expert, version=2)


def test_what_people_have_decided_is_not_overwritten_by_a_newer_release(expert: User) -> None:
    services.load_starting_entries(entries=[shipped()])
    entry = ExperienceEntry.objects.get()
    services.retire_entry(entry=entry, by=expert, version=1, reason="not here")
    assert services.load_starting_entries(entries=[shipped(title="x")]) == 0
    entry.refresh_from_db()
    assert (entry.state, entry.current.number) == ("retired", 1)


def test_of_decisions_those_stand_that_were_not_taken_back(
    entry: ExperienceEntry, expert: User
) -> None:
    review = services.reject_entry(entry=entry, by=expert, version=1, reason="no")
    services.undo_reviews(batch=review.batch, by=expert)
    services.approve_entry(entry=entry, by=expert, version=1)
    assert [r.decision for r in Review.objects.of_people()] == ["approve"]


def test_what_a_run_alone_had_approved_is_said_to_be_checked(
    entry: ExperienceEntry, expert: User
) -> None:
    services.load_starting_entries(
        entries=[shipped(), shipped().model_copy(update={"id": "b" * 32})]
    )
    by_run, by_expert = ExperienceEntry.objects.filter(nominated_by=None).order_by("uid")
    services.approve_entry(entry=by_expert, by=expert, version=1)
    services.approve_entry(entry=entry, by=expert, version=1)
    ExperienceEntry.objects.filter(pk=by_run.pk).update(state=EntryState.APPROVED)
    step = importlib.import_module("evolution_app.migrations.0006_say_who_confirmed")
    step.say_checked(apps, None)
    states = {e.pk: e.state for e in ExperienceEntry.objects.all()}
    assert states == {by_run.pk: "checked", by_expert.pk: "approved", entry.pk: "approved"}
