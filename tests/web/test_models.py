from datetime import timedelta

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from evolution_app.models import (
    AuditEvent,
    Candidate,
    Island,
    Run,
    RunEvent,
    Runner,
    SignInToken,
    SourceText,
    User,
)
from evolution_app.models.base import AppendOnlyError
from evolution_app.models.runs import LEASE
from gpu_runner.core.verdicts import RunState, State, Verdict
from tests.web import samples

pytestmark = [pytest.mark.django_db, pytest.mark.rerun]


@pytest.fixture
def candidate(run: Run) -> Candidate:
    samples.claim(run).add(samples.proposal())
    return run.candidates.get()


def refused(candidate: Candidate, **columns: object) -> bool:
    try:
        with transaction.atomic():
            Candidate.objects.filter(pk=candidate.pk).update(**columns)
    except IntegrityError:
        return True
    return False


@pytest.mark.parametrize(
    "columns",
    [
        {"verdict": Verdict.CORRECT},
        {"state": State.FINISHED},
        {"state": State.FINISHED, "verdict": Verdict.INCORRECT},
        {"state": State.FINISHED, "verdict": Verdict.CORRECT, "kind": "values"},
        {"speedup": 2.0},
        {"state": State.FINISHED, "verdict": Verdict.INCORRECT, "kind": "nan", "device_us": 1.0},
        {"stage": "probe"},
        {"state": "lost"},
        {"number": 0},
    ],
)
def test_the_database_refuses_candidates_that_contradict_themselves(
    candidate: Candidate, columns: dict[str, object]
) -> None:
    assert refused(candidate, **columns)


@pytest.mark.parametrize(
    "columns",
    [
        {"state": State.FINISHED, "verdict": Verdict.CORRECT, "speedup": 2.0},
        {"state": State.FINISHED, "verdict": Verdict.INCORRECT, "kind": "values"},
        {"state": State.EVALUATING, "stage": "probe"},
        {"state": State.ABANDONED},
    ],
)
def test_the_database_keeps_candidates_that_do_not(
    candidate: Candidate, columns: dict[str, object]
) -> None:
    assert not refused(candidate, **columns)


@pytest.mark.parametrize(
    "columns",
    [
        {"state": RunState.FINISHED},
        {"finished_at": timezone.now()},
        {"lease_until": timezone.now()},
        {"state": "asleep"},
    ],
)
def test_the_database_refuses_runs_that_contradict_themselves(
    run: Run, columns: dict[str, object]
) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.filter(pk=run.pk).update(**columns)


def test_a_run_that_is_over_holds_no_lease(run: Run, runner: Runner) -> None:
    samples.claim(run, runner)
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.filter(pk=run.pk).update(state=RunState.FINISHED, finished_at=timezone.now())


def test_a_text_is_kept_once() -> None:
    assert SourceText.objects.keep("x = 1") == SourceText.objects.keep("x = 1")
    assert SourceText.objects.count() == 1


def test_islands_of_a_run_have_different_numbers(run: Run) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Island.objects.create(run=run, number=0)


def test_there_is_one_local_owner() -> None:
    User.objects.create_user("a", is_local_owner=True)
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.create_user("b", is_local_owner=True)


def test_rows_of_a_history_are_changed_neither_by_code_nor_in_the_database(run: Run) -> None:
    event = RunEvent.objects.filter(run=run).earliest("seq")
    with pytest.raises(AppendOnlyError):
        event.save()
    with pytest.raises(AppendOnlyError):
        RunEvent.objects.filter(pk=event.pk).update(kind="other")
    with pytest.raises(AppendOnlyError):
        AuditEvent.objects.all().delete()
    with (
        pytest.raises(DatabaseError, match="never changed"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("UPDATE evolution_app_runevent SET kind = 'other'")


def test_a_queued_run_is_claimed_once(run: Run) -> None:
    now = timezone.now()
    assert Run.objects.claim(run.pk, samples.runner("a", 1), now) == 1
    assert Run.objects.claim(run.pk, samples.runner("b", 2), now) is None


def test_a_run_whose_lease_expired_is_claimed_with_a_higher_fence(run: Run, runner: Runner) -> None:
    now = timezone.now()
    assert Run.objects.claim(run.pk, runner, now) == 1
    assert Run.objects.renew(run.pk, 1, now + LEASE / 2)
    assert Run.objects.claim(run.pk, samples.runner("b", 2), now + LEASE) is None
    assert Run.objects.claim(run.pk, samples.runner("c", 3), now + 2 * LEASE) == 2

    assert not Run.objects.renew(run.pk, 1, now + 2 * LEASE)
    run.refresh_from_db()
    assert run.lost_claims == 1


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.FINISHED, RunState.CANCELLED])
def test_a_run_that_rests_is_not_claimed(run: Run, runner: Runner, state: RunState) -> None:
    finished_at = timezone.now() if state.is_over else None
    Run.objects.filter(pk=run.pk).update(state=state, finished_at=finished_at)
    assert Run.objects.claim(run.pk, runner, timezone.now()) is None


def test_a_sign_in_token_works_once(owner: User) -> None:
    token = SignInToken.objects.issue(owner)
    assert token not in str(SignInToken.objects.values())
    assert SignInToken.objects.redeem(token) == owner
    assert SignInToken.objects.redeem(token) is None


def test_an_old_sign_in_token_does_not_work(owner: User) -> None:
    token = SignInToken.objects.issue(owner)
    SignInToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert SignInToken.objects.redeem(token) is None


def test_a_runner_is_alive_while_its_heart_beats(runner: Runner) -> None:
    assert list(Runner.objects.alive()) == [runner]
    Runner.objects.update(heartbeat_at=timezone.now() - timedelta(seconds=11))
    assert not Runner.objects.alive().exists()
    runner.refresh_from_db()
    assert not runner.is_alive
