"""What a runner writes: each function is one transaction that checks the fencing token and tells it as an event.

A runner that lost its lease, because it was paused or cut off, gets `LeaseLost` and changes nothing.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from evolution_app import events, statements
from evolution_app.models import (
    Candidate,
    CandidateParent,
    EntryUse,
    EntryVersion,
    Evaluation,
    Evidence,
    ExperienceEntry,
    Finding,
    Island,
    ModelCall,
    Run,
    RunNote,
    SourceText,
    Steering,
    Task,
)
from evolution_app.models.sources import digest_of
from gpu_runner.core import candidate as core_candidate
from gpu_runner.core import evaluation as core_evaluation
from gpu_runner.core import ledger as core_ledger
from gpu_runner.core.entries import EntryContent, EntryState
from gpu_runner.core.ledger import LeaseLost
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import RunState, Stage, State

COUNTERS = ["last_seq", "last_candidate", "spent"]
FIGURES = (
    "state stage verdict kind fidelity verified_at speedup speedup_low speedup_high speedup_compile speedup_user"
    " device_us lead finished_at"
).split()
LIFE = "state wanted stop_reason runner lease_until device started_at finished_at".split()

DEMONSTRATED: Final = "retrieval:"
"""Where a first candidate comes from that is an entry of the library, named by its uid behind this."""


@contextmanager
def held(run_id: int, fence: int) -> Iterator[Run]:
    """The run, locked, inside a transaction; raises LeaseLost if `fence` is not that of the latest claim.

    Held already, it is the same instance: many changes then cost one look at the run and one write of its counters.
    """
    here = events.opened(run_id)
    if here is not None:
        if here.run.fence != fence:
            raise LeaseLost(f"run {run_id} belongs to another runner or to none")
        yield here.run
        return
    with transaction.atomic():
        run = statements.locked_run(run_id, fence)
        if run is None or run.runner_id is None:
            raise LeaseLost(f"run {run_id} belongs to another runner or to none")
        before = _counters(run)
        with events.numbered_by(run):
            yield run
        if _counters(run) != before:
            statements.update(run, COUNTERS)


def flush(run_id: int) -> None:
    """What is held back until the end of an open transaction can be read from now on."""
    if (here := events.opened(run_id)) is not None:
        here.flush()


def _counters(run: Run) -> tuple[Any, ...]:
    return run.last_seq, run.last_candidate, dict(run.spent)


def storable(value: Any) -> Any:
    """A JSON value that every database keeps: no NaN or infinity, no null character, no lone surrogate."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable(inner) for inner in value]
    return value


def storable_text(text: str) -> str:
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


# Candidates


def record_candidate(run_id: int, fence: int, proposal: core_candidate.Proposal) -> Candidate:
    """Give a proposal the run's next number and queue it."""
    with held(run_id, fence) as run:
        run.last_candidate += 1
        candidate = Candidate(
            run=run,
            number=run.last_candidate,
            island_id=_island(run, proposal.island),
            generation=proposal.generation,
            source_id=_kept(storable_text(proposal.source)),
            origin=storable_text(proposal.origin),
            move=storable_text(proposal.move),
            plan=storable_text(proposal.plan or ""),
            predicted_gain=proposal.predicted_gain,
            entries=list(proposal.entries),
            arm=proposal.arm,
        )
        statements.insert_one(candidate)
        if proposal.parents:
            keys = statements.candidate_keys(run_id, proposal.parents)
            statements.insert(
                [
                    CandidateParent(candidate=candidate, parent_id=keys[number], position=position)
                    for position, number in enumerate(proposal.parents)
                ]
            )
        _record_uses(candidate)
        events.emit(
            run.pk,
            events.CREATED,
            {
                "candidate": candidate.number,
                "island": proposal.island,
                "generation": candidate.generation,
                "parents": list(proposal.parents),
                "origin": candidate.origin,
                "move": candidate.move,
                "state": candidate.state,
            },
        )
    return candidate


def _island(run: Run, number: int) -> int:
    key = statements.island_key(run.pk, number)
    return key or Island.objects.get_or_create(run=run, number=number)[0].pk


def _kept(text: str) -> str:
    """The key of a text that is there from now on."""
    source = SourceText(digest=digest_of(text), text=text)
    statements.insert([source], or_keep=True)
    return source.digest


def _who(candidate: Candidate) -> dict[str, int]:
    return {"candidate": candidate.number, "island": candidate.island.number}


def _record_uses(candidate: Candidate) -> None:
    """The entries that were shown, in their order; a demonstration is itself the candidate."""
    demonstrated = candidate.origin.removeprefix(DEMONSTRATED)
    uids = candidate.entries or ([demonstrated] if demonstrated != candidate.origin else [])
    if not uids:
        return
    ranks = {uid: rank for rank, uid in enumerate(uids, start=1)}
    shown = ExperienceEntry.objects.filter(uid__in=uids).select_related("approved", "current")
    for entry in shown:
        version = entry.approved or entry.current
        if version is not None:
            EntryUse.objects.create(
                entry=entry,
                version=version,
                run_id=candidate.run_id,
                candidate=candidate,
                rank=ranks[entry.uid],
            )


def _numbered(run: Run, number: int) -> Candidate:
    return statements.candidate_of(run.pk, number)


def record_stage(run_id: int, fence: int, number: int, stage: Stage) -> None:
    """The candidate is being evaluated and has reached a gate; ignored once it is over."""
    with held(run_id, fence) as run:
        island = statements.reach(run_id, number, stage, timezone.now())
        if island is not None:
            payload = {"candidate": number, "island": island, "stage": stage.value}
            events.emit(run.pk, events.STAGE, payload)


def record_requeue(run_id: int, fence: int, number: int, reason: str) -> None:
    """We failed, not the candidate: back to the queue."""
    with held(run_id, fence) as run:
        candidate = _numbered(run, number)
        if candidate.is_over:
            return
        _set_back(candidate, State.QUEUED, reason)
        events.emit(run.pk, events.REQUEUED, {**_who(candidate), "reason": candidate.setback})


def _set_back(candidate: Candidate, state: State, reason: str) -> None:
    candidate.state, candidate.stage = state, ""
    candidate.setbacks += 1
    candidate.setback = storable_text(reason)[:2000]
    candidate.save(update_fields=["state", "stage", "setbacks", "setback", "finished_at"])


def record_abandoned(run_id: int, fence: int, number: int, reason: str) -> None:
    """We gave up on the candidate; nothing was found out about it."""
    with held(run_id, fence) as run:
        candidate = _numbered(run, number)
        if candidate.is_over:
            return
        candidate.finished_at = timezone.now()
        _set_back(candidate, State.ABANDONED, reason)
        events.emit(run.pk, events.DONE, _done(run, candidate) | {"lead": candidate.setback})


def record_evaluation(
    run_id: int,
    fence: int,
    number: int,
    evaluation: core_evaluation.Evaluation,
    *,
    is_published: bool = False,
) -> None:
    """Keep an evaluation; the candidate's columns become those of its newest one.

    The first one finishes the candidate. A later one, taken to publish it, replaces the figures that people see.
    """
    with held(run_id, fence) as run:
        candidate = _numbered(run, number)
        _keep_evaluation(candidate, evaluation, is_published)
        _copy_figures(candidate, evaluation)
        candidate.finished_at = candidate.finished_at or timezone.now()
        statements.update(candidate, FIGURES)
        if is_published:
            events.emit(run.pk, events.PUBLISHED, _done(run, candidate))
            return
        if run.lost_claims:
            Run.objects.filter(pk=run.pk).update(lost_claims=0)
        events.emit(run.pk, events.DONE, _done(run, candidate))
        if (lead := evaluation.lead) is not None:
            payload = {
                **_who(candidate),
                "lead": {
                    "kind": lead.kind,
                    "severity": lead.severity,
                    "title": lead.title,
                    "suggestion": lead.suggestion,
                    "line": lead.location.line,
                },
                "findings": len(evaluation.findings),
            }
            events.emit(run.pk, events.DIAGNOSIS, storable(payload))


def _keep_evaluation(
    candidate: Candidate, evaluation: core_evaluation.Evaluation, is_published: bool
) -> None:
    kept = Evaluation(
        candidate=candidate,
        document=storable(evaluation.model_dump(mode="json")),
        verdict=evaluation.verdict or "",
        kind=evaluation.kind or "",
        fidelity=evaluation.fidelity or "",
        device=storable_text(evaluation.device)[:120],
        is_published=is_published,
    )
    statements.insert_one(kept)
    if evaluation.findings:
        statements.insert(
            [
                Finding(
                    evaluation=kept, position=position, **storable(finding.model_dump(mode="json"))
                )
                for position, finding in enumerate(evaluation.findings)
            ]
        )


def _copy_figures(candidate: Candidate, evaluation: core_evaluation.Evaluation) -> None:
    speedup = evaluation.speedup if evaluation.is_correct else core_evaluation.Speedup()
    candidate.state, candidate.stage = evaluation.state, ""
    candidate.verdict, candidate.kind = evaluation.verdict or "", evaluation.kind or ""
    candidate.fidelity, candidate.verified_at = (
        evaluation.fidelity or "",
        evaluation.verified_at or "",
    )
    candidate.speedup = speedup.eager.ratio if speedup.eager else None
    candidate.speedup_low = speedup.eager.low if speedup.eager else None
    candidate.speedup_high = speedup.eager.high if speedup.eager else None
    candidate.speedup_compile = speedup.torch_compile.ratio if speedup.torch_compile else None
    candidate.speedup_user = speedup.user.ratio if speedup.user else None
    candidate.device_us = evaluation.candidate.device_us if evaluation.candidate else None
    candidate.lead = storable_text(evaluation.lead.title) if evaluation.lead else ""


def _done(run: Run, candidate: Candidate) -> dict[str, Any]:
    """A point of the run's curve."""
    started = run.started_at or run.created_at
    return {
        **_who(candidate),
        "generation": candidate.generation,
        "state": candidate.state,
        "verdict": candidate.verdict,
        "kind": candidate.kind,
        "fidelity": candidate.fidelity,
        "ratio": candidate.speedup,
        "low": candidate.speedup_low,
        "high": candidate.speedup_high,
        "compile": candidate.speedup_compile,
        "lead": candidate.lead,
        "evaluations": statements.evaluations(run.pk),
        "seconds": round((timezone.now() - started).total_seconds(), 3),
        "money_usd": run.spent.get("money_usd"),
    }


# The run


def record_note(run_id: int, fence: int, kind: str, payload: dict[str, Any]) -> None:
    """Keep a note of the search, and what follows from it for people: the best, islands, migrations, drafts of entries."""
    with held(run_id, fence) as run:
        kept = storable(payload)
        events.append(RunNote(run=run, kind=kind, payload=kept))
        if follow := _FOLLOWS.get(kind):
            follow(run, kept)


def _follow_best(run: Run, payload: dict[str, Any]) -> None:
    best = _numbered(run, payload["candidate_id"])
    Run.objects.filter(pk=run.pk).update(best=best)
    figures = {
        "ratio": best.speedup,
        "low": best.speedup_low,
        "high": best.speedup_high,
        "compile": best.speedup_compile,
        "fidelity": best.fidelity,
    }
    events.emit(run.pk, events.RUN_BEST, {**_who(best), **figures})


def _follow_island(run: Run, payload: dict[str, Any]) -> None:
    strategy, lens = str(payload.get("strategy", ""))[:80], str(payload.get("lens", ""))
    island, _ = Island.objects.update_or_create(
        run=run,
        number=payload["index"],
        defaults={"strategy": strategy, "description": lens, "settings": payload},
    )
    told = {"number": island.number, "strategy": strategy, "description": lens}
    events.emit(run.pk, events.ISLAND, told)


def _follow_migration(run: Run, payload: dict[str, Any]) -> None:
    told = {"candidate": payload["candidate_id"], "home": payload["home"], "to": payload["to"]}
    events.emit(run.pk, events.MIGRATION, told)


def _follow_budget(run: Run, payload: dict[str, Any]) -> None:
    events.emit(run.pk, events.RUN_BUDGET, {"spent": run.spent, "budget": run.budget})


def _follow_log(run: Run, payload: dict[str, Any]) -> None:
    events.emit(run.pk, events.LOG, {"text": str(payload.get("text", ""))[:2000]})


def _follow_result(run: Run, payload: dict[str, Any]) -> None:
    """The best that is published may be another candidate than the one that led the search, or none."""
    best: dict[str, Any] | None = payload.get("best")
    found = _numbered(run, best["candidate_id"]) if best else None
    if best is not None and found is not None and found.pk != run.best_id:
        _follow_best(run, best)
    elif found is None:
        Run.objects.filter(pk=run.pk).update(best=None)


def _follow_nomination(run: Run, payload: dict[str, Any]) -> None:
    """A step that paid becomes a draft without a human author, with its pair as evidence; once per pair."""
    content = EntryContent.model_validate(payload)
    numbers = (content.provenance.parent_id or 0, content.provenance.candidate_id or 0)
    pair = {c.number: c for c in Candidate.objects.filter(run=run, number__in=numbers)}
    before, after = pair[numbers[0]], pair[numbers[1]]
    known = ExperienceEntry.objects.filter(nominated_by=None, evidence__before=before)
    if known.filter(evidence__after=after).exists():
        return
    entry = ExperienceEntry.objects.create(state=EntryState.DRAFT, task=run.task, candidate=after)
    entry.current = _version(entry, 1, content, payload, "distilled")
    entry.save(update_fields=["current"])
    for effect in content.effects:
        Evidence.objects.create(
            entry=entry,
            role=Evidence.Role.NOMINATION,
            task=run.task,
            before=before,
            after=after,
            device=effect.device,
            fidelity=effect.fidelity,
            ratio=effect.ratio,
            low=effect.low,
            high=effect.high,
        )


def _version(
    entry: ExperienceEntry, number: int, content: EntryContent, payload: dict[str, Any], note: str
) -> EntryVersion:
    return EntryVersion.objects.create(
        entry=entry,
        number=number,
        title=content.title,
        kind=content.kind,
        content=payload,
        note=note,
    )


def _follow_summary(run: Run, payload: dict[str, Any]) -> None:
    """A model's words for a draft become its next version, marked as such, unless a person was there first."""
    content = EntryContent.model_validate(payload)
    entry = ExperienceEntry.objects.filter(
        nominated_by=None,
        state=EntryState.DRAFT,
        evidence__before__run=run,
        evidence__before__number=content.provenance.parent_id or 0,
        evidence__after__number=content.provenance.candidate_id or 0,
        current__number=1,
    ).first()
    if entry is None:
        return
    entry.current = _version(entry, 2, content, payload, "put into words by a model")
    entry.save(update_fields=["current", "changed_at"])


_FOLLOWS = {
    "best": _follow_best,
    "island": _follow_island,
    "migration": _follow_migration,
    "budget": _follow_budget,
    "log": _follow_log,
    "result": _follow_result,
    "nomination": _follow_nomination,
    "summary": _follow_summary,
}


def record_model_call(run_id: int, fence: int, call: core_ledger.ModelCall) -> None:
    with held(run_id, fence) as run:
        number = call.candidate_id
        candidate = statements.candidate_keys(run_id, [number])[number] if number else None
        told = storable(call.model_dump(mode="json", exclude={"candidate_id"}))
        statements.insert([ModelCall(run=run, candidate_id=candidate, **told)])
        payload = {"candidate": number, **told}
        del payload["prompt"], payload["reply"]
        events.emit(run.pk, events.MODEL_CALL, payload)


def record_spending(run_id: int, fence: int, amounts: dict[str, float]) -> None:
    with held(run_id, fence) as run:
        for name, amount in amounts.items():
            run.spent[name] = run.spent.get(name, 0.0) + amount


def record_report(run_id: int, fence: int, report: TaskReport) -> None:
    """What inspecting the task found out; kept with the task, since it is the same for all its runs."""
    with held(run_id, fence) as run:
        document = storable(report.model_dump(mode="json"))
        Task.objects.filter(pk=run.task_id).update(report=document)
        events.emit(run.pk, events.TASK_REPORT, {"warnings": len(report.warnings)})


def record_state(
    run_id: int, fence: int, state: RunState, reason: str, *, device: str = ""
) -> RunState:
    """Change what the run does. Resting or over, it gives up its lease.

    Running while people want something else leaves what they see alone. Pausing that nobody asked for, since the runner
    itself is going away, puts the run back into the queue.

    Returns:
        The state that the run then has.
    """
    with held(run_id, fence) as run:
        if state is RunState.PAUSED and run.wanted == RunState.RUNNING:
            state = RunState.QUEUED
        if state is RunState.RUNNING:
            run.started_at = run.started_at or timezone.now()
            run.device = device or run.device
            if run.wanted != RunState.RUNNING:
                state = RunState(run.state)
        before = (run.state, run.stop_reason)
        _enter(run, state, storable_text(reason), timezone.now())
        run.save(update_fields=LIFE)
        if before == (run.state, run.stop_reason):
            return state
        payload = {"state": run.state, "wanted": run.wanted, "reason": run.stop_reason}
        events.emit(run.pk, events.RUN_STATE, payload)
    return state


def _enter(run: Run, state: RunState, reason: str, now: datetime) -> None:
    run.state, run.stop_reason = state, reason
    if state in (RunState.QUEUED, RunState.PAUSED) or state.is_over:
        run.runner, run.lease_until = None, None
    if state is RunState.PAUSED:
        run.wanted = RunState.RUNNING
    if state.is_over:
        run.finished_at = now


def take_steering(run_id: int, fence: int) -> list[Steering]:
    """Kernels by people that no earlier call returned, in order."""
    with held(run_id, fence) as run:
        waiting = list(
            Steering.objects.waiting(run.pk)
            .filter(source__isnull=False)
            .select_related("source", "author", "parent")
        )
        Steering.objects.filter(pk__in=[steering.pk for steering in waiting]).update(
            taken_at=timezone.now()
        )
    return waiting


def take_hints(run_id: int, fence: int, island: int) -> None:
    """People see that the runner has read their hints; hints stay in force."""
    with held(run_id, fence) as run:
        waiting = Steering.objects.waiting(run.pk).filter(source=None, island=island)
        waiting.update(taken_at=timezone.now())
