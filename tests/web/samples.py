"""Small tasks, candidates and evaluations for tests of the records."""

from typing import Any

from django.utils import timezone

from evolution_app import services
from evolution_app.models import Run, Runner, Task, User
from gpu_runner.core.candidate import Proposal
from gpu_runner.core.entries import EntryContent, EntryKind
from gpu_runner.core.evaluation import Evaluation, Ratio, Speedup, Timing
from gpu_runner.core.findings import Finding, Location, Severity, Source
from gpu_runner.core.verdicts import Fidelity, Precision, Stage, State, Track, Verdict, VerifiedAt
from gpu_runner.store import Store

TASK = """import torch
import torch.nn as nn

N = 1024


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.rand(N)]
"""

KERNEL = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + x
"""

LESSON = EntryContent(kind=EntryKind.TECHNIQUE, title="Add instead of multiply", action="x + x")


def user(name: str, role: str) -> User:
    return User.objects.create_user(name, role=role)


def task(owner: User, **options: Any) -> Task:
    return services.submit_task(owner=owner, name="double", source=TASK, **options)


def run(task: Task, by: User, **options: Any) -> Run:
    return services.start_run(task=task, by=by, seed=1, **options)


def runner(name: str = "here:1", pid: int = 1) -> Runner:
    return Runner.objects.create(
        name=name,
        host="here",
        pid=pid,
        sandbox="bwrap",
        version="0",
        heartbeat_at=timezone.now(),
    )


def claim(run: Run, by: Runner | None = None) -> Store:
    fence = Run.objects.claim(run.pk, by or runner(), timezone.now())
    assert fence is not None
    return Store(run.pk, fence)


def proposal(number: int = 1, **fields: Any) -> Proposal:
    """Proposals of different numbers have different sources."""
    source = f"# {number}\n{KERNEL}"
    return Proposal(source=source, origin="tune", move="x + x", **{"island": 0, **fields})


def correct(ratio: float = 2.0, **fields: Any) -> Evaluation:
    return Evaluation(
        verdict=Verdict.CORRECT,
        fidelity=Fidelity.MODELLED,
        verified_at=VerifiedAt.PROBE,
        device="cpu",
        track=Track.OWN_KERNELS,
        precision=Precision.REFERENCE,
        candidate=Timing(device_us=10.0 / ratio, n=0),
        speedup=Speedup(eager=Ratio(ratio=ratio)),
        **fields,
    )


def wrong(title: str = "wrong at the tail", **evidence: Any) -> Evaluation:
    finding = Finding(
        stage=Stage.PROBE,
        kind="values",
        severity=Severity.GATE,
        source=Source.JUDGE,
        title=title,
        evidence=evidence,
        location=Location(line=4),
    )
    return Evaluation(
        verdict=Verdict.INCORRECT,
        kind="values",
        device="cpu",
        track=Track.OWN_KERNELS,
        precision=Precision.REFERENCE,
        findings=(finding,),
    )


def unevaluated() -> Evaluation:
    return Evaluation(
        verdict=None,
        state=State.UNEVALUATED,
        device="cpu",
        track=Track.OWN_KERNELS,
        precision=Precision.REFERENCE,
    )
