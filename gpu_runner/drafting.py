"""Making drafts for the search's requests, from sources, a model and the library; called in worker threads."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_runner import experience
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
from gpu_runner.evolution.types import Operator, Request
from gpu_runner.proposals.models import Order, Writer
from gpu_runner.proposals.types import Draft
from gpu_runner.sources import Pool, Sources

MODEL_OPERATORS: Final = frozenset(
    {Operator.IMPROVE, Operator.REPAIR, Operator.CROSSOVER, Operator.SIMPLIFY, Operator.SEED}
)
MODEL_SHARE: Final = 0.7
"""Of the requests that a model and another source could both serve, the share that goes to the model."""
MAX_FAILED_MOVES: Final = 6

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


@dataclass(frozen=True)
class Context:
    """What a model is told besides the request: the run's candidates, of which some failed, and people's hints."""

    known: tuple[Candidate, ...] = ()
    hints: tuple[str, ...] = ()


class Drafter:
    """Everything that drafts of one run are made from.

    Args:
        entries: of the library, approved and visible to the run's owner; empty where the run goes without.
    """

    def __init__(
        self,
        pool: Pool,
        spec: RunSpec,
        report: TaskReport,
        sources: Sources,
        writer: Writer | None,
        entries: Sequence[Entry],
    ) -> None:
        self._pool = pool
        self._spec = spec
        self._report = report
        self._sources = sources
        self._writer = writer
        self._entries = tuple(entries)

    @property
    def has_model(self) -> bool:
        return self._writer is not None and self._writer.is_usable

    @property
    def operators(self) -> frozenset[Operator]:
        """What the search may ask for just now."""
        steps = frozenset(self._sources.steps)
        return steps | (MODEL_OPERATORS if self.has_model else frozenset())

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

    def make(self, request: Request, context: Context) -> Drafted:
        """Drafts for a request; called in a worker thread."""
        rng = engine.generator(self._spec.seed, request.number)
        step = self._sources.steps.get(request.operator)
        may_write = self.has_model and request.operator in MODEL_OPERATORS
        if step is None or (may_write and rng.random() < MODEL_SHARE):
            return self.write(request, context, rng)
        try:
            drafts = step(self._pool, self._spec.task, self._report, request, rng)
        except SOURCE_TROUBLE as error:
            return Drafted(request, (), trouble=f"{request.operator} failed: {error}")
        if not drafts and may_write:
            return self.write(request, context, rng)
        return Drafted(request, tuple(drafts))

    def write(self, request: Request, context: Context, rng: random.Random) -> Drafted:
        """Let the model write; a random share of its proposals goes without the library, to see what that is worth."""
        if self._writer is None:
            return Drafted(request, (), trouble="no model is configured")
        arm = ""
        if self._entries:
            arm = "without" if rng.random() < experience.SHARE_WITHOUT else "with"
        entries = self._retrieved(request.parents) if arm == "with" else ()
        written = self._writer.write(self._order(request, entries, context))
        return Drafted(
            request,
            (written.draft,) if written.draft else (),
            calls=written.calls,
            trouble=written.trouble,
            arm=arm,
            entries=tuple(entry.id for entry in entries),
        )

    def _order(self, request: Request, entries: tuple[Entry, ...], context: Context) -> Order:
        strategy = strategy_of(request.island)
        return Order(
            role=request.operator.value,
            task=self._spec.task,
            report=self._report,
            device=f"{self._pool.device.name} ({self._pool.device.kind})",
            island=request.island,
            lens=strategy.lens,
            temperature=strategy.temperature,
            parents=request.parents,
            examples=request.examples,
            entries=entries,
            failed=failed_moves(request.parents, context.known),
            hints=context.hints,
            show_findings=self._spec.use_diagnosis,
        )

    def _retrieved(self, parents: Sequence[Candidate]) -> tuple[Entry, ...]:
        query = experience.query_for(self._spec.task, self._report, parents)
        return tuple(hit.entry for hit in experience.retrieve(self._entries, query))

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
