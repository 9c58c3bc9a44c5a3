import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone

from evolution_app import events, services
from evolution_app.models import (
    Evaluation,
    ExperienceEntry,
    Finding,
    Run,
    RunEvent,
    Runner,
    SourceText,
    User,
)
from evolution_app.models.runs import MAX_LOST_CLAIMS
from gpu_runner import store
from gpu_runner.core.entries import Entry, EntryState
from gpu_runner.core.entry_lines import written
from gpu_runner.core.evaluation import Ratio, Speedup
from gpu_runner.core.ledger import LeaseLost, ModelCall
from gpu_runner.core.task_report import TaskReport, TensorSpec
from gpu_runner.core.verdicts import RunState, Stage, State
from gpu_runner.experience.distilling import distil
from gpu_runner.store import Store
from tests.web import samples

pytestmark = [pytest.mark.django_db, pytest.mark.rerun]


@pytest.fixture
def ledger(run: Run, runner: Runner) -> Store:
    return samples.claim(run, runner)


def kinds(ledger: Store) -> list[str]:
    return list(RunEvent.objects.after(ledger.run_id, 0).values_list("kind", flat=True))


def test_candidates_come_back_as_they_were_told(ledger: Store) -> None:
    first = ledger.add(samples.proposal(1))
    second = ledger.add(samples.proposal(2, island=1, parents=(1,), generation=1))
    third = ledger.add(samples.proposal(3, parents=(2, 1), generation=2))
    ledger.finish(1, samples.correct(2.0))
    ledger.stage(2, Stage.PROBE)

    assert [first.id, second.id, third.id] == [1, 2, 3]
    expected = [
        first.model_copy(
            update={"state": State.FINISHED, "evaluation": samples.correct(2.0)},
        ),
        second.model_copy(update={"state": State.EVALUATING}),
        third,
    ]
    assert ledger.candidates() == expected
    assert ledger.candidates()[2].parents == (2, 1)


def test_the_spec_is_that_of_the_task_and_the_run(ledger: Store, run: Run) -> None:
    assert ledger.spec.task.source == samples.TASK
    assert (ledger.spec.seed, ledger.spec.islands) == (1, 3)


def test_every_write_is_refused_once_the_run_belongs_to_another_runner(
    ledger: Store, run: Run
) -> None:
    ledger.add(samples.proposal())
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    heir = samples.claim(run, samples.runner("heir", 2))
    call = ModelCall(model="m", role="r", prompt="p", reply="r", outcome="ok", seconds=1)
    writes: dict[str, Any] = {
        "add": lambda: ledger.add(samples.proposal(2)),
        "stage": lambda: ledger.stage(1, Stage.LOAD),
        "requeue": lambda: ledger.requeue(1, "x"),
        "finish": lambda: ledger.finish(1, samples.correct()),
        "abandon": lambda: ledger.abandon(1, "x"),
        "note": lambda: ledger.note("log", {"text": "x"}),
        "model_call": lambda: ledger.model_call(call),
        "set_state": lambda: ledger.set_state(RunState.FINISHED),
        "spend": lambda: ledger.spend(evaluations=1),
        "wanted": ledger.wanted,
    }
    before = RunEvent.objects.count()
    for name, write in writes.items():
        with pytest.raises(LeaseLost):
            write()
        assert RunEvent.objects.count() == before, name
    ledger.release("too late")

    heir.finish(1, samples.correct())
    assert heir.candidates()[0].state is State.FINISHED
    run.refresh_from_db()
    assert (run.state, run.fence) == (RunState.QUEUED, 2)


def test_each_change_is_told_in_order_without_gaps(ledger: Store) -> None:
    ledger.set_state(RunState.RUNNING)
    ledger.add(samples.proposal())
    ledger.stage(1, Stage.LOAD)
    ledger.finish(1, samples.wrong())
    ledger.note("best", {"candidate_id": 1, "island": 0, "generation": 0, "fitness": 0.0})
    ledger.spend(evaluations=1)
    ledger.note("budget", {})
    ledger.set_state(RunState.FINISHED, "budget")

    assert kinds(ledger) == [
        events.RUN_STATE,
        events.RUN_STATE,
        events.CREATED,
        events.STAGE,
        events.DONE,
        events.DIAGNOSIS,
        events.RUN_BEST,
        events.RUN_BUDGET,
        events.RUN_STATE,
    ]
    seqs = list(RunEvent.objects.after(ledger.run_id, 0).values_list("seq", flat=True))
    assert seqs == list(range(1, 10))


def test_an_evaluation_fills_the_columns_that_lists_show(ledger: Store, run: Run) -> None:
    speedup = Speedup(
        eager=Ratio(ratio=2.0, low=1.9, high=2.1), torch_compile=Ratio(ratio=1.2, low=1.1, high=1.3)
    )
    ledger.add(samples.proposal())
    ledger.finish(1, samples.correct().model_copy(update={"speedup": speedup}))
    candidate = run.candidates.get()
    assert (candidate.verdict, candidate.kind, candidate.state) == ("correct", "", "finished")
    assert (candidate.speedup, candidate.speedup_low, candidate.speedup_compile) == (2.0, 1.9, 1.2)
    assert (candidate.fidelity, candidate.verified_at) == ("modelled", "probe")


def test_an_unevaluated_candidate_has_no_verdict(ledger: Store, run: Run) -> None:
    ledger.add(samples.proposal())
    ledger.finish(1, samples.unevaluated())
    candidate = run.candidates.get()
    assert (candidate.verdict, candidate.state) == ("", State.UNEVALUATED)


def test_text_that_no_database_keeps_is_made_storable(ledger: Store, run: Run) -> None:
    ledger.add(samples.proposal().model_copy(update={"source": "x = '\x00\ud800'"}))
    evaluation = samples.wrong("a null \x00", worst=float("nan"), most=[float("inf")])
    ledger.finish(1, evaluation)
    finding = Finding.objects.get()
    assert finding.title == "a null \ufffd"
    assert finding.evidence == {"worst": "nan", "most": ["inf"]}
    assert SourceText.objects.filter(text="x = '\ufffd?'").exists()
    assert ledger.candidates()[0].evaluation is not None


def test_our_failures_are_not_the_candidates(ledger: Store, run: Run) -> None:
    ledger.add(samples.proposal())
    ledger.stage(1, Stage.LOAD)
    ledger.requeue(1, "the device was lost")
    candidate = run.candidates.get()
    assert (candidate.state, candidate.stage, candidate.setbacks) == (State.QUEUED, "", 1)

    ledger.abandon(1, "three times")
    candidate.refresh_from_db()
    assert (candidate.state, candidate.verdict, candidate.setback) == (
        State.ABANDONED,
        "",
        "three times",
    )


def test_a_finished_candidate_stays_finished(ledger: Store, run: Run) -> None:
    ledger.add(samples.proposal())
    ledger.finish(1, samples.correct())
    ledger.stage(1, Stage.LOAD)
    ledger.requeue(1, "late")
    ledger.abandon(1, "late")
    assert run.candidates.get().state == State.FINISHED


def test_what_is_published_replaces_the_figures_and_keeps_the_first_evaluation(
    ledger: Store, run: Run
) -> None:
    ledger.add(samples.proposal())
    ledger.finish(1, samples.correct(2.0))
    again = samples.correct(1.5).model_dump(mode="json")
    ledger.note("published", {"candidate_id": 1, "evaluation": again})
    assert run.candidates.get().speedup == 1.5
    shown = Evaluation.objects.order_by("id").values_list("is_published", flat=True)
    assert list(shown) == [False, True]


def test_notes_come_back_by_kind_in_order(ledger: Store) -> None:
    ledger.note("answer", {"n": 1})
    ledger.note("failure", {"candidate_id": 1})
    ledger.note("answer", {"n": 2})
    assert ledger.notes("answer") == [{"n": 1}, {"n": 2}]
    assert kinds(ledger) == [events.RUN_STATE]


def test_islands_get_their_strategies(ledger: Store, run: Run) -> None:
    ledger.note("island", {"index": 1, "strategy": "tiling", "lens": "tiles and tensor cores"})
    island = run.islands.get(number=1)
    assert (island.strategy, island.description) == ("tiling", "tiles and tensor cores")


def test_spending_adds_up(ledger: Store) -> None:
    ledger.spend(evaluations=1, wall_s=2.5)
    ledger.spend(evaluations=2, tokens=10)
    assert ledger.spent() == {"evaluations": 3, "wall_s": 2.5, "tokens": 10}


def test_injected_kernels_are_returned_once(ledger: Store, run: Run, owner: User) -> None:
    ledger.add(samples.proposal())
    parent = run.candidates.get()
    Run.objects.filter(pk=run.pk).update(options={**run.options, "model": "tiny"})
    assert not ledger.has_injected()
    services.inject(
        run=run, by=owner, source=samples.KERNEL, hint="try adding", island=2, parent=parent
    )
    services.inject(run=run, by=owner, hint="only words", island=2)

    assert ledger.has_injected()
    [injected] = ledger.injected()
    assert (injected.source, injected.island, injected.parents) == (samples.KERNEL, 2, (1,))
    assert (injected.generation, injected.origin) == (1, "person:olga")
    assert not ledger.has_injected()
    assert ledger.injected() == []
    assert ledger.hints(1) == []
    assert run.steerings.filter(taken_at=None).count() == 1
    assert ledger.hints(2) == ["only words", "try adding"]
    assert ledger.hints(2) == ["only words", "try adding"]
    assert not run.steerings.filter(taken_at=None).exists()


def test_a_runner_that_leaves_puts_its_run_back_into_the_queue(ledger: Store, run: Run) -> None:
    ledger.set_state(RunState.RUNNING)
    assert ledger.wanted() is RunState.RUNNING
    ledger.rest()
    assert ledger.wanted() is RunState.PAUSING
    ledger.set_state(RunState.PAUSED, "asked to")
    run.refresh_from_db()
    assert (run.state, run.runner) == (RunState.QUEUED, None)


def test_a_pause_that_people_asked_for_stays_one(ledger: Store, run: Run, owner: User) -> None:
    ledger.set_state(RunState.RUNNING)
    services.request_pause(run=run, by=owner)
    assert ledger.wanted() is RunState.PAUSING
    ledger.set_state(RunState.PAUSED)
    run.refresh_from_db()
    assert (run.state, run.wanted, run.runner) == (RunState.PAUSED, RunState.RUNNING, None)


def test_a_run_whose_runners_keep_dying_fails(run: Run, runner: Runner) -> None:
    long_ago = timezone.now() - timedelta(hours=1)
    for _ in range(MAX_LOST_CLAIMS + 1):
        assert store.claim_next(runner) is not None
        Run.objects.filter(pk=run.pk).update(lease_until=long_ago)
    assert store.claim_next(runner) is None
    run.refresh_from_db()
    assert run.state == RunState.FAILED
    assert "died" in run.stop_reason


def test_a_finished_candidate_forgives_earlier_deaths(run: Run, runner: Runner) -> None:
    Run.objects.filter(pk=run.pk).update(lost_claims=MAX_LOST_CLAIMS)
    ledger = store.claim_next(runner)
    assert ledger is not None
    ledger.add(samples.proposal())
    ledger.finish(1, samples.correct())
    run.refresh_from_db()
    assert run.lost_claims == 0


def test_a_failure_of_ours_gives_the_run_back(ledger: Store, run: Run) -> None:
    ledger.set_state(RunState.RUNNING)
    ledger.release("the pool broke")
    run.refresh_from_db()
    assert (run.state, run.stop_reason, run.runner) == (RunState.QUEUED, "the pool broke", None)


def test_a_runner_whose_process_is_gone_is_not_waited_for(run: Run) -> None:
    dead = store.register(sandbox="bwrap", slots=1)
    Runner.objects.filter(pk=dead.pk).update(pid=2**22 + 1)
    samples.claim(run, dead)
    assert store.claim_next(samples.runner("b", 2)) is None

    runner = store.register(sandbox="bwrap", slots=1)
    claimed = store.claim_next(runner)
    assert claimed is not None
    assert claimed.run_id == run.pk


def test_a_step_that_paid_becomes_a_draft_with_its_pair_once(ledger: Store, run: Run) -> None:
    ledger.add(samples.proposal(1))
    ledger.add(samples.proposal(2, parents=(1,), generation=1))
    ledger.finish(1, samples.correct(1.0))
    ledger.finish(2, samples.correct(3.0))
    parent, child = ledger.candidates()
    report = TaskReport(inputs=(), outputs=(TensorSpec(shape=(4,), dtype="float32"),), probe=None)
    lesson = distil(parent, child, ledger.spec.task, report)
    assert lesson is not None
    for _ in range(2):
        ledger.note("nomination", lesson.model_dump(mode="json"))

    entry = ExperienceEntry.objects.get()
    assert (entry.state, entry.nominated_by, entry.task) == (EntryState.DRAFT, None, run.task)
    assert entry.content == lesson
    evidence = entry.evidence.get()
    assert (evidence.before.number, evidence.after.number, evidence.ratio) == (1, 2, 3.0)


def test_a_run_learns_only_from_approved_entries_that_its_starter_sees(
    run: Run, owner: User, other: User, expert: User
) -> None:
    foreign = services.submit_task(owner=other, name="hers", source=samples.TASK)
    for task, state in (
        (run.task, EntryState.APPROVED),
        (run.task, EntryState.NOMINATED),
        (foreign, EntryState.APPROVED),
    ):
        uid = f"{task.pk:016x}{len(state):016x}"
        lines = "".join(written([Entry(id=uid, content=samples.LESSON)]))
        services.import_lines(by=expert, text=lines)
        entry = ExperienceEntry.objects.get(uid=uid)
        ExperienceEntry.objects.filter(pk=entry.pk).update(
            task=task, state=state, approved=entry.current
        )
    assert [entry.state for entry in store.library_for(run.pk)] == [EntryState.APPROVED]


def test_a_model_call_is_told_without_its_texts(ledger: Store, run: Run) -> None:
    ledger.add(samples.proposal())
    ledger.model_call(
        ModelCall(
            model="m",
            role="improve",
            candidate_id=1,
            prompt="p",
            reply="r",
            outcome="ok",
            seconds=1,
        )
    )
    payload = RunEvent.objects.after(ledger.run_id, 0).latest("seq").payload
    assert payload["candidate"] == 1
    assert "prompt" not in payload
    assert run.model_calls.get().reply == "r"


def test_the_report_of_an_inspection_is_kept_with_the_task(ledger: Store, run: Run) -> None:
    report = TaskReport(inputs=(), outputs=(), probe={"N": 96})
    ledger.report(report)
    run.task.refresh_from_db()
    assert TaskReport.model_validate(run.task.report) == report


@pytest.mark.django_db(transaction=True)
def test_threads_write_without_losing_or_doubling_a_number(run: Run, runner: Runner) -> None:
    ledger = samples.claim(run, runner)
    errors: list[BaseException] = []

    def write(first: int) -> None:
        try:
            for number in range(first, first + 10):
                ledger.add(samples.proposal(number))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=write, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connection.close()

    assert errors == []
    assert [candidate.id for candidate in ledger.candidates()] == list(range(1, 41))
    seqs = list(RunEvent.objects.after(run.pk, 0).values_list("seq", flat=True))
    assert seqs == list(range(1, 42))


def test_what_a_transaction_notes_is_read_within_it(ledger: Store) -> None:
    with ledger.together():
        ledger.note("answer", {"number": 1})
        assert ledger.notes("answer") == [{"number": 1}]
        ledger.note("answer", {"number": 2})
    assert ledger.notes("answer") == [{"number": 1}, {"number": 2}]


def test_a_gate_that_is_no_news_is_not_told(ledger: Store) -> None:
    ledger.add(samples.proposal(1))
    ledger.stage(1, Stage.LOAD)
    ledger.stage(1, Stage.LOAD)
    ledger.finish(1, samples.correct())
    ledger.stage(1, Stage.PROBE)
    assert kinds(ledger).count(events.STAGE) == 1
    assert ledger.candidates()[0].state is State.FINISHED


def test_a_step_of_the_search_takes_few_statements(
    ledger: Store, django_assert_max_num_queries: Any
) -> None:
    """What a runner costs is nearly all statements, so they are counted; a savepoint and its release stand for a commit."""
    ledger.add(samples.proposal(1))
    call = ModelCall(
        candidate_id=2, model="m", role="r", prompt="p", reply="r", outcome="ok", seconds=1
    )
    with django_assert_max_num_queries(14), ledger.together():
        ledger.add(samples.proposal(2, parents=(1,)))
        ledger.model_call(call)
        for kind in ("answer", "plan", "strategy", "shares"):
            ledger.note(kind, {})
        ledger.spend(tokens=10, iterations=1)
    with django_assert_max_num_queries(7):
        ledger.stage(2, Stage.STATIC)
    with django_assert_max_num_queries(11), ledger.together():
        ledger.finish(2, samples.correct())
        ledger.spend(evaluations=1)
        for kind in ("answer", "plan", "budget"):
            ledger.note(kind, {})


def test_a_models_words_for_a_draft_are_its_next_version_unless_a_person_was_first(
    ledger: Store, run: Run, expert: User
) -> None:
    ledger.add(samples.proposal(1))
    ledger.add(samples.proposal(2, parents=(1,), generation=1))
    ledger.finish(1, samples.correct(1.0))
    ledger.finish(2, samples.correct(3.0))
    report = TaskReport(inputs=(), outputs=(TensorSpec(shape=(4,), dtype="float32"),), probe=None)
    lesson = distil(*ledger.candidates(), ledger.spec.task, report)
    assert lesson is not None
    ledger.note("nomination", lesson.model_dump(mode="json"))
    told = lesson.model_copy(update={"title": "Double by adding", "by_model": ("title",)})
    for _ in range(2):
        ledger.note("summary", told.model_dump(mode="json"))
    entry = ExperienceEntry.objects.get()
    assert (entry.content, entry.versions.count()) == (told, 2)
