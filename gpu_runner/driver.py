"""The loop of one run: ask the search what to try, draft it, evaluate it, tell the search, remember everything.

One thread, the caller's, owns the search's state and the ledger; drafting and evaluating happen in worker threads that
report through a queue. Whatever is needed to go on after a kill is in the ledger before the next step begins: candidates,
and the notes `answer` (the order of the search's answers) and `failure` (ours, counted per candidate).
"""

import dataclasses
import queue
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from gpu_runner import diagnosis, experience
from gpu_runner.core.candidate import Candidate, Proposal
from gpu_runner.core.entries import Entry
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.ledger import Ledger, ModelCall
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Fidelity, RunState, Stage
from gpu_runner.core.verdicts import State as Life
from gpu_runner.drafting import Context, Drafted, Drafter, preferred, unique_drafts
from gpu_runner.evaluation.errors import InvalidTask, RunnerError
from gpu_runner.evolution import engine, migration, replay, results, seeding, stopping
from gpu_runner.evolution.fitness import is_correct, rank_key, worth
from gpu_runner.evolution.results import RunResult
from gpu_runner.evolution.types import Operator, Request, State
from gpu_runner.proposals.models import Models, ProfileError, Profiles
from gpu_runner.proposals.types import Draft
from gpu_runner.sources import Pool, Sources, standard_sources

MAX_FAILURES: Final = 3
"""Failures of ours on one candidate before it is abandoned."""
MAX_INTERRUPTIONS: Final = 10
"""Times that the runner may die while it evaluates one candidate before that looks like the candidate's doing."""
MAX_PUBLISHED: Final = 3
"""How many of the best are timed once more until one holds."""
TICK_S: Final = 0.5

NOTHING_LEFT: Final = "nothing left to try: no source has a new proposal for any kept candidate"
BY_PERSON: Final = "stopped by a person"
NO_FIRST: Final = "no source has a first candidate for this task; configure a model, or give your own kernel as a baseline"


@dataclass(frozen=True)
class Staged:
    candidate_id: int
    stage: Stage


@dataclass(frozen=True)
class Evaluated:
    """`evaluation` is None where we failed; `trouble` says how."""

    candidate: Candidate
    evaluation: Evaluation | None
    trouble: str = ""


Message = Drafted | Evaluated


def run(
    ledger: Ledger,
    pool: Pool,
    *,
    models: Models | None = None,
    library: Sequence[Entry] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sources: Sources | None = None,
) -> RunResult:
    """Work on a run until it is over or people want it to rest; goes on where an earlier call was killed.

    Args:
        models: the operator's profiles; needed where the run names one.
        library: the approved entries that the run's owner may see.

    Returns:
        The result, also written as the note `result`; its state is PAUSED when the run is to be gone on with later, and
        FAILED where the run names a model that the operator has not configured.

    Raises:
        InvalidTask: the reference cannot be used; the run is FAILED with the reason.
        LeaseLost: another runner has the run.
        RunnerError: the evaluator itself does not work; the run can be resumed.
    """
    spec = ledger.spec
    try:
        writer = (models or Models(Profiles())).writer(spec.model) if spec.model else None
        report = pool.inspect(spec.task)
        entries = (library or ()) if spec.use_library else ()
        drafter = Drafter(pool, spec, report, sources or standard_sources(), writer, entries)
        return _Run(ledger, pool, report, drafter, clock).work()
    except InvalidTask as error:
        ledger.set_state(RunState.FAILED, str(error))
        raise
    except ProfileError as error:
        ledger.set_state(RunState.FAILED, str(error))
        return _failed(ledger, str(error))


class _Run:
    """The shell around the search's state; worker threads touch nothing of it but `_inbox`."""

    def __init__(
        self,
        ledger: Ledger,
        pool: Pool,
        report: TaskReport,
        drafter: Drafter,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._pool = pool
        self._spec = ledger.spec
        self._report = report
        self._drafter = drafter
        self._clock = clock
        self._clocked = clock()
        self._state = engine.begin(self._spec.islands)
        self._candidates: dict[int, Candidate] = {}
        self._waiting: deque[Candidate] = deque()
        self._offers: dict[tuple[Operator, tuple[int, ...]], list[Draft]] = {}
        self._drafting = 0
        self._evaluating: set[int] = set()
        self._inbox: queue.SimpleQueue[Staged | Future[Message]] = queue.SimpleQueue()
        self._failures: Counter[int] = Counter()
        # One draft ahead of the slots where a model may take a minute; without, an answer decides the next question.
        self._capacity = pool.slots + (1 if drafter.has_model else 0)
        self._threads = ThreadPoolExecutor(self._capacity, thread_name_prefix="run")

    def work(self) -> RunResult:
        try:
            self._resume()
            self._ledger.set_state(RunState.RUNNING)
            self._describe_islands()
            if self._ledger.wanted() is RunState.RUNNING:
                self._seed()
            state, reason = self._loop()
            return self._finish(state, reason)
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # The loop.

    def _loop(self) -> tuple[RunState, str]:
        while True:
            wanted = self._ledger.wanted()
            self._take_injected()
            if wanted is RunState.RUNNING:
                self._fill()
            if not self._in_flight:
                self._spend_time()
                return self._rest(wanted)
            self._receive()

    def _rest(self, wanted: RunState) -> tuple[RunState, str]:
        if wanted in (RunState.PAUSING, RunState.PAUSED):
            return RunState.PAUSED, "paused by a person"
        if wanted is RunState.CANCELLED:
            return RunState.CANCELLED, "cancelled by a person"
        if wanted is not RunState.RUNNING:
            return RunState.FINISHED, BY_PERSON
        return RunState.FINISHED, self._stop_reason() or NOTHING_LEFT

    @property
    def _in_flight(self) -> int:
        return self._drafting + len(self._evaluating)

    def _fill(self) -> None:
        """Start what fits: candidates that wait first, then what the search asks for."""
        while self._in_flight < self._capacity:
            if self._waiting and self._may_evaluate():
                if len(self._evaluating) >= self._pool.slots:
                    return
                self._start_evaluation(self._waiting.popleft())
            elif self._stop_reason() is None:
                rng = engine.generator(self._spec.seed, self._state.asked)
                request = engine.ask(self._state, rng, self._drafter.operators)
                if request is None:
                    return
                self._draft(request)
            else:
                return

    def _receive(self) -> None:
        try:
            arrived = self._inbox.get(timeout=TICK_S)
        except queue.Empty:
            return
        if isinstance(arrived, Staged):
            self._ledger.stage(arrived.candidate_id, arrived.stage)
            return
        message = arrived.result()
        if isinstance(message, Drafted):
            self._drafting -= 1
            self._take_drafts(message)
        else:
            self._evaluating.discard(message.candidate.id)
            self._take_evaluation(message)

    def _submit(self, job: Callable[[], Message]) -> None:
        self._threads.submit(job).add_done_callback(self._inbox.put)

    # Drafting.

    def _draft(self, request: Request) -> None:
        offered = self._offers.get(request.key)
        if offered:
            self._take_drafts(Drafted(request, tuple(offered)))
            return
        self._drafting += 1
        # A request that is being drafted keeps its number: the next one is another.
        self._state = dataclasses.replace(self._state, asked=request.number + 1)
        context = self._context(request.island)
        self._submit(lambda: self._drafter.make(request, context))

    def _context(self, island: int) -> Context:
        return Context(tuple(self._candidates.values()), tuple(self._ledger.hints(island)))

    def _take_drafts(self, drafted: Drafted) -> None:
        request = drafted.request
        fresh = unique_drafts({"": drafted.drafts}, self._state.seen)[""]
        words = self._state.islands[request.island].strategy.words
        chosen = preferred(fresh, words)
        left = [draft for draft in fresh if draft is not chosen]
        self._offers[request.key] = left
        added = [self._add(chosen, drafted)] if chosen else []
        self._record_calls(drafted.calls, added[0] if added else None)
        if drafted.trouble:
            self._log(drafted.trouble)
        # A model or a tuner may have something else next time; a rewrite has what it has.
        has_ended = not left and request.operator is Operator.REWRITE
        is_dry = chosen is None or has_ended
        self._ledger.note("answer", replay.asked_answer(request, added, is_dry=is_dry))
        self._state = engine.drafted(self._state, request, added, is_dry=is_dry)
        self._waiting.extend(added)

    def _add(self, draft: Draft, drafted: Drafted) -> Candidate:
        request = drafted.request
        return self._put(
            Proposal(
                source=draft.source,
                island=request.island,
                parents=tuple(parent.id for parent in request.parents),
                generation=max((p.generation + 1 for p in request.parents), default=0),
                origin=draft.origin,
                move=draft.move,
                predicted_gain=draft.predicted_gain,
                entries=drafted.entries,
                arm=drafted.arm,
            )
        )

    def _put(self, proposal: Proposal) -> Candidate:
        candidate = self._ledger.add(proposal)
        self._candidates[candidate.id] = candidate
        return candidate

    def _record_calls(self, calls: Iterable[ModelCall], candidate: Candidate | None) -> None:
        for call in calls:
            about = {"candidate_id": candidate.id} if candidate else {}
            self._ledger.model_call(call.model_copy(update=about))
            self._ledger.spend(tokens=_tokens(call), money_usd=call.money_usd or 0.0)

    # Evaluating.

    def _start_evaluation(self, candidate: Candidate) -> None:
        self._evaluating.add(candidate.id)
        self._ledger.stage(candidate.id, Stage.STATIC)
        self._submit(lambda: self._evaluate(candidate))

    def _evaluate(self, candidate: Candidate) -> Evaluated:
        """In a worker thread."""

        def reached(stage: Stage) -> None:
            self._inbox.put(Staged(candidate.id, stage))

        try:
            evaluation = self._pool.evaluate(self._spec.task, candidate.source, on_stage=reached)
        except RunnerError as error:
            return Evaluated(candidate, None, f"{type(error).__name__}: {error}")
        if self._spec.use_diagnosis:
            evaluation = diagnosis.diagnose(evaluation, candidate.source)
        return Evaluated(candidate, evaluation)

    def _take_evaluation(self, answer: Evaluated) -> None:
        if answer.evaluation is None:
            self._take_failure(answer.candidate, answer.trouble)
            return
        update = {"state": answer.evaluation.state, "evaluation": answer.evaluation}
        candidate = answer.candidate.model_copy(update=update)
        self._ledger.finish(candidate.id, answer.evaluation)
        self._ledger.spend(evaluations=1, gpu_s=_gpu_seconds(answer.evaluation))
        self._spend_time()
        self._tell(candidate)
        self._note_budget()

    def _take_failure(self, candidate: Candidate, reason: str) -> None:
        """Ours, so the candidate is queued again, or abandoned when that did not help."""
        self._ledger.note("failure", {"candidate_id": candidate.id, "reason": reason[:2000]})
        self._failures[candidate.id] += 1
        if self._failures[candidate.id] >= MAX_FAILURES:
            self._abandon(candidate, reason)
        else:
            self._ledger.requeue(candidate.id, reason)
            self._waiting.append(candidate)

    def _abandon(self, candidate: Candidate, reason: str) -> None:
        self._ledger.abandon(candidate.id, reason)
        self._tell(candidate.model_copy(update={"state": Life.ABANDONED}))

    def _tell(self, candidate: Candidate) -> None:
        before = self._state
        self._candidates[candidate.id] = candidate
        self._state = engine.told(before, candidate)
        self._ledger.note("answer", replay.told_answer(candidate))
        if self._state.best is not before.best and self._state.best is not None:
            self._note_best(self._state.best)
        if self._state.migrations > before.migrations:
            self._note_migration(before, candidate)
        self._nominate(candidate)

    def _nominate(self, child: Candidate) -> None:
        parents = [self._candidates[number] for number in child.parents]
        if not parents:
            return
        parent = max(parents, key=worth)
        entry = experience.distil(parent, child, self._spec.task, self._report)
        if entry is not None:
            self._ledger.note("nomination", entry.model_dump(mode="json"))

    # Budget and time.

    def _spent(self) -> dict[str, float]:
        spent = dict(self._ledger.spent())
        spent["wall_s"] = spent.get("wall_s", 0.0) + self._clock() - self._clocked
        return spent

    def _spend_time(self) -> None:
        now = self._clock()
        self._ledger.spend(wall_s=now - self._clocked)
        self._clocked = now

    def _stop_reason(self) -> str | None:
        spent = self._spent()
        # What is being drafted is not pending yet, but will be.
        spent["evaluations"] = spent.get("evaluations", 0) + self._drafting
        return stopping.stop_reason(self._state, self._spec.budget, spent)

    def _may_evaluate(self) -> bool:
        """Whether a candidate that waits fits the budget; itself and what waits with it are not counted against it."""
        running = {k: v for k, v in self._state.pending.items() if k in self._evaluating}
        state = dataclasses.replace(self._state, pending=running)
        return stopping.stop_reason(state, self._spec.budget, self._spent()) is None

    # The first generation.

    def _seed(self) -> None:
        """Fill the islands once in the life of a run; what a killed runner had already added is not added again."""
        if not any(answer["event"] == "seeded" for answer in self._ledger.notes("answer")):
            self._deal()
        if not self._candidates:
            self._seed_by_model()

    def _deal(self) -> None:
        limit = seeding.seed_limit(self._spec.budget.evaluations, self._spec.islands)
        offers = unique_drafts(self._drafter.first_drafts(self._log), self._state.seen)
        dealt = seeding.deal(offers, self._state.islands, limit - len(self._candidates))
        added = [
            self._put(
                Proposal(
                    source=draft.source,
                    island=island,
                    origin=draft.origin,
                    move=draft.move,
                    predicted_gain=draft.predicted_gain,
                )
            )
            for island, draft in dealt
        ]
        self._ledger.note("answer", replay.seeded_answer(added))
        self._state = engine.enqueued(self._state, added, Operator.SEED)
        self._waiting.extend(added)

    def _seed_by_model(self) -> None:
        """Nothing else has a first candidate: let the model write one for each island from the reference alone."""
        if not self._drafter.has_model:
            self._log(NO_FIRST)
            return
        for island in self._state.islands:
            self._draft(Request(self._state.asked, island.index, Operator.SEED, ()))

    def _take_injected(self) -> None:
        for proposal in self._ledger.injected():
            island = min(proposal.island, self._spec.islands - 1)
            candidate = self._put(proposal.model_copy(update={"island": island}))
            self._join(candidate, Operator.PERSON)
            self._waiting.appendleft(candidate)

    def _join(self, candidate: Candidate, operator: Operator) -> None:
        self._ledger.note("answer", replay.joined_answer(candidate, operator))
        self._state = engine.enqueued(self._state, [candidate], operator)

    # Resuming.

    def _resume(self) -> None:
        """Fold the ledger's answers into the state and queue what was not finished."""
        self._candidates = {candidate.id: candidate for candidate in self._ledger.candidates()}
        self._failures = Counter(n["candidate_id"] for n in self._ledger.notes("failure"))
        self._state = replay.replay(
            self._spec.islands, self._candidates, self._ledger.notes("answer")
        )
        self._settle_evaluations()
        for candidate in list(self._candidates.values()):
            if candidate.id not in self._state.operators:
                self._join(candidate, Operator.SEED)
            if candidate.id in self._state.pending:
                self._take_up(candidate)

    def _settle_evaluations(self) -> None:
        """A kill between an evaluation's end and its price must not leave the evaluation unpaid."""
        ended = (Life.FINISHED, Life.UNEVALUATED)
        done = sum(candidate.state in ended for candidate in self._candidates.values())
        unpaid = done - self._ledger.spent().get("evaluations", 0)
        if unpaid > 0:
            self._ledger.spend(evaluations=unpaid)

    def _take_up(self, candidate: Candidate) -> None:
        if candidate.state is Life.QUEUED:
            self._waiting.append(candidate)
        elif candidate.state is Life.EVALUATING:
            self._take_interrupted(candidate)
        else:
            self._tell(candidate)

    def _take_interrupted(self, candidate: Candidate) -> None:
        reason = "the runner stopped while evaluating it"
        self._ledger.note("interruption", {"candidate_id": candidate.id})
        notes = self._ledger.notes("interruption")
        if sum(note["candidate_id"] == candidate.id for note in notes) >= MAX_INTERRUPTIONS:
            self._abandon(candidate, reason)
            return
        self._ledger.requeue(candidate.id, reason)
        self._waiting.append(candidate)

    # Ending.

    def _finish(self, run_state: RunState, reason: str) -> RunResult:
        best = self._state.best
        if run_state is RunState.FINISHED:
            for candidate in self._waiting:
                self._ledger.abandon(candidate.id, f"the run ended first: {reason}")
            best = self._published()
        result = results.summarise(
            self._spec,
            self._state,
            self._ledger.candidates(),
            self._ledger.spent(),
            run_state=run_state,
            stop_reason=reason,
            best=best,
        )
        self._ledger.note("result", result.as_json())
        self._ledger.set_state(run_state, reason)
        return result

    def _published(self) -> Candidate | None:
        """The best candidate with measured times taken once more; the next best where it does not hold.

        Selection favours lucky timings, so what is published is never the timing that won. Modelled times have no luck.
        """
        best = self._state.best
        if best is None or not _is_measured(best):
            return best
        others = [c for c in self._candidates.values() if is_correct(c) and c.id != best.id]
        for candidate in [best, *sorted(others, key=rank_key)][:MAX_PUBLISHED]:
            answer = self._evaluate(candidate)
            if answer.evaluation is None:
                self._log(f"the best could not be timed once more: {answer.trouble}")
                return best
            payload = answer.evaluation.model_dump(mode="json")
            self._ledger.note("published", {"candidate_id": candidate.id, "evaluation": payload})
            if answer.evaluation.is_correct:
                return candidate.model_copy(update={"evaluation": answer.evaluation})
        return None

    # Notes.

    def _describe_islands(self) -> None:
        if self._ledger.notes("island"):
            return
        for island in self._state.islands:
            strategy = island.strategy
            self._ledger.note(
                "island",
                {"index": island.index, "strategy": strategy.name, "lens": strategy.lens},
            )

    def _note_best(self, best: Candidate) -> None:
        self._ledger.note(
            "best",
            {
                "candidate_id": best.id,
                "island": best.island,
                "generation": best.generation,
                "fitness": best.fitness,
            },
        )

    def _note_migration(self, before: State, candidate: Candidate) -> None:
        joined = engine.told(before, candidate, may_migrate=False)
        for candidate_id, to in migration.moved(joined.islands, self._state.islands):
            origin = self._candidates[candidate_id].island
            self._ledger.note("migration", {"candidate_id": candidate_id, "home": origin, "to": to})

    def _note_budget(self) -> None:
        budget = self._spec.budget.model_dump(exclude_none=True)
        self._ledger.note("budget", {"spent": self._ledger.spent(), "budget": budget})

    def _log(self, text: str) -> None:
        self._ledger.note("log", {"text": text[:2000]})


def _failed(ledger: Ledger, reason: str) -> RunResult:
    return results.summarise(
        ledger.spec,
        engine.begin(ledger.spec.islands),
        ledger.candidates(),
        ledger.spent(),
        run_state=RunState.FAILED,
        stop_reason=reason,
        best=None,
    )


def _tokens(call: ModelCall) -> int:
    """What a call is charged; endpoints that do not count are charged four characters a token."""
    if call.tokens_in is not None and call.tokens_out is not None:
        return call.tokens_in + call.tokens_out
    is_lost = call.outcome in ("unreachable", "refused")
    return 0 if is_lost else (len(call.prompt) + len(call.reply)) // 4


def _is_measured(candidate: Candidate) -> bool:
    evaluation = candidate.evaluation
    return evaluation is not None and evaluation.fidelity is Fidelity.MEASURED


def _gpu_seconds(evaluation: Evaluation) -> float:
    on_gpu = evaluation.fidelity is Fidelity.MEASURED
    return sum(stage.seconds for stage in evaluation.stages) if on_gpu else 0.0
