"""Where drafts come from, as the driver sees it: initialisers for the first generation, operators for the later ones."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.graph import Graph
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Stage
from gpu_runner.evolution.crossover import transplant
from gpu_runner.evolution.types import Operator, Request
from gpu_runner.proposals import catalogue, compiler, rewrites, tuning
from gpu_runner.proposals.types import Caller, Draft


class Device(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...


class Pool(Caller, Protocol):
    """What the driver needs of an evaluation pool; thread-safe and blocking."""

    @property
    def slots(self) -> int: ...

    @property
    def device(self) -> Device: ...

    def inspect(self, task: TaskSpec) -> TaskReport: ...

    def evaluate(
        self, task: TaskSpec, source: str, *, on_stage: Callable[[Stage], None] | None = None
    ) -> Evaluation: ...


Initialiser = Callable[[Pool, TaskSpec, TaskReport], list[Draft]]
Step = Callable[[Pool, TaskSpec, TaskReport, Request, random.Random], list[Draft]]


@dataclass(frozen=True)
class Sources:
    """All makers of drafts that need no model.

    Args:
        initialisers: by the kind of origin that the islands' preferences name.
        steps: by operator; each returns drafts for the request's parents, empty when it has nothing.
    """

    initialisers: Mapping[str, Initialiser]
    steps: Mapping[Operator, Step]


def standard_sources() -> Sources:
    return Sources(
        initialisers={"compiler": _from_compiler, "catalogue": _from_catalogue},
        steps={
            Operator.REWRITE: _rewrite,
            Operator.TUNE: _tune,
            Operator.CROSSOVER: _cross,
            Operator.REPAIR: _repair,
        },
    )


def _from_compiler(pool: Pool, task: TaskSpec, report: TaskReport) -> list[Draft]:
    return compiler.drafts(pool, task, report)


def _from_catalogue(pool: Pool, task: TaskSpec, report: TaskReport) -> list[Draft]:
    return catalogue.drafts(task, report)


def _rewrite(
    pool: Pool, task: TaskSpec, report: TaskReport, request: Request, rng: random.Random
) -> list[Draft]:
    graph = Graph.model_validate(report.graph) if report.graph else None
    return rewrites.drafts(pool, task, request.parents[0], graph)


def _tune(
    pool: Pool, task: TaskSpec, report: TaskReport, request: Request, rng: random.Random
) -> list[Draft]:
    return tuning.drafts(pool, task, request.parents[0], rng)


def _cross(
    pool: Pool, task: TaskSpec, report: TaskReport, request: Request, rng: random.Random
) -> list[Draft]:
    receiver, donor = request.parents
    source = transplant(receiver.source, donor.source)
    if source is None:
        return []
    move = f"the code of candidate {receiver.id} with the launch parameters of candidate {donor.id}"
    return [Draft(source=source, origin="crossover", move=move)]


def _repair(
    pool: Pool, task: TaskSpec, report: TaskReport, request: Request, rng: random.Random
) -> list[Draft]:
    """Without a model only one failure can be mended: too many resources, by another configuration."""
    parent = request.parents[0]
    return tuning.drafts(pool, task, parent, rng) if _is_out_of_resources(parent) else []


def _is_out_of_resources(candidate: Candidate) -> bool:
    return candidate.evaluation is not None and candidate.evaluation.kind == "resources"
