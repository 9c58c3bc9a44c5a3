"""How a candidate fares at sizes other than the probe's: divisible ones, one size grown, or the whole task.

Asked where the probe cannot tell: it failed and may be made for the full sizes, or the full-size call touches less memory.
"""

from collections.abc import Sequence
from typing import Final

from gpu_runner.core.findings import Finding, Severity, Source
from gpu_runner.core.verdicts import Stage, Verdict
from gpu_runner.evaluation.child import failures, gates, trials
from gpu_runner.evaluation.child.arena import Arena
from gpu_runner.evaluation.child.failures import Stop
from gpu_runner.evaluation.child.open_task import OpenTask
from gpu_runner.evaluation.child.trials import Contestant
from gpu_runner.evaluation.protocol import Modelled

WHOLE_S: Final = 120.0
"""For one call at full size on the interpreter; `gates.can_be_interpreted_whole` keeps it far below."""


def why_full_size_only(task: OpenTask, source: str) -> str:
    """In what way the candidate depends on the full sizes; empty if it fails at all sizes alike."""
    modelled = task.modelled
    if modelled is not None and task.probe is not None:
        full = modelled.places, modelled.init
        small = task.probe.described.buffers[0].places, task.probe.described.init
        literals = gates.literals_of_full_size(source, full, small)
        if literals:
            return f"it is written for the full size ({literals[0]} stands in its source) and fails at probe size"
    arena = task.aligned_arena()
    if arena is None:
        return ""
    if _tried(task, source, arena, whole=True) is not None or when_grown(task, source) is not None:
        return ""
    return "it needs sizes as divisible as the full ones and fails at ragged probe sizes"


def when_grown(task: OpenTask, source: str, seen: set[str] | None = None) -> Stop | None:
    """How the candidate fails where one size is as large as in the full task, if it does.

    Args:
        seen: kernels that were launched in a right call are added to it.
    """
    for values, arena in task.grown_arenas():
        stop = _tried(task, source, arena, whole=False, seen=seen)
        if stop is None or stop.verdict not in (Verdict.INCORRECT, Verdict.RUNTIME_ERROR):
            continue
        sizes = ", ".join(f"{key} = {value}" for key, value in values.items())
        title = f"with {sizes or 'all sizes'} and the rest as large as given: {stop.finding.title}"
        return Stop(stop.verdict, stop.finding.model_copy(update={"title": title[:300]}))
    return None


def when_whole(
    task: OpenTask, source: str, modelled: Modelled, task_model: Modelled, seen: set[str]
) -> Stop | None:
    """How the candidate fails on real inputs of the full size; that it cannot be tried if nothing else tells.

    Args:
        seen: as for `when_grown`.
    """
    arena = None
    if gates.can_be_interpreted_whole(modelled, task_model):
        arena = task.whole_arena()
    if arena is not None:
        stop = _tried(task, source, arena, whole=False, limit_s=WHOLE_S, seen=seen)
        if stop is None or stop.verdict in (Verdict.INCORRECT, Verdict.RUNTIME_ERROR):
            return stop
    if not gates.reads_hardly(modelled, task_model):
        return None
    reason = "at full size it seems to read less than half of what the reference reads"
    return Stop(None, failures.unevaluable(Stage.TIMING, reason))


def unchecked(kernels: Sequence[str]) -> Finding:
    """For kernels of a full-size call that were never seen to be right."""
    return Finding(
        stage=Stage.GENUINENESS,
        kind="unchecked_kernel",
        severity=Severity.WARNING,
        source=Source.JUDGE,
        title=f"launched at full size only, where its values were not compared: {', '.join(kernels[:4])}"[
            :300
        ],
        evidence={"kernels": list(kernels[:20])},
        suggestion="Evaluate it on a GPU, where the full size is compared.",
    )


def _tried(
    task: OpenTask,
    source: str,
    arena: Arena,
    *,
    whole: bool,
    limit_s: float | None = None,
    seen: set[str] | None = None,
) -> Stop | None:
    """How the candidate fails in another arena: in all trials, or in a single call."""
    contestant = Contestant(task.new_player("interpreter"), arena, Stage.PROBE)
    try:
        arena.reset()
        trials.load(contestant, source)
        trials.construct(contestant)
        if whole:
            trials.trials(contestant)
        else:
            limit = limit_s or task.deadlines.noop
            trials.trial(contestant, arena.mixer.next(), poison="nan", timeout_s=limit)
        if seen is not None:
            seen |= {launch.kernel for run in contestant.runs for launch in run.launches}
    except Stop as stop:
        return stop
    finally:
        contestant.close()
    return None
