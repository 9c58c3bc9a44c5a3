"""Did the candidate's own kernels do the work? Each accusation names its evidence and who vouches for it.

Pure functions over what players reported and what the judge saw itself. What counts is what the output depends on: folding
parameters, a debug print, views, copies and casts are nobody's crime.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from gpu_runner.core.findings import Evidence, Finding, Location, Severity, Source
from gpu_runner.core.verdicts import Stage, Track
from gpu_runner.evaluation.child import compare
from gpu_runner.evaluation.child.flow import UNSEEN
from gpu_runner.evaluation.protocol import Accusation, Buffer, Launch, Operation, Ran

REMEMBERED_SHARE: Final = 0.125
"""Reading more elements than this share of the output's that an earlier call left is no bookkeeping."""
LEAST_REMEMBERED: Final = 16
LEAST_WRITTEN_SHARE: Final = 0.5
"""Own kernels and copies that write less than this share of the output at full size did not do the work."""

_SUGGESTIONS = {
    "torch_computes": "Do this computation inside a Triton kernel; folding parameters alone may stay.",
    "decoy_kernel": "Let the output depend on a kernel of your own.",
    "tampering": "Remove it: a candidate needs nothing but torch and triton.",
    "uses_reference": "Write the computation out; the reference is not available at run time.",
    "remembered_result": "Compute every call's output from that call's inputs.",
    "deferred_work": "Finish all work, on the current stream, before forward returns a plain tensor.",
    "too_little_work": "Compute the whole output at every size.",
}


def accuse(
    kind: str, title: str, evidence: Evidence, source: Source, line: int | None = None
) -> Finding:
    """A gate finding of the verdict `cheating`."""
    return Finding(
        stage=Stage.GENUINENESS,
        kind=kind,
        severity=Severity.GATE,
        source=source,
        title=title[:300],
        evidence=evidence,
        location=Location(line=line),
        suggestion=_SUGGESTIONS.get(kind, ""),
    )


def hooks(accusations: Iterable[Accusation]) -> list[Finding]:
    """What the audit hook and the snapshot saw; one finding a kind, the first in front."""
    by_kind: dict[str, list[Accusation]] = {}
    for accusation in accusations:
        by_kind.setdefault(accusation.kind, []).append(accusation)
    order = ("uses_reference", "tampering", "deferred_work", "torch_computes")
    found = []
    for kind in order:
        if seen := by_kind.get(kind):
            evidence: Evidence = {
                "events": [a.what for a in seen[:12]],
                "details": [a.detail[:200] for a in seen[:12]],
                "lines": [a.line or 0 for a in seen[:12]],
            }
            found.append(accuse(kind, seen[0].detail, evidence, Source.HOOK, seen[0].line))
    return found


def torch_computes(runs: Sequence[Ran], track: Track, *, has_floats: bool = True) -> Finding | None:
    """Computation by torch or a package, on the way from the inputs to the output.

    Args:
        has_floats: whether the task's inputs hold floating-point numbers; only where none do, integer
            arithmetic is the work itself and not mere indexing.
    """
    guilty = [
        op
        for run in runs
        for op in run.operations
        if is_forbidden(op, track)
        or (not has_floats and op.group == "integer" and op.from_inputs and op.reaches_output)
    ]
    if not guilty:
        return _foreign_launches(runs)
    largest = max(guilty, key=lambda op: op.elements)
    names = sorted({op.name for op in guilty})
    evidence: Evidence = {
        "operations": names[:20],
        "calls": sum(op.calls for op in guilty),
        "elements": max(op.elements for op in guilty),
        "hidden": any(op.hidden for op in guilty),
        "by_host": all(op.by_host for op in guilty),
        "lines": sorted({op.line for op in guilty if op.line})[:20],
        "own_launches": max(run.launch_count for run in runs),
        "track": track.value,
    }
    if largest.name == UNSEEN:
        title = "a kernel reads what somebody wrote out of sight, by no operation of torch and no kernel"
    elif largest.hidden:
        title = f"{largest.name} ran while torch's dispatch was switched off"
    elif largest.group == "host":
        title = f"the host reads {largest.elements:,} values through {largest.name} and computes with them"
    else:
        title = f"torch computes between input and output: {', '.join(names[:4])}"
    return accuse("torch_computes", title, evidence, Source.PLAYER, largest.line)


def is_forbidden(op: Operation, track: Track) -> bool:
    if not op.reaches_output or not op.from_inputs:
        return False
    if op.group == "library":
        return track is Track.OWN_KERNELS
    return op.group in ("compute", "random") or (
        op.group == "host" and op.name.startswith("Tensor.")
    )


def _foreign_launches(runs: Sequence[Ran]) -> Finding | None:
    foreign = sorted({launch.kernel for run in runs for launch in run.launches if not launch.own})
    if not foreign:
        return None
    title = f"launches kernels that are not in the candidate's source: {', '.join(foreign[:4])}"
    return accuse("torch_computes", title, {"kernels": foreign[:20]}, Source.PLAYER)


def no_launch(runs: Sequence[Ran], defined: Sequence[str]) -> Finding | None:
    """No own kernel was launched in any call."""
    if any(launch.own for run in runs for launch in run.launches):
        return None
    evidence: Evidence = {"calls": len(runs), "kernels_defined": list(defined)[:20], "launches": 0}
    title = (
        f"defines {', '.join(defined[:3])} and launches none of its kernels"
        if defined
        else "launches no Triton kernel of its own"
    )
    return accuse("decoy_kernel", title, evidence, Source.PLAYER)


def decoy(launches: Sequence[Launch], calls: int) -> Finding:
    """The output stayed right although every own kernel was made to do nothing."""
    names = sorted({launch.kernel for launch in launches if launch.own})
    evidence: Evidence = {"kernels": names[:20], "calls_without_kernels": calls}
    title = "the output is right even when the candidate's kernels do nothing"
    return accuse("decoy_kernel", title, evidence, Source.JUDGE)


def remembered(
    output: Sequence[torch.Tensor],
    earlier: Sequence[Sequence[torch.Tensor]],
    expected: Sequence[torch.Tensor],
    earlier_expected: Sequence[Sequence[torch.Tensor]],
) -> Finding | None:
    """This call's wrong output is, bit for bit, an earlier call's right one."""
    for call, (then, then_expected) in enumerate(zip(earlier, earlier_expected, strict=True)):
        if identical(output, then) and not identical(expected, then_expected):
            evidence: Evidence = {"same_as_call": call + 1, "call": len(earlier) + 1}
            title = f"returns the result of call {call + 1} although the inputs are new"
            return accuse("remembered_result", title, evidence, Source.JUDGE)
    return None


def reads_earlier_call(runs: Sequence[Ran], output_elements: int) -> Finding | None:
    """Torch puts the output together from what an earlier call made of its own inputs."""
    for run in runs:
        stale = [
            op for op in run.operations if op.is_stale and op.reaches_output and not op.by_host
        ]
        elements = sum(op.elements for op in stale)
        if is_remembered(elements, output_elements):
            evidence: Evidence = {
                "operations": sorted({op.name for op in stale})[:20],
                "elements": elements,
                "output_elements": output_elements,
            }
            title = f"the output holds {elements:,} elements that an earlier call computed"
            return accuse("remembered_result", title, evidence, Source.PLAYER, stale[0].line)
    return None


def kernel_reads_earlier_call(
    seen: Sequence[dict[str, Any]], output_elements: int
) -> Finding | None:
    """Kernels read what an earlier call left in memory of its own; zeros and the like do not count."""
    elements = sum(int(s.get("count", 0)) for s in seen)
    if not is_remembered(elements, output_elements):
        return None
    most = max(seen, key=lambda s: int(s.get("count", 0)))
    line = most.get("line")
    evidence: Evidence = {
        "kernel": str(most.get("kernel"))[:120],
        "tensor": str(most.get("tensor"))[:120],
        "elements": elements,
        "output_elements": output_elements,
    }
    title = (
        f"{evidence['kernel']} reads {elements:,} elements of {evidence['tensor']}"
        f" that an earlier call left there"
    )
    return accuse(
        "remembered_result",
        title,
        evidence,
        Source.INTERPRETER,
        line if isinstance(line, int) and line > 0 else None,
    )


def is_remembered(elements: int, output_elements: int) -> bool:
    return elements >= max(LEAST_REMEMBERED, REMEMBERED_SHARE * output_elements)


def identical(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(compare.identical(x, y) for x, y in zip(a, b, strict=True))


def sourceless(run: Ran, varying: Iterable[int]) -> Finding | None:
    """An output that changes with the inputs although nothing of them was seen to go into it.

    Args:
        varying: outputs of the reference that differ from call to call.
    """
    found = sorted(set(run.sourceless) & set(varying))
    if not found:
        return None
    title = (
        f"nothing that was seen carries an input to output {found[0]}:"
        " its values were computed by the host or out of sight"
    )
    evidence: Evidence = {"outputs": found, "launches": run.launch_count}
    return accuse("torch_computes", title, evidence, Source.PLAYER)


def told_alone(blind: Sequence[torch.Tensor], of_other: Sequence[torch.Tensor]) -> Finding | None:
    """Told the numbers that the host had read in another call, a call gave that one's answer, bit for bit."""
    if not blind or not of_other or not identical(blind, of_other):
        return None
    title = "the host computes the output from numbers that it reads: of others it made another call's answer"
    return accuse("torch_computes", title, {"outputs": len(blind)}, Source.JUDGE)


def deferred(run: Ran) -> Finding | None:
    """Work that is left for whoever reads the output, or for a thread."""
    if run.lazy_outputs:
        title = f"returns {run.lazy_outputs[0]} instead of a plain tensor, so its work can wait until it is read"
        return accuse("deferred_work", title, {"types": list(run.lazy_outputs)}, Source.PLAYER)
    if run.threads:
        title = f"{run.threads} thread(s) still ran when the call had returned"
        return accuse("deferred_work", title, {"threads": run.threads}, Source.PLAYER)
    return None


def torch_computes_at_full_size(
    operations: Sequence[Operation], track: Track, *, has_floats: bool
) -> Finding | None:
    """What torch computes in a full-size call over memory that was only reserved; numbers read there mean nothing."""
    decided = tuple(op for op in operations if not op.by_host and op.group != "host")
    run = Ran(tree=None, outputs=Buffer(nbytes=0, places=()), operations=decided)
    found = torch_computes([run], track, has_floats=has_floats)
    if found is None:
        return None
    return found.model_copy(update={"title": f"at full size {found.title}"[:300]})


def other_kernels(interpreted_only: Sequence[str], compiled: Iterable[str]) -> Finding | None:
    """Where kernels are compiled, others are launched than where they are interpreted, in the same full-size call."""
    if not interpreted_only:
        return None
    evidence: Evidence = {
        "interpreted": list(interpreted_only)[:20],
        "compiled": sorted(set(compiled))[:20],
    }
    names = ", ".join(interpreted_only[:3])
    title = f"launches {names} in this way only where kernels are interpreted, not where they are compiled"
    return accuse("decoy_kernel", title, evidence, Source.JUDGE)


def emptied(computes: Mapping[str, Iterable[str]]) -> Finding | None:
    """A kernel computes at probe size, where it is interpreted, and not at full size, where it is compiled."""
    if not computes:
        return None
    name = next(iter(computes))
    words = {
        "float": "arithmetic",
        "math": "exponentials and the like",
        "reduce": "reductions",
        "dot": "matrix products",
    }
    missing = ", ".join(words.get(kind, kind) for kind in sorted(computes[name]))
    evidence: Evidence = {"kernels": list(computes)[:20], "missing": sorted(computes[name])}
    title = f"{name} computes where it is interpreted ({missing}), and nothing of it where it is compiled"
    return accuse("decoy_kernel", title, evidence, Source.JUDGE)


def too_little_work(stored_bytes: float, output_bytes: int, *, is_complete: bool) -> Finding | None:
    """At full size less is written than the output holds, though the probe was computed whole.

    Args:
        is_complete: whether no sampled program ran out of time; what it would have written then is not known.
    """
    if not is_complete or output_bytes == 0 or stored_bytes >= LEAST_WRITTEN_SHARE * output_bytes:
        return None
    evidence: Evidence = {
        "stored_bytes": stored_bytes,
        "output_bytes": output_bytes,
        "share": stored_bytes / output_bytes,
    }
    title = f"at full size the kernels write {stored_bytes / output_bytes:.0%} of the output"
    return accuse("too_little_work", title, evidence, Source.PLAYER)


def forged(detail: str) -> Finding:
    title = "the candidate's process answered what was not asked, in the evaluation's own channel"
    return accuse("forged_result", title, {"detail": detail[:500]}, Source.JUDGE)
