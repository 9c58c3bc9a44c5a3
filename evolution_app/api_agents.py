"""For people and programs that write kernels themselves: what to beat, and where to send it.

An agent asks for a run's brief, writes a `ModelNew`, and submits it to an island; it goes through the same gates as every
other candidate, and its author stands beside it: the account of the token, and the agent that it names.
"""

from typing import Any

from django.http import Http404, HttpRequest
from ninja import Router, Schema, Status
from pydantic import ConfigDict, Field

from evolution_app import permissions, services
from evolution_app.api_common import person
from evolution_app.models import Candidate, Run, Steering

MAX_BEST = 20
RULES = (
    "Answer with one Python file that defines ModelNew with the constructor of Model.",
    "Track own_kernels: every floating-point computation from inputs to output happens in your own Triton kernels.",
    "Track library_allowed: vendor matrix products, convolutions, transforms and sorts may stand beside them.",
    "torch.compile is not allowed, and neither is looking for the reference, for files, processes or sockets.",
)

agents = Router(tags=["agents"])


class Submission(Schema):
    model_config = ConfigDict(extra="forbid")

    source: str
    island: int = 0
    parent: int | None = Field(default=None, description="number of the candidate it was made from")
    move: str = Field(default="", max_length=300, description="what was changed, one line")
    agent: str = Field(default="", max_length=60, description="the program that wrote it")


@agents.get("/{int:run_id}/brief")
def brief(request: HttpRequest, run_id: int, best: int = 3) -> dict[str, Any]:
    """The task, its rules, the islands, and the best candidates with their sources and findings."""
    run = permissions.get_visible(Run.objects.select_related("task"), request.user, pk=run_id)
    task = run.task
    rows = run.candidates.for_lists().best_first().select_related("source")
    failed = run.candidates.exclude(verdict__in=["", "correct"]).order_by("-number")
    return {
        "run": run.pk,
        "is_over": run.is_over,
        "task": {
            "name": task.name,
            "source": task.source.text,
            "track": task.track,
            "precision": task.precision,
            "target": task.target,
            "report": task.report,
        },
        "rules": RULES,
        "islands": [
            {"number": i.number, "strategy": i.strategy, "description": i.description}
            for i in run.islands.all()
        ],
        "best": [_with_source(candidate) for candidate in rows[: max(0, min(best, MAX_BEST))]],
        "failed": [
            {"candidate_id": c.number, "move": c.move, "verdict": c.verdict, "why": c.lead}
            for c in failed[:MAX_BEST]
        ],
    }


def _with_source(candidate: Candidate) -> dict[str, Any]:
    evaluation = candidate.latest_evaluation()
    return {
        "candidate_id": candidate.number,
        "island": candidate.island.number,
        "origin": candidate.origin,
        "move": candidate.move,
        "speedup": candidate.speedup,
        "fidelity": candidate.fidelity,
        "findings": evaluation.document["findings"] if evaluation else [],
        "source": candidate.source.text,
    }


@agents.post("/{int:run_id}/submissions", response={202: dict[str, Any]})
def submit(request: HttpRequest, run_id: int, new: Submission) -> Status[dict[str, Any]]:
    """Hand a kernel to an island; ask for the submission to learn which candidate it became."""
    run = permissions.get_visible(Run, request.user, pk=run_id)
    parent = None
    if new.parent is not None:
        parent = run.candidates.filter(number=new.parent).first()
        if parent is None:
            raise services.Refused(f"the run has no candidate {new.parent}")
    steering = services.inject(
        run=run,
        by=person(request),
        source=new.source,
        hint=new.move,
        island=new.island,
        parent=parent,
        agent=new.agent,
    )
    return Status(202, submission_json(steering))


@agents.get("/{int:run_id}/submissions/{int:submission_id}")
def show_submission(request: HttpRequest, run_id: int, submission_id: int) -> dict[str, Any]:
    run = permissions.get_visible(Run, request.user, pk=run_id)
    steering = run.steerings.filter(pk=submission_id).exclude(source=None).first()
    if steering is None:
        raise Http404("no such submission")
    return submission_json(steering)


def submission_json(steering: Steering) -> dict[str, Any]:
    """`state` is waiting until the runner takes it, then that of its candidate; a source known before makes none."""
    candidate = steering.run.candidates.filter(source=steering.source_id).order_by("number").first()
    taken = "taken" if steering.taken_at else "waiting"
    return {
        "id": steering.pk,
        "author": steering.author.username,
        "agent": steering.agent or None,
        "island": steering.island,
        "state": candidate.state if candidate else taken,
        "candidate_id": candidate.number if candidate else None,
        "verdict": candidate.verdict or None if candidate else None,
        "speedup": candidate.speedup if candidate else None,
    }
