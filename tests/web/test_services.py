import pytest

from evolution_app import services
from evolution_app.models import (
    AuditEvent,
    Candidate,
    ExperienceEntry,
    Review,
    Run,
    RunEvent,
    Task,
    User,
)
from evolution_app.models.accounts import Role
from evolution_app.services import NotAllowed, Refused, Stale
from gpu_runner.core.entries import EntryState
from gpu_runner.core.task import Budget
from gpu_runner.core.verdicts import RunState
from tests.web import samples

pytestmark = [pytest.mark.django_db, pytest.mark.rerun]


@pytest.fixture
def candidate(run: Run) -> Candidate:
    """The child of a pair that tripled its speed."""
    ledger = samples.claim(run)
    ledger.add(samples.proposal(1))
    ledger.add(samples.proposal(2, parents=(1,), generation=1))
    ledger.finish(1, samples.correct(1.0))
    ledger.finish(2, samples.correct(3.0))
    return run.candidates.get(number=2)


@pytest.fixture
def entry(candidate: Candidate, owner: User) -> ExperienceEntry:
    services.share_task(task=candidate.run.task, by=owner, visibility="shared")
    return services.nominate_entry(candidate=candidate, by=owner, content=samples.LESSON)


def verbs() -> list[str]:
    return list(AuditEvent.objects.order_by("id").values_list("verb", flat=True))


# Tasks


def test_a_task_is_private_unless_said_otherwise(owner: User) -> None:
    task = services.submit_task(owner=owner, name=" double ", source=samples.TASK)
    assert (task.name, task.visibility, task.spec().source) == ("double", "private", samples.TASK)
    assert verbs() == ["task.submitted"]


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("def f(:\n", "", 1),
        ("x = 1\n", "Model", None),
        ("class Model:\n    pass\n\ndef get_inputs():\n    return []\n", "Module", 1),
        ("#" * 70_000, "bytes", None),
        ("(" * 5_000, "", 1),
        ("x = '\x00'", "null", 1),
    ],
)
def test_a_source_that_is_no_task_is_refused_with_line_and_reason(
    owner: User, source: str, message: str, line: int | None
) -> None:
    with pytest.raises(Refused) as caught:
        services.submit_task(owner=owner, name="bad", source=source)
    problem = caught.value.problems[0]
    assert message in problem.message
    assert problem.line == line
    assert not Task.objects.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "  "},
        {"name": "n" * 121},
        {"visibility": "everybody"},
        {"track": "cublas"},
        {"baseline_source": "class Other: pass"},
    ],
)
def test_options_that_mean_nothing_are_refused(owner: User, fields: dict[str, str]) -> None:
    with pytest.raises(Refused):
        services.submit_task(**{"owner": owner, "name": "x", "source": samples.TASK, **fields})


def test_viewers_do_not_submit(viewer: User) -> None:
    with pytest.raises(NotAllowed):
        services.submit_task(owner=viewer, name="x", source=samples.TASK)


def test_only_the_owner_shares(task: Task, expert: User, owner: User, other: User) -> None:
    with pytest.raises(NotAllowed):
        services.share_task(task=task, by=expert, visibility="public")
    services.share_task(task=task, by=owner, visibility="shared", add=[other])
    assert task.shares.get().user == other
    services.share_task(task=task, by=owner, remove=[other])
    assert not task.shares.exists()


# Runs


def test_a_run_is_queued_with_its_islands_and_the_first_event(task: Task, owner: User) -> None:
    run = services.start_run(
        task=task, by=owner, islands=4, seed=7, budget=Budget(evaluations=5, wall_s=60)
    )
    assert (run.state, run.spec().seed, run.islands.count()) == (RunState.QUEUED, 7, 4)
    assert run.budget["evaluations"] == 5
    assert RunEvent.objects.get(run=run).payload["state"] == "queued"


@pytest.mark.parametrize("options", [{"islands": 0}, {"device": "tpu"}, {"seed": -1}])
def test_runs_that_cannot_be_are_refused(task: Task, owner: User, options: dict[str, int]) -> None:
    with pytest.raises(Refused):
        services.start_run(task=task, by=owner, **options)


def test_others_start_and_steer_nothing(task: Task, run: Run, other: User, viewer: User) -> None:
    for user in (other, viewer):
        with pytest.raises(NotAllowed):
            services.start_run(task=task, by=user)
        with pytest.raises(NotAllowed):
            services.request_stop(run=run, by=user)
        with pytest.raises(NotAllowed):
            services.inject(run=run, by=user, hint="faster")


@pytest.mark.parametrize(
    ("ask", "state"),
    [
        (services.request_pause, RunState.PAUSED),
        (services.request_stop, RunState.FINISHED),
        (services.request_cancel, RunState.CANCELLED),
    ],
)
def test_a_queued_run_obeys_at_once(run: Run, owner: User, ask: object, state: RunState) -> None:
    assert ask(run=run, by=owner).state == state  # type: ignore[operator]


@pytest.mark.parametrize(
    ("ask", "state", "wanted"),
    [
        (services.request_pause, RunState.PAUSING, RunState.PAUSING),
        (services.request_stop, RunState.STOPPING, RunState.STOPPING),
        (services.request_cancel, RunState.STOPPING, RunState.CANCELLED),
    ],
)
def test_a_running_run_is_asked(
    run: Run, owner: User, ask: object, state: RunState, wanted: RunState
) -> None:
    ledger = samples.claim(run)
    ledger.set_state(RunState.RUNNING)
    run = ask(run=run, by=owner)  # type: ignore[operator]
    assert (run.state, run.wanted, ledger.wanted()) == (state, wanted, wanted)
    assert not run.is_over


def test_a_paused_run_goes_on(run: Run, owner: User) -> None:
    services.request_pause(run=run, by=owner)
    assert services.request_resume(run=run, by=owner).state == RunState.QUEUED


def test_stopping_is_not_taken_back(run: Run, owner: User) -> None:
    samples.claim(run).set_state(RunState.RUNNING)
    services.request_stop(run=run, by=owner)
    with pytest.raises(Refused, match="already stopping"):
        services.request_resume(run=run, by=owner)
    assert services.request_cancel(run=run, by=owner).wanted == RunState.CANCELLED


def test_a_run_that_is_over_stays_over(run: Run, owner: User) -> None:
    services.request_cancel(run=run, by=owner)
    for ask in (services.request_resume, services.request_stop, services.request_pause):
        with pytest.raises(Refused, match="already cancelled"):
            ask(run=run, by=owner)
    with pytest.raises(Refused, match="already cancelled"):
        services.inject(run=run, by=owner, hint="faster")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "a kernel or a hint"),
        ({"source": "x = 1"}, "cannot be evaluated"),
        ({"hint": "h"}, "nobody would read a hint"),
        ({"hint": "h" * 2001, "source": samples.KERNEL}, "characters"),
        ({"source": samples.KERNEL, "island": 9}, "no island 9"),
    ],
)
def test_steering_that_means_nothing_is_refused(
    run: Run, owner: User, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        services.inject(run=run, by=owner, **fields)  # type: ignore[arg-type]


# The library


def test_a_nomination_carries_its_measured_pair(entry: ExperienceEntry) -> None:
    evidence = entry.evidence.get()
    assert (evidence.before.number, evidence.after.number) == (1, 2)
    assert evidence.ratio == pytest.approx(3.0)
    assert (entry.state, entry.current.number) == (EntryState.NOMINATED, 1)


def test_an_expert_approves_what_another_nominated(entry: ExperienceEntry, expert: User) -> None:
    review = services.approve_entry(entry=entry, by=expert, version=1)
    entry.refresh_from_db()
    assert (entry.state, entry.approved) == (EntryState.APPROVED, entry.current)
    assert (review.decision, review.waiver) == (Review.Decision.APPROVE, "")
    assert verbs()[-1] == "entry.approve"


def test_nobody_approves_their_own_nomination(
    candidate: Candidate, expert: User, operator: User
) -> None:
    services.share_task(task=candidate.run.task, by=candidate.run.task.owner, visibility="shared")
    for person in (expert, operator):
        entry = services.nominate_entry(candidate=candidate, by=person, content=samples.LESSON)
        with pytest.raises(NotAllowed, match="what they nominated"):
            services.approve_entry(entry=entry, by=person, version=1, waiver="please")


def test_the_local_owner_does_with_a_logged_waiver(candidate: Candidate) -> None:
    owner = services.ensure_local_owner()
    entry = services.nominate_entry(candidate=candidate, by=owner, content=samples.LESSON)
    with pytest.raises(Refused, match="you nominated"):
        services.approve_entry(entry=entry, by=owner, version=1)
    review = services.approve_entry(entry=entry, by=owner, version=1, waiver="I am alone here")
    assert review.waiver == "I am alone here"
    assert "I am alone here" in AuditEvent.objects.about(entry).newest_first().first().why


def test_without_evidence_only_a_waiver_helps(run: Run, owner: User, expert: User) -> None:
    samples.claim(run).add(samples.proposal())
    services.share_task(task=run.task, by=owner, visibility="shared")
    entry = services.nominate_entry(
        candidate=run.candidates.get(), by=owner, content=samples.LESSON
    )
    assert services.waivers_needed(entry=entry, by=expert) == ["no executed evidence shows a gain"]
    with pytest.raises(Refused, match="no executed evidence"):
        services.approve_entry(entry=entry, by=expert, version=1)
    assert services.approve_entry(entry=entry, by=expert, version=1, waiver="well known").waiver


def test_a_decision_on_an_old_version_is_stale(
    entry: ExperienceEntry, owner: User, expert: User
) -> None:
    changed = samples.LESSON.model_copy(update={"title": "Add"})
    services.edit_entry(entry=entry, by=owner, version=1, content=changed)
    for decide in (services.approve_entry, services.reject_entry, services.request_changes):
        with pytest.raises(Stale):
            decide(entry=entry, by=expert, version=1, reason="fine")
    with pytest.raises(Stale):
        services.edit_entry(entry=entry, by=owner, version=1, content=changed)


def test_an_approver_may_edit_and_the_edit_is_theirs(entry: ExperienceEntry, expert: User) -> None:
    changed = samples.LESSON.model_copy(update={"title": "Add"})
    services.approve_entry(entry=entry, by=expert, version=1, content=changed)
    entry.refresh_from_db()
    assert (entry.approved.number, entry.approved.author, entry.approved.title) == (
        2,
        expert,
        "Add",
    )
    assert [version.title for version in entry.versions.all()] == [samples.LESSON.title, "Add"]


def test_an_edit_leaves_the_approved_version_in_use(entry: ExperienceEntry, expert: User) -> None:
    services.approve_entry(entry=entry, by=expert, version=1)
    services.edit_entry(entry=entry, by=expert, version=1, content=samples.LESSON)
    entry.refresh_from_db()
    assert (entry.approved.number, entry.current.number, entry.as_core().version) == (1, 2, 1)


def test_after_approval_the_nominator_edits_no_more(
    entry: ExperienceEntry, owner: User, expert: User
) -> None:
    services.approve_entry(entry=entry, by=expert, version=1)
    entry.refresh_from_db()
    with pytest.raises(NotAllowed):
        services.edit_entry(entry=entry, by=owner, version=1, content=samples.LESSON)


# Findings and accounts


def test_experts_judge_findings(run: Run, owner: User, expert: User) -> None:
    ledger = samples.claim(run)
    ledger.add(samples.proposal())
    ledger.finish(1, samples.wrong())
    finding = run.candidates.get().latest_evaluation().findings.get()
    with pytest.raises(NotAllowed):
        services.judge_finding(finding=finding, by=expert, is_right=True)
    services.share_task(task=run.task, by=owner, visibility="shared")
    services.judge_finding(finding=finding, by=expert, is_right=False)
    finding.refresh_from_db()
    assert (finding.is_right, finding.judged_by) == (False, expert)


def test_the_local_owner_is_made_once(db: None) -> None:
    assert services.ensure_local_owner() == services.ensure_local_owner()


def test_only_operators_make_accounts_and_roles(operator: User, expert: User) -> None:
    with pytest.raises(NotAllowed):
        services.create_user(username="x", role=Role.VIEWER, by=expert)
    made = services.create_user(username="x", role=Role.VIEWER, by=operator)
    services.set_role(user=made, role=Role.EXPERT, by=operator)
    made.refresh_from_db()
    assert made.is_expert
    with pytest.raises(Refused, match="already"):
        services.create_user(username="x", role=Role.VIEWER, by=operator)


def test_no_token_is_in_the_audit(owner: User) -> None:
    token = services.issue_sign_in(user=owner)
    assert services.redeem_sign_in(token=token) == owner
    assert token not in str(list(AuditEvent.objects.values()))
