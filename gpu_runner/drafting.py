"""Making drafts for the search's requests, from sources, a model and the library; called in worker threads."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from gpu_runner import experience
from gpu_runner.advising import Adviser, Ordered
from gpu_runner.core.candidate import Candidate
from gpu_runner.core.entries import Entry
from gpu_runner.core.ledger import ModelCall
from gpu_runner.core.source import fingerprint
from gpu_runner.core.task import RunSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import State as Life
from gpu_runner.evaluation.errors import ChildFailed, RunnerError
from gpu_runner.evolution import engine
from gpu_runner.evolution.fitness import is_correct, worth
from gpu_runner.evolution.strategies import strategy_of
from gpu_runner.evolution.types import Operator, Request, Way
from gpu_runner.proposals.models import Order, Role, Team
from gpu_runner.proposals.models.prices import Allowance
from gpu_runner.proposals.models.writer import Consulted, OnCall, Post
from gpu_runner.proposals.types import Draft
from gpu_runner.purse import Purse
from gpu_runner.sources import Pool, Sources

MODEL_OPERATORS: Final = frozenset(
    {Operator.IMPROVE, Operator.REPAIR, Operator.CROSSOVER, Operator.SIMPLIFY, Operator.SEED}
)
MAX_FAILED_MOVES: Final = 6
TRITON: Final = metadata.version("triton")

# What a source makes of a child's answer; the answer is a claim, and garbage in it is that source's trouble alone.
SOURCE_TROUBLE: Final = (ChildFailed, RunnerError, ValueError, LookupError)


@dataclass(frozen=True)
class Drafted:
    """What came of a request; `trouble` says why it is less than hoped for."""

    request: Request
    drafts: tuple[Draft, ...]
    calls: tuple[ModelCall, ...] = ()
    trouble: str = ""
    arm: str = ""
    entries: tuple[str, ...] = ()
    allowances: tuple[Allowance, ...] = ()
    is_put_off: bool = False
    post: Post | None = None


@dataclass(frozen=True)
class Context:
    """What a model is told besides the request: the run's candidates, of which some failed, and people's hints."""

    known: tuple[Candidate, ...] = ()
    hints: tuple[str, ...] = ()


class Drafter:
    """Everything that drafts of one run are made from.

    Args:
        shelf: the library as the run's owner may see it; None where the run goes without.
    """

    def __init__(
        self,
        pool: Pool,
        spec: RunSpec,
        report: TaskReport,
        sources: Sources,
        team: Team,
        adviser: Adviser,
        shelf: experience.Shelf | None,
        purse: Purse,
    ) -> None:
        self._pool = pool
        self._spec = spec
        self._report = report
        self._sources = sources
        self._team = team
        self._adviser = adviser
        self._shelf = shelf
        self._purse = purse

    @property
    def has_model(self) -> bool:
        """Whether a model could be asked just now."""
        return self._team.is_usable and not self._purse.is_short

    @property
    def is_model_away(self) -> bool:
        """Whether a model may come back that does not answer just now."""
        return self._team.is_away

    @property
    def requests_per_island(self) -> int:
        return self._team.requests_per_island

    @property
    def model_trouble(self) -> str:
        """Why the run goes on without its models for good; empty while it does not."""
        return self._team.trouble

    @property
    def ways(self) -> frozenset[Way]:
        """How the search may have candidates made just now."""
        return frozenset(map(Way, self._sources.steps)) | self._models_ways

    @property
    def _models_ways(self) -> frozenset[Way]:
        if not self.has_model:
            return frozenset()
        return frozenset(
            Way(operator, name)
            for operator in MODEL_OPERATORS
            for name in self._team.usable(_role(operator))
        )

    def first_drafts(self, log: Callable[[str], None]) -> dict[str, list[Draft]]:
        """First candidates by kind of origin, in the order of preference of each source, each source once."""
        offers: dict[str, list[Draft]] = {}
        if self._spec.task.baseline_source is not None:
            offers["person"] = [_baseline(self._spec.task.baseline_source)]
        if self._spec.use_initialisers:
            for kind, initialise in self._sources.initialisers.items():
                try:
                    offers[kind] = initialise(self._pool, self._spec.task, self._report)
                except SOURCE_TROUBLE as error:
                    log(f"the {kind} initialiser failed: {error}")
            offers["retrieval"] = self._demonstrations()
        return unique_drafts(offers, frozenset())

    def make(self, request: Request, context: Context, on_call: OnCall) -> Drafted:
        """Drafts for a request; called in a worker thread. `on_call` is told of requests to a model that led to another."""
        rng = engine.generator(self._spec.seed, request.number)
        if request.model:
            return self.write(request, context, rng, on_call)
        step = self._sources.steps[request.operator]
        try:
            drafts = step(self._pool, self._spec.task, self._report, request, rng)
        except SOURCE_TROUBLE as error:
            return Drafted(request, (), trouble=f"{request.operator} failed: {error}")
        return Drafted(request, tuple(drafts))

    def write(
        self, request: Request, context: Context, rng: random.Random, on_call: OnCall
    ) -> Drafted:
        """Let the model write; a random share of its proposals goes without the library, to see what that is worth."""
        ordered, shown = self._shown(request, rng)
        advice = ordered.consulted
        for call in advice.calls:
            on_call(call)
        order = self._order(request, shown.entries, context)
        written = self._team[request.model].write(order, self._purse, on_call)
        return Drafted(
            request,
            (written.draft,) if written.draft else (),
            calls=written.calls,
            trouble="; ".join(filter(None, (advice.trouble, written.trouble))),
            arm=shown.arm,
            entries=tuple(entry.id for entry in shown.entries),
            allowances=(*advice.allowances, *written.allowances),
            is_put_off=written.is_put_off,
            post=written.post,
        )

    def _order(self, request: Request, entries: tuple[Entry, ...], context: Context) -> Order:
        strategy = strategy_of(request.island)
        return Order(
            role=request.operator.value,
            task=self._spec.task,
            report=self._report,
            device=f"{self._pool.device.name} ({self._pool.device.kind})",
            island=request.island,
            lens=request.text.text if request.text else strategy.lens,
            temperature=strategy.temperature,
            parents=request.parents,
            examples=request.examples,
            entries=entries,
            failed=failed_moves(request.parents, context.known),
            hints=context.hints,
            idea=request.idea.text if request.idea else "",
            show_findings=self._spec.use_diagnosis,
        )

    def _shown(self, request: Request, rng: random.Random) -> tuple[Ordered, experience.Shown]:
        """What the proposal sees of the library, drawn by chance from what fits its parents and its island."""
        library = self._shelf.library() if self._shelf else None
        if not library:
            return Ordered((), Consulted()), experience.Shown("")
        strategy = strategy_of(request.island)
        query = experience.query_for(
            self._spec.task,
            self._report,
            request.parents,
            lens=" ".join([strategy.lens, *strategy.words]),
            triton=TRITON,
        )
        found = library.retrieve(query, experience.FOUND)
        ordered = self._adviser.order(
            " ".join([query.words, *query.bottlenecks, query.lens]), found
        )
        return ordered, experience.show(ordered.hits, rng)

    def _demonstrations(self) -> list[Draft]:
        if self._shelf is None:
            return []
        query = experience.query_for(self._spec.task, self._report, (), triton=TRITON)
        return [
            Draft(
                source=entry.content.after,
                origin=f"retrieval:{entry.id}",
                move=f"demonstration {entry.id}: {entry.content.title}"[:300],
            )
            for entry in self._shelf.library().demonstrations(query)
        ]


def _role(operator: Operator) -> Role:
    special = {Operator.SEED: Role.INITIALISER, Operator.REPAIR: Role.REPAIRER}
    return special.get(operator, Role.OPTIMISER)


def unique_drafts(
    offers: Mapping[str, Iterable[Draft]], seen: frozenset[str]
) -> dict[str, list[Draft]]:
    """Drafts whose fingerprints are new and differ from each other; of equal ones the first kind keeps it."""
    known = set(seen)
    unique: dict[str, list[Draft]] = {}
    for kind, drafts in offers.items():
        unique[kind] = []
        for draft in drafts:
            mark = fingerprint(draft.source)
            if mark not in known:
                known.add(mark)
                unique[kind].append(draft)
    return unique


def preferred(drafts: Sequence[Draft], words: Sequence[str]) -> Draft | None:
    """The draft to try first: one that suits the island's words, of those the largest predicted gain, of those the first."""

    def key(draft: Draft) -> tuple[bool, float]:
        text = f"{draft.origin} {draft.move}".lower()
        return any(word in text for word in words), draft.predicted_gain or 1.0

    return max(drafts, key=key, default=None)


def failed_moves(parents: Sequence[Candidate], known: Sequence[Candidate]) -> tuple[str, ...]:
    """What was tried on these parents and gained nothing, the latest last."""
    wanted = {parent.id for parent in parents}
    best = max(map(worth, parents), default=0.0)
    failed = [
        f"{child.move} -> {_outcome(child)}"
        for child in known
        if wanted & set(child.parents) and child.state is Life.FINISHED and worth(child) <= best
    ]
    return tuple(failed[-MAX_FAILED_MOVES:])


def _outcome(candidate: Candidate) -> str:
    if is_correct(candidate):
        return f"correct, no faster ({candidate.fitness:.2f})"
    evaluation = candidate.evaluation
    lead = evaluation.lead.title if evaluation and evaluation.lead else ""
    return f"{evaluation.verdict if evaluation else 'not evaluated'}: {lead}"


def _baseline(source: str) -> Draft:
    return Draft(source=source, origin="person:baseline", move="the submitter's own kernel")
