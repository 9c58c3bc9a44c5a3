"""The loop of one run: ask the search what to try, draft it, evaluate it, tell the search, remember everything.

One thread, the caller's, owns the search's state and the ledger; drafting and evaluating happen in worker threads that
report through a queue. Whatever is needed to go on after a kill is in the ledger before the next step begins: candidates,
and the notes `answer` (the order of the search's answers) and `failure` (ours, counted per candidate).
"""

import dataclasses
import queue
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from gpu_runner import diagnosis, experience
from gpu_runner.core.candidate import Candidate, Proposal
from gpu_runner.core.entries import Entry
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.ledger import Ledger, ModelCall
from gpu_runner.core.source import fingerprint
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Fidelity, RunState, Stage
from gpu_runner.core.verdicts import State as Life
from gpu_runner.evaluation.errors import ChildFailed, InvalidTask, RunnerError
from gpu_runner.evolution import engine, migration, results, seeding, stopping
from gpu_runner.evolution.fitness import rank_key
from gpu_runner.evolution.results import RunResult
from gpu_runner.evolution.types import Operator, Request, State
from gpu_runner.proposals.models import Models, Order, ProfileError, Profiles, Writer
from gpu_runner.proposals.types import Draft
from gpu_runner.sources import Pool, Sources, standard_sources

MAX_FAILURES: Final = 3
"""Failures of ours on one candidate before it is abandoned."""
MAX_INTERRUPTIONS: Final = 10
"""Times that the runner may die while it evaluates one candidate before that looks like the candidate's doing."""
MAX_PUBLISHED: Final = 3
"""How many of the best are timed once more until one holds."""
TICK_S: Final = 0.5

MODEL_OPERATORS: Final = frozenset(
    {Operator.IMPROVE, Operator.REPAIR, Operator.CROSSOVER, Operator.SIMPLIFY, Operator.SEED}
)
NOTHING_LEFT: Final = "nothing left to try: no source has a new proposal for any kept candidate"
BY_PERSON: Final = "stopped by a person"


@dataclass(frozen=True)
class Staged:
    candidate_id: int
    stage: Stage


@dataclass(frozen=True)
class Drafted:
    request: Request
    drafts: tuple[Draft, ...]
    calls: tuple[ModelCall, ...] = ()
    trouble: str = ""
    arm: str = ""
    entries: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evaluated:
    candidate: Candidate
    evaluation: Evaluation | None
    trouble: str = ""


Message = Staged | Drafted | Evaluated


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
        The result, also written as the note `result`; its state is PAUSED when the run is to be gone on with later.

    Raises:
        InvalidTask: the reference cannot be used; the run is FAILED with the reason.
        ProfileError: the run names a model that the operator has not configured; FAILED too.
        LeaseLost: another runner has the run.
        RunnerError: the evaluator itself does not work; the run can be resumed.
    """
    spec = ledger.spec
    try:
        writer = (models or Models(Profiles())).writer(spec.model) if spec.model else None
        report = pool.inspect(spec.task)
    except (InvalidTask, ProfileError) as error:
        ledger.set_state(RunState.FAILED, str(error))
        raise
    entries = tuple(library or ()) if spec.use_library else ()
    return _Run(ledger, pool, report, sources or standard_sources(), writer, entries, clock).work()


class _Run:
    """The shell around the search's state. Only the caller's thread touches anything of it but `_inbox`."""

    def __init__(
        self,
        ledger: Ledger,
        pool: Pool,
        report: TaskReport,
        sources: Sources,
        writer: Writer | None,
        entries: tuple[Entry, ...],
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._pool = pool
        self._spec = ledger.spec
        self._report = report
        self._sources = sources
        self._writer = writer
        self._entries = entries
        self._clock = clock
        self._clocked = clock()
        self._state = engine.begin(self._spec.islands)
        self._candidates: dict[int, Candidate] = {}
        self._waiting: deque[Candidate] = deque()
        self._offers: dict[tuple[Operator, tuple[int, ...]], deque[Draft]] = {}
        self._drafting = 0
        self._evaluating: set[int] = set()
        self._inbox: queue.SimpleQueue[Staged | Future[Message]] = queue.SimpleQueue()
        self._failures: Counter[int] = Counter()
        # One draft ahead of the slots where a model may take a minute; without, an answer decides the next question.
        self._capacity = pool.slots + (1 if writer else 0)
        self._threads = ThreadPoolExecutor(self._capacity, thread_name_prefix="run")

    def work(self) -> RunResult:
        try:
            self._resume()
            self._ledger.set_state(RunState.RUNNING)
            self._describe_islands()
            if self._ledger.wanted() is RunState.RUNNING:
                self._seed()
            state, reason = self._loop()
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)
        return self._finish(state, reason)

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
                request = engine.ask(self._state, self._rng(), self._available())
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
        message = arrived if isinstance(arrived, Staged) else arrived.result()
        if isinstance(message, Staged):
            self._ledger.stage(message.candidate_id, message.stage)
        elif isinstance(message, Drafted):
            self._drafting -= 1
            self._take_drafts(message)
        else:
            self._evaluating.discard(message.candidate.id)
            self._take_evaluation(message)

    def _submit(self, job: Callable[[], Message]) -> None:
        self._threads.submit(job).add_done_callback(self._inbox.put)

    # Drafting.

    def _available(self) -> frozenset[Operator]:
        """Operators with a source; `repair` by tuning alone is offered too, it ends on the first try elsewhere."""
        steps = frozenset(self._sources.steps)
        return steps | (MODEL_OPERATORS if self._writer and self._writer.is_usable else frozenset())

    def _draft(self, request: Request) -> None:
        offered = self._offers.get(request.key)
        if offered:
            self._take_drafts(Drafted(request, tuple(offered)))
            return
        self._drafting += 1
        self._submit(lambda: self._make_drafts(request))

    def _make_drafts(self, request: Request) -> Drafted:
        """In a worker thread: ask the operator's source, and the model where the operator has no other."""
        rng = engine.generator(self._spec.seed, request.number)
        step = self._sources.steps.get(request.operator)
        trouble = ""
        if step is not None:
            try:
                drafts = step(self._pool, self._spec.task, request, rng)
            except (ChildFailed, RunnerError) as error:
                drafts, trouble = [], f"{request.operator} failed: {error}"
            if drafts or not self._may_write(request):
                return Drafted(request, tuple(drafts), trouble=trouble)
        if not self._may_write(request):
            return Drafted(request, (), trouble=trouble)
        return self._write(request)

    def _may_write(self, request: Request) -> bool:
        usable = self._writer is not None and self._writer.is_usable
        return usable and request.operator in MODEL_OPERATORS

    def _write(self, request: Request) -> Drafted:
        assert self._writer is not None
        rng = engine.generator(self._spec.seed, request.number)
        arm = "with" if self._entries and rng.random() >= experience.SHARE_WITHOUT else "without"
        retrieved = self._retrieve(request) if arm == "with" else ()
        order = Order(
            role=request.operator.value,
            task=self._spec.task,
            report=self._report,
            device=f"{self._pool.device.name} ({self._pool.device.kind})",
            island=request.island,
            lens=self._state.islands[request.island].strategy.lens,
            temperature=self._state.islands[request.island].strategy.temperature,
            parents=request.parents,
            examples=request.examples,
            entries=tuple(hit.entry for hit in retrieved),
            failed=self._failed_moves(request),
            show_findings=self._spec.use_diagnosis,
        )
        written = self._writer.write(order)
        return Drafted(
            request,
            (written.draft,) if written.draft else (),
            calls=written.calls,
            trouble=written.trouble,
            arm=arm if self._entries else "",
            entries=tuple(hit.entry.id for hit in retrieved),
        )

    def _retrieve(self, request: Request) -> tuple[experience.Retrieved, ...]:
        return experience.retrieve(
            self._entries, experience.query_for(self._spec.task, self._report, request.parents)
        )

    def _failed_moves(self, request: Request) -> tuple[str, ...]:
        """What was tried on these parents and gained nothing; ids ascending, at most the last six."""
        wanted = {parent.id for parent in request.parents}
        fitness = max((parent.fitness for parent in request.parents), default=0.0)
        failed = [
            f"{child.move} -> {_outcome(child)}"
            for child in list(self._candidates.values())
            if wanted & set(child.parents)
            and child.state is Life.FINISHED
            and child.fitness <= fitness
        ]
        return tuple(failed[-6:])

    def _take_drafts(self, drafted: Drafted) -> None:
        request = drafted.request
        fresh = _new_drafts(drafted.drafts, self._state)
        chosen = _preferred(fresh, self._state.islands[request.island].strategy.words)
        left = deque(draft for draft in fresh if draft is not chosen)
        self._offers[request.key] = left
        candidate = self._add(chosen, drafted) if chosen else None
        self._record_calls(drafted.calls, candidate)
        if drafted.trouble:
            self._log(drafted.trouble)
        # A model or a tuner may have something else next time; a rewrite has what it has.
        is_dry = chosen is None or (
            not left and request.operator in (Operator.REWRITE, Operator.CROSSOVER)
        )
        added = [candidate] if candidate else []
        self._note_asked(request, added, is_dry=is_dry)
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
            self._ledger.spend(
                tokens=(call.tokens_in or 0) + (call.tokens_out or 0),
                money_usd=call.money_usd or 0.0,
            )

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
        self._ledger.spend(evaluations=1, gpu_s=self._gpu_seconds(answer.evaluation))
        self._spend_time()
        self._tell(candidate)
        self._note_budget()

    def _take_failure(self, candidate: Candidate, reason: str) -> None:
        """Ours, so the candidate is queued again, or abandoned when that did not help."""
        self._ledger.note("failure", {"candidate_id": candidate.id, "reason": reason})
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
        self._ledger.note("answer", {"event": "told", "candidate": candidate.id})
        if self._state.best is not before.best and self._state.best is not None:
            self._note_best(self._state.best)
        if self._state.migrations > before.migrations:
            self._note_migration(before, candidate)
        self._nominate(candidate)

    def _nominate(self, child: Candidate) -> None:
        for parent_id in child.parents:
            parent = self._candidates.get(parent_id)
            entry = (
                experience.distil(parent, child, self._spec.task, self._report) if parent else None
            )
            if entry is not None:
                self._ledger.note("nomination", entry.model_dump(mode="json"))

    def _gpu_seconds(self, evaluation: Evaluation) -> float:
        on_gpu = evaluation.fidelity is Fidelity.MEASURED
        return sum(stage.seconds for stage in evaluation.stages) if on_gpu else 0.0

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

    def _rng(self) -> Any:
        return engine.generator(self._spec.seed, self._state.asked)

    # The first generation.

    def _seed(self) -> None:
        """Fill the islands once in the life of a run; what a killed runner had already added is not added again."""
        if any(note["event"] == "seeded" for note in self._ledger.notes("answer")):
            return
        limit = seeding.seed_limit(self._spec.budget.evaluations, self._spec.islands)
        islands = self._state.islands
        dealt = seeding.deal(self._first_drafts(), islands, limit - len(self._candidates))
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
        self._ledger.note("answer", {"event": "seeded", "candidates": [c.id for c in added]})
        self._state = engine.enqueued(self._state, added, Operator.SEED)
        self._waiting.extend(added)
        if not self._candidates:
            self._seed_by_model()

    def _first_drafts(self) -> dict[str, list[Draft]]:
        """New drafts by kind of origin, in the order of preference of each source."""
        offers: dict[str, list[Draft]] = {}
        if self._spec.task.baseline_source is not None:
            own = Draft(
                source=self._spec.task.baseline_source,
                origin="person:baseline",
                move="the submitter's own kernel",
            )
            offers["person"] = [own]
        if self._spec.use_initialisers:
            for kind, initialise in self._sources.initialisers.items():
                offers[kind] = self._initial(kind, initialise)
            offers["retrieval"] = self._demonstrations()
        unique = iter_unique(offers, self._state)
        return {kind: list(drafts) for kind, drafts in unique.items()}

    def _demonstrations(self) -> list[Draft]:
        query = experience.query_for(self._spec.task, self._report, ())
        return [
            Draft(
                source=entry.content.after,
                origin=f"retrieval:{entry.id}",
                move=f"demonstration {entry.id}: {entry.content.title}"[:300],
            )
            for entry in experience.demonstrations(self._entries, query)
        ]

    def _initial(self, kind: str, initialise: Callable[..., list[Draft]]) -> list[Draft]:
        try:
            return initialise(self._pool, self._spec.task, self._report)
        except (ChildFailed, RunnerError) as error:
            self._log(f"the {kind} initialiser failed: {error}")
            return []

    def _seed_by_model(self) -> None:
        """Nothing else has a first candidate: let the model write one for each island from the reference alone."""
        if self._writer is None:
            self._log(
                "no source has a first candidate for this task; configure a model or inject a kernel"
            )
            return
        for island in self._state.islands:
            request = Request(self._state.asked, island.index, Operator.SEED, ())
            self._take_drafts(self._write(request))

    def _take_injected(self) -> None:
        for proposal in self._ledger.injected():
            fitted = proposal.model_copy(
                update={"island": min(proposal.island, self._spec.islands - 1)}
            )
            candidate = self._put(fitted)
            self._ledger.note(
                "answer",
                {"event": "asked", "operator": "person", "candidates": [candidate.id]},
            )
            self._state = engine.enqueued(self._state, [candidate], Operator.PERSON)
            self._waiting.appendleft(candidate)

    # Resuming.

    def _resume(self) -> None:
        """Fold the ledger's answers into the state and queue what was not finished."""
        self._candidates = {candidate.id: candidate for candidate in self._ledger.candidates()}
        self._failures = Counter(n["candidate_id"] for n in self._ledger.notes("failure"))
        self._state = replay(self._spec.islands, self._candidates, self._ledger.notes("answer"))
        known = self._state.operators.keys()
        orphans = [c for c in self._candidates.values() if c.id not in known]
        self._state = engine.enqueued(self._state, orphans, Operator.SEED)
        for candidate in orphans:
            answer = {"event": "asked", "operator": "seed", "candidates": [candidate.id]}
            self._ledger.note("answer", answer)
        self._settle_evaluations()
        for candidate in list(self._candidates.values()):
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
        if candidate.state in (Life.FINISHED, Life.UNEVALUATED, Life.ABANDONED):
            self._tell(candidate)
        elif candidate.state is Life.QUEUED:
            self._waiting.append(candidate)
        else:
            self._take_interrupted(candidate)

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
        if (
            best is None
            or best.evaluation is None
            or best.evaluation.fidelity is not Fidelity.MEASURED
        ):
            return best
        correct = [c for c in self._candidates.values() if c.fitness > 0 and c.id != best.id]
        for candidate in [best, *sorted(correct, key=rank_key)][:MAX_PUBLISHED]:
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

    def _note_asked(
        self, request: Request, candidates: Sequence[Candidate], *, is_dry: bool
    ) -> None:
        self._ledger.note(
            "answer",
            {
                "event": "asked",
                "number": request.number,
                "island": request.island,
                "operator": request.operator.value,
                "parents": [parent.id for parent in request.parents],
                "candidates": [candidate.id for candidate in candidates],
                "dry": is_dry,
            },
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


def replay(
    islands: int, candidates: Mapping[int, Candidate], answers: Iterable[Mapping[str, Any]]
) -> State:
    """The search's state after a run's answers in their order.

    Candidates that are not finished in the ledger are skipped when told: they were lost between two writes and are told
    again.
    """
    state = engine.begin(islands)
    for answer in answers:
        if answer["event"] == "told":
            candidate = candidates[answer["candidate"]]
            if candidate.state not in (Life.QUEUED, Life.EVALUATING):
                state = engine.told(state, candidate)
            continue
        made = [candidates[number] for number in answer["candidates"]]
        operator = Operator(answer.get("operator", "seed"))
        if "number" not in answer:
            state = engine.enqueued(state, made, operator)
            continue
        parents = tuple(candidates[number] for number in answer["parents"])
        request = Request(answer["number"], answer["island"], operator, parents)
        state = engine.drafted(state, request, made, is_dry=answer["dry"])
    return state


def iter_unique(
    offers: Mapping[str, Iterable[Draft]], state: State
) -> dict[str, tuple[Draft, ...]]:
    """Drafts that are new to a run and to each other; of equal ones the first kind keeps it."""
    known = set(state.seen)
    unique: dict[str, tuple[Draft, ...]] = {}
    for kind, drafts in offers.items():
        kept = []
        for draft in drafts:
            mark = fingerprint(draft.source)
            if mark not in known:
                known.add(mark)
                kept.append(draft)
        unique[kind] = tuple(kept)
    return unique


def _new_drafts(drafts: Iterable[Draft], state: State) -> list[Draft]:
    return list(iter_unique({"": drafts}, state)[""])


def _preferred(drafts: Sequence[Draft], words: Sequence[str]) -> Draft | None:
    """The draft that suits an island's strategy best; among those the one with the largest predicted gain."""

    def key(draft: Draft) -> tuple[bool, float]:
        text = f"{draft.origin} {draft.move}".lower()
        return any(word in text for word in words), draft.predicted_gain or 1.0

    return max(drafts, key=key, default=None)


def _outcome(candidate: Candidate) -> str:
    if candidate.fitness > 0:
        return f"correct, no faster ({candidate.fitness:.2f})"
    evaluation = candidate.evaluation
    lead = evaluation.lead.title if evaluation and evaluation.lead else ""
    return f"{evaluation.verdict if evaluation else 'not evaluated'}: {lead}"
