"""The course of one run: ask the search what to try, draft it, evaluate it, tell the search, remember everything.

The driver's thread owns all of it, the ledger included; drafting and evaluating happen in worker threads that report by
messages. Whatever is needed to go on after a kill is in the ledger before the next step begins: candidates, and the notes
`answer` (the order of the search's answers) and `failure` (ours, counted per candidate).
"""

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gpu_runner import diagnosis, experience
from gpu_runner.advising import Adviser, Planned, Summarised
from gpu_runner.core.candidate import RUN_ENDED, Candidate, Proposal
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.ledger import Ledger, ModelCall
from gpu_runner.core.search import Method
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Fidelity, RunState, Stage
from gpu_runner.core.verdicts import State as Life
from gpu_runner.drafting import Context, Drafted, Drafter, preferred, unique_drafts
from gpu_runner.evaluation.errors import InvalidTask, RunnerError
from gpu_runner.evolution import (
    bandit,
    engine,
    migration,
    notes,
    replay,
    results,
    seeding,
    stopping,
    texts,
)
from gpu_runner.evolution.fitness import is_correct, rank_key, worth
from gpu_runner.evolution.plans import Suggestion
from gpu_runner.evolution.results import RunResult
from gpu_runner.evolution.types import Key, Operator, Request, Settings, State
from gpu_runner.proposals.models import Models, ProfileError, Role, Team, Writer
from gpu_runner.proposals.models.prices import Allowance
from gpu_runner.proposals.models.writer import Consulted, Post
from gpu_runner.proposals.types import Draft
from gpu_runner.purse import Purse, tokens_of
from gpu_runner.questions import Answer, Question
from gpu_runner.sources import Pool, Sources

MAX_FAILURES: Final = 3
"""Failures of ours on one candidate before it is abandoned."""
MAX_INTERRUPTIONS: Final = 10
"""Times that the runner may die while it evaluates one candidate before that looks like the candidate's doing."""
MAX_SEEDINGS: Final = 3
"""How often a model is asked for first candidates where none of its answers could be used."""
RESULTS_PER_PLAN: Final = 6
"""Evaluations between two looks of a planner at the plan."""
MAX_BASES: Final = 4
"""Kernels that a planner is shown, the best ones."""
MAX_PUBLISHED: Final = 3
"""How many of the best are timed once more until one holds."""

NOTHING_LEFT: Final = "nothing left to try: no source has a new proposal for any kept candidate"
BY_PERSON: Final = "stopped by a person"
NO_FIRST: Final = "no source has a first candidate for this task; configure a model, or give your own kernel as a baseline"


@dataclass(frozen=True)
class Inspected:
    report: TaskReport


@dataclass(frozen=True)
class Offered:
    """First candidates by kind of origin, and what went wrong on the way."""

    offers: Mapping[str, Sequence[Draft]]
    troubles: tuple[str, ...]


@dataclass(frozen=True)
class Staged:
    candidate_id: int
    stage: Stage


@dataclass(frozen=True)
class Evaluated:
    """`evaluation` is None where we failed; `trouble` says how. `is_again`: of the best, before it is published."""

    candidate: Candidate
    evaluation: Evaluation | None
    trouble: str = ""
    is_again: bool = False


Message = Inspected | Offered | Drafted | ModelCall | Staged | Evaluated | Planned | Summarised
Job = Callable[[], Message]


class Desk(Protocol):
    """What a course has others do."""

    def think(self, job: Job) -> None:
        """Run it in a thread of its own; what it returns or raises comes to `take`."""

    def tell(self, message: Message) -> None:
        """Something for `take`; from any thread."""


class Course:
    """The shell around one search's state.

    Args:
        models: the operator's profiles; needed where the run names one.
        batch: requests per island that are written to files at a time instead of sent; 0 sends them.
        library: the approved entries that the run's owner may see; None where there are none.

    Attributes:
        result: what came of it, once it is over or rests; the state is PAUSED when it is to be gone on with later.
    """

    def __init__(
        self,
        ledger: Ledger,
        pool: Pool,
        desk: Desk,
        *,
        models: Models,
        library: experience.Shelf | None,
        sources: Sources,
        clock: Callable[[], float],
        batch: int = 0,
    ) -> None:
        self.result: RunResult | None = None
        self._ledger = ledger
        self._pool = pool
        self._desk = desk
        self._models = models
        self._batch = batch
        self._sources = sources
        self._spec = ledger.spec
        self._shelf = library if self._spec.use_library else None
        self._purse = Purse(ledger, clock)
        self._team = Team()
        self._drafter: Drafter | None = None
        self._adviser = Adviser(self._team, self._spec.task, self._purse)
        self._seedings = 0
        self._report = TaskReport(inputs=(), outputs=(), probe=None)
        self._settings = Settings(method=self._spec.method, models=self._spec.models)
        self._state = engine.begin(self._spec.islands, self._settings)
        self._candidates: dict[int, Candidate] = {}
        self._waiting: deque[Candidate] = deque()
        self._offers: dict[Key, list[Draft]] = {}
        self._drafting = 0
        self._advising = 0
        self._is_planning = False
        self._planned_at = 0
        self._posted: dict[str, Question] = {}
        self._set_aside: dict[str, tuple[Allowance, ...]] = {}
        self._evaluating: set[int] = set()
        self._stages: dict[int, Stage] = {}
        self._failures: Counter[int] = Counter()
        # What needs a slot besides candidates: the look at the task, and the best once more at the end.
        self._errands: deque[Job] = deque()
        self._contenders: deque[Candidate] = deque()
        self._ending: tuple[RunState, str] | None = None

    # What the driver calls.

    def start(self) -> None:
        """Ask for a slot to look at the task; a run whose model is not configured has failed."""
        try:
            self._team = Team([self._hired(name) for name in self._spec.models])
            self._adviser = Adviser(self._team, self._spec.task, self._purse)
        except ProfileError as error:
            self._ledger.set_state(RunState.FAILED, str(error))
            self.result = self._summary(RunState.FAILED, str(error), None)
        else:
            self._errands.append(self._inspect)

    def _hired(self, model: str) -> Writer:
        if self._batch:
            return self._models.poster(model, self._batch)
        return self._models.writer(model)

    @property
    def is_hungry(self) -> bool:
        """Whether it has something for a slot."""
        if self._errands:
            return True
        return bool(self._waiting) and self._is_going and self._may_evaluate()

    def slot_job(self) -> Job:
        """What a slot is to do next; the course must be hungry."""
        if self._errands:
            return self._errands.popleft()
        return self._started(self._waiting.popleft())

    def take(self, message: Message) -> None:
        match message:
            case Staged():
                self._stages[message.candidate_id] = message.stage
            case Evaluated(is_again=True):
                self._take_published(message)
            case Evaluated():
                self._evaluating.discard(message.candidate.id)
                self._stages.pop(message.candidate.id, None)
                self._take_evaluation(message)
            case Drafted():
                self._drafting -= 1
                self._take_drafts(message)
            case ModelCall():
                self._record_call(message, None)
            case Planned():
                self._advising -= 1
                self._take_plan(message)
            case Summarised():
                self._advising -= 1
                self._take_summary(message)
            case Offered():
                self._drafting -= 1
                self._deal(message)
            case Inspected():
                self._begin(message.report)

    def fail(self, error: BaseException) -> None:
        """A job raised; what is not the task's fault goes on to the caller."""
        if isinstance(error, InvalidTask):
            self._ledger.set_state(RunState.FAILED, str(error))
        raise error

    def write_stages(self) -> None:
        """The gates that candidates have reached since the last time."""
        for candidate_id, stage in self._stages.items():
            self._ledger.stage(candidate_id, stage)
        self._stages.clear()

    def advance(self) -> None:
        """Start what can be started now; ends the run where nothing can."""
        if self._drafter is None or self._ending is not None:
            return
        wanted = self._ledger.wanted()
        self._take_injected()
        if wanted is RunState.RUNNING:
            self._fill()
        if self._in_flight or self._advising:
            return
        if wanted is RunState.RUNNING and self._is_patient:
            return
        self._end(*self._rest(wanted))

    # Beginning.

    def _inspect(self) -> Inspected:
        """In a worker thread."""
        return Inspected(self._pool.inspect(self._spec.task))

    def _begin(self, report: TaskReport) -> None:
        self._report = report
        self._ledger.report(report)
        self._drafter = Drafter(
            self._pool,
            self._spec,
            report,
            self._sources,
            self._team,
            self._adviser,
            self._shelf,
            self._purse,
        )
        self._resume()
        self._ledger.set_state(RunState.RUNNING)
        self._describe_islands()
        if self._ledger.wanted() is not RunState.RUNNING:
            return
        if not any(answer["event"] == "seeded" for answer in self._ledger.notes("answer")):
            self._drafting += 1
            self._desk.think(self._first_drafts)
        elif not (self._candidates or self._drafter.has_model):
            self._log(NO_FIRST)

    def _first_drafts(self) -> Offered:
        """In a worker thread."""
        assert self._drafter is not None
        troubles: list[str] = []
        return Offered(self._drafter.first_drafts(troubles.append), tuple(troubles))

    def _deal(self, offered: Offered) -> None:
        """Fill the islands once in the life of a run; what a killed runner had already added is not added again."""
        for trouble in offered.troubles:
            self._log(trouble)
        limit = seeding.seed_limit(self._purse.budget.evaluations, self._spec.islands)
        offers = unique_drafts(offered.offers, self._state.seen)
        dealt = seeding.deal(offers, self._state.islands, limit - len(self._candidates))
        with self._ledger.together():
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
        assert self._drafter is not None
        if not (self._candidates or self._drafter.has_model):
            self._log(NO_FIRST)

    def _seed_by_model(self) -> None:
        """Nothing else has a first candidate: let the model write one for each island from the reference alone."""
        writers = self._team.usable(Role.INITIALISER)
        self._seedings += 1
        for island in self._state.islands:
            if writers and self._stop_reason() is None:
                number, own = self._state.asked, self._settings.model_of(island.index)
                model = own if own in writers else writers[0]
                self._draft(Request(number, island.index, Operator.SEED, (), model=model))

    # Drafting.

    @property
    def _in_flight(self) -> int:
        return self._drafting + len(self._evaluating)

    @property
    def _is_going(self) -> bool:
        return self._ending is None and self._ledger.wanted() is RunState.RUNNING

    @property
    def _is_patient(self) -> bool:
        """Whether something may come by itself: a slot for what waits, or a model that does not answer just now."""
        assert self._drafter is not None
        if self._waiting and self._may_evaluate():
            return True
        return self._drafter.is_model_away and self._stop_reason() is None

    def _fill(self) -> None:
        """Ask the search for drafts, as many as there is room for."""
        assert self._drafter is not None
        has_nothing = not (self._candidates or self._in_flight or self._posted)
        # The control arm asks for first candidates throughout.
        is_search = self._spec.method is Method.EVOLUTION
        if has_nothing and is_search and self._drafter.has_model:
            if self._seedings < MAX_SEEDINGS:
                self._seed_by_model()
            return
        while self._has_room() and self._stop_reason() is None:
            rng = engine.generator(self._spec.seed, self._state.asked)
            request = engine.ask(self._state, rng, self._drafter.ways)
            if request is None:
                return
            self._draft(request)

    def _has_room(self) -> bool:
        """With a model, which may take a minute, a draft per island ahead; without, an answer decides the next question."""
        assert self._drafter is not None
        if self._drafter.has_model:
            ahead = self._drafting + len(self._waiting) + len(self._posted)
            return ahead < self._spec.islands * self._drafter.requests_per_island
        return not self._waiting and self._in_flight < self._pool.slots

    def _draft(self, request: Request) -> None:
        assert self._drafter is not None
        offered = self._offers.get(request.key)
        if offered:
            self._take_drafts(Drafted(request, tuple(offered)))
            return
        self._drafting += 1
        self._state = engine.asked(self._state, request)
        context = self._context(request.island)
        drafter, tell = self._drafter, self._desk.tell
        self._desk.think(lambda: drafter.make(request, context, tell))

    def _context(self, island: int) -> Context:
        return Context(tuple(self._candidates.values()), tuple(self._ledger.hints(island)))

    def _take_drafts(self, drafted: Drafted) -> None:
        if drafted.post is not None:
            self._post(drafted, drafted.post)
            return
        request = drafted.request
        fresh = unique_drafts({"": drafted.drafts}, self._state.seen)[""]
        words = self._state.islands[request.island].strategy.words
        chosen = preferred(fresh, words)
        left = [draft for draft in fresh if draft is not chosen]
        self._offers[request.key] = left
        # A model or a tuner may have something else next time; a rewrite has what it has.
        has_ended = not left and request.operator is Operator.REWRITE
        is_dry = (chosen is None or has_ended) and not drafted.is_put_off
        cost = bandit.price(_amounts(drafted), self._purse.budget)
        before = self._state
        with self._ledger.together():
            added = [self._add(chosen, drafted)] if chosen else []
            for call in drafted.calls:
                self._record_call(call, added[0] if added else None)
            if drafted.trouble:
                self._log(drafted.trouble)
            self._ledger.note(
                "answer", replay.asked_answer(request, added, is_dry=is_dry, cost=cost)
            )
            self._state = engine.drafted(before, request, added, is_dry=is_dry, cost=cost)
            self._note_changes(before)
            self._purse.spend(iterations=1)
        for allowance in drafted.allowances:
            self._purse.settle(allowance)
        self._waiting.extend(added)

    def _post(self, drafted: Drafted, post: Post) -> None:
        """A request for a batch file: it waits there until its answer is imported."""
        question = Question.of(self._spec, drafted, post)
        with self._ledger.together():
            for call in drafted.calls:
                self._record_call(call, None)
            self._ledger.note("request", question.model_dump(mode="json"))
        self._posted[question.id] = question
        self._set_aside[question.id] = drafted.allowances

    def _take_answers(self) -> None:
        """Answers that were imported since their questions were asked."""
        answers = {answer["id"]: answer for answer in self._ledger.notes("reply")}
        for question in list(self._posted.values()):
            if question.id in answers:
                del self._posted[question.id]
                answer = Answer.model_validate(answers[question.id])
                request = question.request(self._state, self._candidates)
                price = self._models.profile(question.model).price
                drafted = question.answered(request, answer, price)
                held = self._set_aside.pop(question.id)
                self._take_drafts(dataclasses.replace(drafted, allowances=held))

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
                plan=str(request.idea.id) if request.idea else None,
                predicted_gain=draft.predicted_gain,
                entries=drafted.entries,
                arm=drafted.arm,
            )
        )

    def _put(self, proposal: Proposal) -> Candidate:
        candidate = self._ledger.add(proposal)
        self._candidates[candidate.id] = candidate
        return candidate

    def _record_call(self, call: ModelCall, candidate: Candidate | None) -> None:
        about = {"candidate_id": candidate.id} if candidate else {}
        with self._ledger.together():
            self._ledger.model_call(call.model_copy(update=about))
            self._purse.spend(tokens=tokens_of(call), money_usd=call.money_usd or 0.0)

    # Evaluating.

    def _started(self, candidate: Candidate) -> Job:
        self._evaluating.add(candidate.id)
        self._ledger.stage(candidate.id, Stage.STATIC)
        return lambda: self._evaluate(candidate)

    def _evaluate(self, candidate: Candidate, *, is_again: bool = False) -> Evaluated:
        """In a worker thread."""

        def reached(stage: Stage) -> None:
            self._desk.tell(Staged(candidate.id, stage))

        try:
            evaluation = self._pool.evaluate(
                self._spec.task, candidate.source, on_stage=None if is_again else reached
            )
        except RunnerError as error:
            return Evaluated(candidate, None, f"{type(error).__name__}: {error}", is_again)
        if self._spec.use_diagnosis:
            evaluation = diagnosis.diagnose(evaluation, candidate.source)
        return Evaluated(candidate, evaluation, is_again=is_again)

    def _take_evaluation(self, answer: Evaluated) -> None:
        if answer.evaluation is None:
            self._take_failure(answer.candidate, answer.trouble)
            return
        update = {"state": answer.evaluation.state, "evaluation": answer.evaluation}
        candidate = answer.candidate.model_copy(update=update)
        with self._ledger.together():
            self._ledger.finish(candidate.id, answer.evaluation)
            self._purse.spend(evaluations=1, gpu_s=_gpu_seconds(answer.evaluation))
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
        self._write_texts()
        self._note_changes(before)
        if self._state.best is not before.best and self._state.best is not None:
            self._note_best(self._state.best)
        if self._state.migrations > before.migrations:
            self._note_migration(before, candidate)
        self._nominate(candidate)
        self._plan()

    # Advice.

    def _plan(self) -> None:
        """Have the plan edited once enough results have come since the last time."""
        is_due = self._state.told - self._planned_at >= RESULTS_PER_PLAN and not self._is_planning
        if not is_due or self._ending is not None or not self._adviser.has(Role.PLANNER):
            return
        if self._spec.method is not Method.EVOLUTION or self._stop_reason() is not None:
            return
        members = {m.id: m for island in self._state.islands for m in island.correct}
        bases = sorted(members.values(), key=rank_key)[:MAX_BASES]
        if not bases:
            return
        self._planned_at, self._is_planning = self._state.told, True
        self._advising += 1
        ideas = tuple(self._state.plan.ideas.values())
        self._desk.think(lambda: self._adviser.plan(bases, ideas))

    def _take_plan(self, planned: Planned) -> None:
        self._is_planning = False
        edit = planned.consulted.advice
        with self._ledger.together():
            self._take_advice(planned.consulted)
            if edit is None:
                return
            before = self._state
            ideas = [
                (
                    self._candidates[new.base],
                    Suggestion(new.key, new.text, "planner", new.gain, new.difficulty),
                )
                for new in edit.add
            ]
            self._ledger.note("answer", replay.planned_answer(ideas, edit.drop))
            self._state = engine.planned(before, ideas, edit.drop)
            self._note_changes(before)

    def _take_summary(self, summarised: Summarised) -> None:
        with self._ledger.together():
            self._take_advice(summarised.consulted)
            if summarised.consulted.advice is not None:
                content = summarised.consulted.advice.model_dump(mode="json")
                self._ledger.note("summary", content)

    def _take_advice(self, consulted: Consulted[Any]) -> None:
        for call in consulted.calls:
            self._record_call(call, None)
        for allowance in consulted.allowances:
            self._purse.settle(allowance)
        if consulted.trouble:
            self._log(consulted.trouble)

    def _write_texts(self) -> None:
        """A strategy's text that had its trial gets a child that says what was learnt."""
        if (want := engine.wanted_text(self._state)) is not None:
            text = texts.child_of(want, self._state.plan)
            self._ledger.note("answer", replay.text_answer(want, text))
            self._state = engine.text_written(self._state, want, text)

    def _nominate(self, child: Candidate) -> None:
        parents = [self._candidates[number] for number in child.parents]
        if not parents:
            return
        parent = max(parents, key=worth)
        entry = experience.distil(parent, child, self._spec.task, self._report)
        if entry is not None:
            self._ledger.note("nomination", entry.model_dump(mode="json"))
            if self._adviser.has(Role.SUMMARISER):
                self._advising += 1
                self._desk.think(lambda: self._adviser.summarise(entry))

    # Budget.

    def _stop_reason(self) -> str | None:
        spent = dict(self._purse.spent)
        # What is being drafted is not pending yet, but will be.
        for name in ("evaluations", "iterations"):
            spent[name] = spent.get(name, 0) + self._drafting + len(self._posted)
        spent["gpu_s"] = self._gpu_seconds_soon(spent)
        return self._purse.shortage or stopping.stop_reason(self._state, self._purse.budget, spent)

    def _may_evaluate(self) -> bool:
        """Whether a candidate that waits fits the budget; itself and what waits with it are not counted against it."""
        spent = dict(self._purse.spent)
        waiting = sum(number not in self._evaluating for number in self._state.pending)
        spent["evaluations"] = spent.get("evaluations", 0.0) - waiting
        spent["gpu_s"] = self._gpu_seconds_soon(self._purse.spent)
        # Its draft is paid for, and a limit on drafts is none on evaluations.
        paid = {"iterations": None, "tokens": None, "money_usd": None}
        budget = self._purse.budget.model_copy(update=paid)
        return stopping.stop_reason(self._state, budget, spent) is None

    def _gpu_seconds_soon(self, spent: Mapping[str, float]) -> float:
        """What is spent once those that run have cost what the others did on average."""
        used, done = spent.get("gpu_s", 0.0), spent.get("evaluations", 0.0)
        return used + (used / done * len(self._evaluating) if done else 0.0)

    # Contributions by people.

    def _take_injected(self) -> None:
        if not self._ledger.has_injected():
            return
        with self._ledger.together():
            for proposal in self._ledger.injected():
                island = min(proposal.island, self._spec.islands - 1)
                known = tuple(number for number in proposal.parents if number in self._candidates)
                steps = [self._candidates[number].generation + 1 for number in known]
                placed = {"island": island, "parents": known, "generation": max(steps, default=0)}
                candidate = self._put(proposal.model_copy(update=placed))
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
            self._spec.islands, self._candidates, self._ledger.notes("answer"), self._settings
        )
        self._planned_at = self._state.told
        self._settle_evaluations()
        for candidate in list(self._candidates.values()):
            if candidate.id not in self._state.made:
                self._join(candidate, Operator.SEED)
            if candidate.id in self._state.pending:
                self._take_up(candidate)
        self._take_up_questions()

    def _take_up_questions(self) -> None:
        """Questions of a batch file that have not led to anything yet; those with an answer do now."""
        over = {a["number"] for a in self._ledger.notes("answer") if a["event"] == "asked"}
        asked = map(Question.model_validate, self._ledger.notes("request"))
        # Of one request the latest question counts: it has the first answer mended.
        latest = {question.number: question for question in asked if question.number not in over}
        for question in latest.values():
            request = question.request(self._state, self._candidates)
            self._state = engine.asked(self._state, request)
            price = self._models.profile(question.model).price
            allowance = self._purse.allow(question.tokens, question.body["max_tokens"], price)
            self._posted[question.id] = question
            self._set_aside[question.id] = (allowance,) if allowance else ()
        self._take_answers()

    def _settle_evaluations(self) -> None:
        """A kill between an evaluation's end and its price must not leave the evaluation unpaid."""
        ended = (Life.FINISHED, Life.UNEVALUATED)
        done = sum(candidate.state in ended for candidate in self._candidates.values())
        unpaid = done - self._purse.recorded.get("evaluations", 0)
        if unpaid > 0:
            self._purse.spend(evaluations=unpaid)

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

    def _rest(self, wanted: RunState) -> tuple[RunState, str]:
        if wanted in (RunState.PAUSING, RunState.PAUSED):
            return RunState.PAUSED, "paused by a person"
        if wanted is RunState.CANCELLED:
            return RunState.CANCELLED, "cancelled by a person"
        if wanted is not RunState.RUNNING:
            return RunState.FINISHED, BY_PERSON
        if self._posted:
            return (
                RunState.PAUSED,
                f"{len(self._posted)} requests wait for answers from a batch file",
            )
        assert self._drafter is not None
        reason = self._stop_reason() or self._drafter.model_trouble or NOTHING_LEFT
        return RunState.FINISHED, reason

    def _end(self, run_state: RunState, reason: str) -> None:
        """Close the run; what is published with measured times is timed once more before.

        Selection favours lucky timings, so what is published is never the timing that won. Modelled times have no luck.
        """
        self._ending = (run_state, reason)
        self._purse.spend()
        best = self._state.best
        if run_state is not RunState.FINISHED or best is None or not _is_measured(best):
            self._finish(best)
            return
        others = [c for c in self._candidates.values() if is_correct(c) and c.id != best.id]
        contenders = [best, *sorted(others, key=rank_key)]
        self._contenders.extend(contenders[:MAX_PUBLISHED])
        self._time_next()

    def _time_next(self) -> None:
        """The best contender once more; the next best where it does not hold."""
        if not self._contenders:
            self._finish(None)
            return
        candidate = self._contenders.popleft()
        self._errands.append(lambda: self._evaluate(candidate, is_again=True))

    def _take_published(self, answer: Evaluated) -> None:
        if answer.evaluation is None:
            self._log(f"the best could not be timed once more: {answer.trouble}")
            self._finish(self._state.best)
            return
        payload = answer.evaluation.model_dump(mode="json")
        note = {"candidate_id": answer.candidate.id, "evaluation": payload}
        self._ledger.note("published", note)
        if answer.evaluation.is_correct:
            self._finish(answer.candidate.model_copy(update={"evaluation": answer.evaluation}))
        else:
            self._time_next()

    def _finish(self, best: Candidate | None) -> None:
        assert self._ending is not None
        run_state, reason = self._ending
        if run_state is RunState.FINISHED:
            for candidate in self._waiting:
                self._ledger.abandon(candidate.id, f"{RUN_ENDED}: {reason}")
        result = self._summary(run_state, reason, best)
        self._ledger.note("result", result.as_json())
        self._ledger.set_state(run_state, reason)
        self.result = result

    def _summary(self, run_state: RunState, reason: str, best: Candidate | None) -> RunResult:
        return results.summarise(
            self._spec,
            self._state,
            self._ledger.candidates(),
            self._purse.recorded,
            run_state=run_state,
            stop_reason=reason,
            best=best,
        )

    # Notes.

    def _note_changes(self, before: State) -> None:
        assert self._drafter is not None
        for kind, payload in notes.between(before, self._state, self._drafter.ways):
            self._ledger.note(kind, payload)

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
        budget = self._purse.budget.model_dump(exclude_none=True)
        self._ledger.note("budget", {"spent": self._purse.recorded, "budget": budget})

    def _log(self, text: str) -> None:
        self._ledger.note("log", {"text": text[:2000]})


def _amounts(drafted: Drafted) -> dict[str, float]:
    """What a candidate takes of the budget, its evaluation included."""
    return {
        "evaluations": 1,
        "tokens": sum(tokens_of(call) for call in drafted.calls),
        "money_usd": sum(call.money_usd or 0.0 for call in drafted.calls),
    }


def _is_measured(candidate: Candidate) -> bool:
    evaluation = candidate.evaluation
    return evaluation is not None and evaluation.fidelity is Fidelity.MEASURED


def _gpu_seconds(evaluation: Evaluation) -> float:
    on_gpu = evaluation.fidelity is Fidelity.MEASURED
    return sum(stage.seconds for stage in evaluation.stages) if on_gpu else 0.0
