"""One candidate against one arena: fresh calls, what they must give, and which verdict a failure has."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from gpu_runner.core.findings import Evidence, Finding, Location, Severity, Source
from gpu_runner.core.verdicts import Stage, Track, Verdict
from gpu_runner.evaluation.child import (
    compare,
    failures,
    genuineness,
    memory_findings,
    structure,
)
from gpu_runner.evaluation.child.arena import Arena, Truth
from gpu_runner.evaluation.child.failures import Stop
from gpu_runner.evaluation.child.links import PlayerLink, PlayerLost
from gpu_runner.evaluation.child.memory import Lent
from gpu_runner.evaluation.child.touching import evidence_of
from gpu_runner.evaluation.protocol import (
    Composition,
    Constructed,
    Encoded,
    Failed,
    Load,
    Loaded,
    Ran,
    Report,
    Reported,
    Run,
)

TRIALS: Final = 5
TRIALS_LIMIT_S: Final = 120.0
"""Calls that take so long together end the trials early, which the evaluation then says."""
STRUCTURED_BUDGET_S: Final = 8.0
AGAIN: Final = "right at first, wrong when called again: "
STRUCTURED: Final = ("extremes", "ties")
LATE: Final = (6, 25)
"""How many calls come after the trials: the judge picks a number, and which of them it looks at."""
LATE_PROGRAMS: Final = 400
FEWEST_LATE: Final = 3
"""Calls that launch many programs or take long are made less often, but never less than this."""
LATE_BUDGET_S: Final = 8.0
LOOKED_AT: Final = 0.25


def _to_nobody() -> None:
    return


@dataclass
class Contestant:
    """A candidate's player in an arena, and what has been seen of it so far."""

    link: PlayerLink
    arena: Arena
    stage: Stage
    loaded: Loaded | None = None
    constructed: Constructed | None = None
    runs: list[Ran] = field(default_factory=list)
    outputs: list[list[torch.Tensor]] = field(default_factory=list)
    truths: list[Truth] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    rooms: dict[str, Lent] = field(default_factory=dict)
    last: list[torch.Tensor] = field(default_factory=list)
    """The last call's outputs as they were then, where the judge asked for them."""
    before: list[torch.Tensor] = field(default_factory=list)
    """The same of the call before the last."""
    give_way: Callable[[], None] = _to_nobody
    """Called before each call: others may wait to time on the device."""

    def accusations(self) -> list[Finding]:
        """What the hook saw until now; nothing once the player is gone."""
        if self.link.exit is not None:
            return []
        try:
            answer = self.link.ask(Report(), Reported, 20.0)
        except PlayerLost:
            return []
        if isinstance(answer, Failed):
            return []
        found = genuineness.hooks(answer.accusations)
        return found or below_policy(self, answer)

    def close(self) -> None:
        self.link.close()
        for lent in self.rooms.values():
            lent.close()
        self.rooms.clear()


def below_policy(contestant: Contestant, answer: Reported) -> list[Finding]:
    """The candidate turned TF32 on for torch's own operations where the policy leaves it off."""
    matmul, convolution = contestant.arena.tf32_flags
    if (matmul or not answer.matmul_tf32) and (convolution or not answer.conv_tf32):
        return []
    return [
        Finding(
            stage=contestant.stage,
            kind="precision_below_policy",
            severity=Severity.GATE,
            source=Source.PLAYER,
            title="the candidate turns TF32 on, which the policy of this task leaves off",
            evidence={"matmul_tf32": answer.matmul_tf32, "conv_tf32": answer.conv_tf32},
        )
    ]


# Getting ready


def load(contestant: Contestant, source: str) -> None:
    """Import the candidate. Raises Stop."""
    arena = contestant.arena
    request = Load(
        source=source,
        role="candidate",
        device=str(arena.memory.device),
        precision=arena.precision.value,
        tf32=arena.tf32_flags,
        target=arena.spec.target,
    )
    contestant.loaded = _asked(
        contestant, request, Loaded, arena.deadlines.imports, (), Stage.LOAD, "import"
    )


def construct(contestant: Contestant) -> None:
    """Build the candidate's module with the reference's seed and state. Raises Stop."""
    arena = contestant.arena
    try:
        answer = arena.seat(contestant.link)
    except PlayerLost as lost:
        raise failures.why_lost(lost, Stage.LOAD, "construct") from lost
    if isinstance(answer, Failed):
        raise failures.why_failed(answer, Stage.LOAD)
    contestant.constructed = answer
    room = arena.memory.lend
    contestant.rooms = {
        "outputs": room(arena.outputs.nbytes),
        "previous": room(arena.outputs.nbytes),
        "after": room(arena.places_after.nbytes),
        "buffers": room(arena.places_buffers.nbytes),
    }


def _asked(
    contestant: Contestant,
    request: Any,
    kind: Any,
    timeout_s: float,
    fds: Sequence[int],
    stage: Stage,
    step: str,
) -> Any:
    try:
        answer = contestant.link.ask(request, kind, timeout_s, fds)
    except PlayerLost as lost:
        raise failures.why_lost(lost, stage, step) from lost
    if isinstance(answer, Failed):
        raise failures.why_failed(answer, stage)
    return answer


# Calls


def call(
    contestant: Contestant,
    composition: Composition,
    *,
    timeout_s: float | None = None,
    **options: Any,
) -> tuple[Ran, Truth, list[torch.Tensor]]:
    """One call on a composition, the reference's beside it. Raises Stop when the player is lost or fails."""
    arena, rooms = contestant.arena, contestant.rooms
    contestant.give_way()
    rooms["outputs"].tensor(_all_bytes(rooms["outputs"])).fill_(0xA5)
    given: dict[str, Any] = {"outputs": arena.outputs, "after": arena.places_after}
    if arena.buffer_names:
        given["buffers"] = arena.places_buffers
    if contestant.last:
        given["previous"] = arena.outputs
    request = Run(composition=composition, buffer_names=arena.buffer_names, **given, **options)
    order = [name for name in ("outputs", "after", "buffers", "previous") if name in given]
    try:
        contestant.link.send(request, [rooms[name].fd for name in order])
        truth = arena.truth(composition, watched=False)
        answer = contestant.link.answer(Ran, timeout_s or arena.deadlines.call)
    except PlayerLost as lost:
        raise failures.why_lost(lost, contestant.stage, "call") from lost
    if isinstance(answer, Failed):
        raise failures.why_failed(answer, contestant.stage)
    outputs = [rooms["outputs"].tensor(p).clone() for p in arena.outputs.places]
    contestant.before = contestant.last
    contestant.last = outputs if "outputs" in answer.stored else []
    return answer, truth, contestant.last


def trials(contestant: Contestant) -> None:
    """Fresh calls in several circumstances; each must be right. Raises Stop at the first that is not."""
    arena = contestant.arena
    first = arena.mixer.next()
    spent = trial(contestant, first, poison="nan", timeout_s=first_call_s(contestant))
    spent += _trial_backwards(contestant, first)
    _check_repeatable(contestant)
    # A call that looks unwatched is worth something only where time is measured, which no watch may slow down.
    unwatched: dict[str, Any] = {"watched": arena.memory.device.type == "cpu"}
    plans: list[dict[str, Any]] = [{"audit": True}, unwatched]
    plans += [{"poison": "nan"} for _ in range(TRIALS - 1 - len(plans))]
    for number, plan in enumerate(plans):
        if number and spent > TRIALS_LIMIT_S:
            contestant.notes.append(_few_trials(contestant, 1 + number, spent))
            break
        spent += trial(contestant, arena.mixer.next(), **plan)
    for kind in STRUCTURED:
        if spent <= STRUCTURED_BUDGET_S:
            spent += _structured(contestant, kind)


def _few_trials(contestant: Contestant, inputs: int, seconds: float) -> Finding:
    return Finding(
        stage=contestant.stage,
        kind="few_trials",
        severity=Severity.WARNING,
        source=Source.JUDGE,
        title=f"compared on {inputs} different inputs instead of {TRIALS}: the calls took {seconds:.0f} s",
        evidence={"inputs": inputs, "wanted": TRIALS, "seconds": seconds},
        suggestion="Evaluate it on a GPU, where every trial runs.",
    )


def trial(contestant: Contestant, composition: Composition, **options: Any) -> float:
    """One call that must be right; answers with its seconds."""
    ran, truth, outputs = call(contestant, composition, **options)
    contestant.runs.append(ran)
    _check_safe(contestant, ran)
    if found := genuineness.deferred(ran):
        raise Stop(Verdict.CHEATING, found)
    _check_form(contestant, ran, truth)
    _check_remembered(contestant, outputs, truth)
    check_values(contestant, ran, truth, outputs)
    _check_stale(contestant, ran)
    _check_side_effects(contestant, ran, truth)
    contestant.outputs.append(outputs)
    contestant.truths.append(truth)
    return ran.seconds


def _trial_backwards(contestant: Contestant, composition: Composition) -> float:
    """The same inputs again, programs from last to first: what is right in one order only is a race, not a memory."""
    try:
        return trial(contestant, composition, poison="number", backwards=True)
    except Stop as stop:
        if stop.finding.kind not in ("values", "nan", "state") or not (
            _is_right(contestant, composition, backwards=False)
            and not _is_right(contestant, composition, backwards=True)
        ):
            raise
        mismatch = stop.finding.title.removeprefix(AGAIN)
        title = f"wrong when its programs run in another order: {mismatch}"[:300]
        update = {"kind": "race", "title": title, "suggestion": _VALUE_SUGGESTIONS["race"]}
        raise Stop(Verdict.INCORRECT, stop.finding.model_copy(update=update)) from stop


def _is_right(contestant: Contestant, composition: Composition, *, backwards: bool) -> bool:
    try:
        _, truth, outputs = call(contestant, composition, poison="number", backwards=backwards)
    except Stop:
        return False
    return bool(outputs) and _wrong_output(contestant, truth, outputs) is None


def first_call_s(contestant: Contestant) -> float:
    """The first call compiles; only on a device does that take long."""
    deadlines = contestant.arena.deadlines
    if contestant.arena.memory.device.type == "cpu" or contestant.loaded is None:
        return deadlines.call
    return deadlines.call + deadlines.compile * max(1, len(contestant.loaded.kernels))


def _structured(contestant: Contestant, kind: str) -> float:
    """Ties and extremes of the observed range; only where the reference stays finite and accurate itself."""
    composition = contestant.arena.mixer.structured(kind)
    if composition is None:
        return 0.0
    ran, truth, outputs = call(contestant, composition)
    contestant.runs.append(ran)
    floating = [e for e in truth.outputs if e.is_floating]
    if any(e.is_ill_conditioned or not bool(torch.isfinite(e.truth).all()) for e in floating):
        return ran.seconds
    # Which of several equal elements is chosen, no reference promises.
    without_choices = [
        truth.native[i] if _is_index(truth.native[i]) else got for i, got in enumerate(outputs)
    ]
    found = _wrong_output(contestant, truth, without_choices)
    if found is not None:
        index, mismatch = found
        title = f"right on the given inputs, wrong on {kind} of their range: {mismatch.title}"
        finding = _value_finding(contestant, index, mismatch, "outside_given_distribution", title)
        raise Stop(Verdict.INCORRECT, finding)
    return ran.seconds


def _is_index(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.int32, torch.int64)


def noop(contestant: Contestant) -> Finding | None:
    """A fresh call in which own kernels do nothing: it must not be right. Ends the player's use.

    Memory that an earlier call wrote may hold the right answer where inputs come again; so it is overwritten, by a finite
    number: a NaN would make an output wrong that a decoy adds to times zero.
    """
    arena = contestant.arena
    try:
        ran, truth, outputs = call(
            contestant,
            arena.mixer.next(),
            noop=True,
            poison="number",
            watched=arena.memory.device.type == "cpu",
            timeout_s=arena.deadlines.noop,
        )
    except Stop:
        return None  # without its kernels it fails: they matter
    if not outputs or _wrong_output(contestant, truth, outputs) is not None:
        return None
    if _wrong_scalars(contestant, ran.tree, truth.tree):
        return None
    return genuineness.decoy(ran.launches or contestant.runs[0].launches, 1)


# Checks of one call


def _check_safe(contestant: Contestant, ran: Ran) -> None:
    if ran.unevaluable:
        raise Stop(None, failures.unevaluable(contestant.stage, ran.unevaluable))
    for seen in ran.memory:
        if seen.get("kind") == "stale":
            continue
        kind, certain = str(seen.get("kind")), bool(seen.get("certain", True))
        finding = memory_findings.finding_of(contestant.stage, seen, kind)
        if kind == "out_of_bounds":
            raise Stop(Verdict.RUNTIME_ERROR, finding)
        if kind == "launch":
            raise Stop(Verdict.RUNTIME_ERROR, finding)
        if kind in ("race", "unwritten") and certain:
            raise Stop(Verdict.INCORRECT, finding)
        note = finding.model_copy(update={"severity": Severity.NOTE})
        if note not in contestant.notes and len(contestant.notes) < 20:
            contestant.notes.append(note)


def _check_stale(contestant: Contestant, ran: Ran) -> None:
    """Of a right answer: to leave old numbers in it is a mistake, to answer with them is a memory."""
    stale = [seen for seen in ran.memory if seen.get("kind") == "stale"]
    if found := genuineness.kernel_reads_earlier_call(stale, _output_elements(contestant)):
        raise Stop(Verdict.CHEATING, found)


def _output_elements(contestant: Contestant) -> int:
    return sum(math.prod(place.shape) for place in contestant.arena.outputs.places)


def _check_form(contestant: Contestant, ran: Ran, truth: Truth) -> None:
    """Structure, shapes, dtypes, device and numbers that are no tensors."""
    places, wanted = ran.outputs.places, contestant.arena.outputs.places
    if not structure.is_alike(ran.tree, truth.tree):
        title = f"returns {structure.words(ran.tree, places)}, the reference {structure.words(truth.tree, wanted)}"
        raise _incorrect(contestant, "structure", title)
    for i, (got, want) in enumerate(zip(places, wanted, strict=True)):
        if got.shape != want.shape:
            evidence: Evidence = {"got": list(got.shape), "expected": list(want.shape)}
            title = f"output {i} has shape {list(got.shape)}, the reference's {list(want.shape)}"
            raise _incorrect(contestant, "shape", title, evidence)
        if got.dtype != want.dtype:
            evidence = {"got": got.dtype, "expected": want.dtype}
            title = f"output {i} is {got.dtype}, the reference's {want.dtype}"
            raise _incorrect(contestant, "dtype", title, evidence)
    device = str(contestant.arena.memory.device)
    for i, name in enumerate(ran.devices):
        if name != device:
            raise _incorrect(contestant, "device", f"output {i} is on {name}, not on {device}")
    if wrong := _wrong_scalars(contestant, ran.tree, truth.tree):
        raise _incorrect(contestant, "values", wrong)
    if "outputs" not in ran.stored:
        raise Stop(Verdict.CHEATING, genuineness.forged("the outputs were not handed over"))


def check_values(
    contestant: Contestant, ran: Ran, truth: Truth, outputs: Sequence[torch.Tensor]
) -> None:
    found = _wrong_output(contestant, truth, outputs)
    if found is None:
        return
    index, mismatch = found
    kind = mismatch.kind
    if _is_unwritten(contestant, ran, index):
        share = ran.unwritten[index] if index < len(ran.unwritten) else 0.0
        title = f"{share:.1%} of output {index} was never written"
        raise Stop(
            Verdict.INCORRECT, _value_finding(contestant, index, mismatch, "unwritten", title)
        )
    constructed = contestant.constructed
    if (
        kind == "values"
        and constructed is not None
        and (constructed.missing and constructed.unexpected)
    ):
        title = (
            f"wrong values, and the reference's {', '.join(constructed.unexpected[:3])} found no"
            f" counterpart of the same name and shape"
        )
        raise Stop(
            Verdict.INCORRECT, _value_finding(contestant, index, mismatch, "parameters", title)
        )
    if kind == "values" and _equals_an_input(contestant, truth, outputs[index]):
        title = f"output {index} is one of the inputs as it came"
        raise Stop(
            Verdict.INCORRECT, _value_finding(contestant, index, mismatch, "trivial_answer", title)
        )
    if _is_drift(contestant, truth):
        title = f"{AGAIN}{mismatch.title}"
        raise Stop(Verdict.INCORRECT, _value_finding(contestant, index, mismatch, "state", title))
    raise Stop(Verdict.INCORRECT, _value_finding(contestant, index, mismatch, kind))


def _wrong_output(
    contestant: Contestant, truth: Truth, outputs: Sequence[torch.Tensor]
) -> tuple[int, compare.Mismatch] | None:
    for i, (got, expected) in enumerate(zip(outputs, truth.outputs, strict=True)):
        found = compare.mismatch(got, expected)
        if found is not None:
            return i, found
    return None


def _is_unwritten(contestant: Contestant, ran: Ran, index: int) -> bool:
    return index < len(ran.unwritten) and ran.unwritten[index] > 0


def _is_drift(contestant: Contestant, truth: Truth) -> bool:
    """The same inputs were answered rightly before."""
    return any(t.composition == truth.composition for t in contestant.truths)


def _equals_an_input(contestant: Contestant, truth: Truth, output: torch.Tensor) -> bool:
    return any(
        given.shape == output.shape and torch.equal(given.to(output.dtype), output)
        for given in contestant.arena.composed(truth.composition)
    )


def _check_remembered(
    contestant: Contestant, outputs: Sequence[torch.Tensor], truth: Truth
) -> None:
    if _wrong_output(contestant, truth, outputs) is None:
        return
    # The same inputs give what they gave before: that is no memory, even where the reference's state has moved on.
    earlier = [
        truth.native if t.composition == truth.composition else t.native for t in contestant.truths
    ]
    found = genuineness.remembered(outputs, contestant.outputs, truth.native, earlier)
    if found is not None:
        raise Stop(Verdict.CHEATING, found)


def _check_side_effects(contestant: Contestant, ran: Ran, truth: Truth) -> None:
    arena = contestant.arena
    for index in sorted(set(ran.relaid) - set(truth.relaid)):
        title = f"input {index} has another shape or layout after the call; the reference leaves it as it came"
        raise _incorrect(contestant, "input_changed", title)
    if "after" in ran.stored:
        room = contestant.rooms["after"]
        given = arena.composed(truth.composition)
        for i, place in enumerate(arena.places_after.places):
            _check_input_after(contestant, i, room.tensor(place), given[i], truth.after[i])
    if "previous" in ran.stored and contestant.before:
        room = contestant.rooms["previous"]
        for place, then in zip(arena.outputs.places, contestant.before, strict=True):
            if not compare.identical(room.tensor(place), then):
                title = "the result of an earlier call changes when the module is called again"
                raise _incorrect(contestant, "state", title, {"reason": "output storage is reused"})
    _check_buffers(contestant, ran, truth)


def _check_input_after(
    contestant: Contestant,
    index: int,
    after: torch.Tensor,
    given: torch.Tensor,
    wanted: torch.Tensor,
) -> None:
    """An input may be left as it came, or changed as the reference changes it; it must be where INPLACE is declared."""
    arena = contestant.arena
    is_changed = not compare.identical(given, wanted)
    if compare.identical(after, given) and not (is_changed and arena.is_inplace):
        return
    if not is_changed:
        title = f"input {index} is changed by the call; the reference leaves it as it came"
        raise _incorrect(contestant, "input_changed", title)
    tolerance = arena.tolerance_for(wanted.dtype)
    found = compare.mismatch(after, compare.expect(wanted, None, tolerance))
    if found is not None:
        title = f"input {index} is not changed as the reference changes it: {found.title}"
        raise _incorrect(contestant, "input_changed", title, found.evidence)


def _check_buffers(contestant: Contestant, ran: Ran, truth: Truth) -> None:
    arena = contestant.arena
    if not arena.buffer_names or not truth.buffers:
        return
    if "buffers" not in ran.stored:
        names = ", ".join(arena.buffer_names[:4])
        title = f"the reference's forward updates {names}; the candidate has no such buffers"
        raise _incorrect(contestant, "state", title)
    room = contestant.rooms["buffers"]
    for name, place, native in zip(
        arena.buffer_names, arena.places_buffers.places, truth.buffers, strict=True
    ):
        tolerance = arena.tolerance_for(native.dtype)
        found = compare.mismatch(room.tensor(place), compare.expect(native, None, tolerance))
        if found is not None:
            title = f"buffer {name} is not what the reference's forward leaves: {found.title}"
            raise _incorrect(contestant, "state", title, found.evidence)


def _check_repeatable(contestant: Contestant) -> None:
    """The second call had the first's inputs; different bits are a note, wrong ones were found already."""
    first, second = contestant.outputs[0], contestant.outputs[1]
    if all(compare.identical(a, b) for a, b in zip(first, second, strict=True)):
        return
    difference = max(compare.max_difference(a, b) for a, b in zip(first, second, strict=True))
    contestant.notes.append(
        Finding(
            stage=contestant.stage,
            kind="nondeterminism",
            severity=Severity.NOTE,
            source=Source.JUDGE,
            title="the same inputs give slightly different bits when programs run in another order",
            evidence={"max_difference": difference},
        )
    )


def _wrong_scalars(contestant: Contestant, got: Encoded, wanted: Encoded) -> str:
    """How a number that is no tensor differs; empty if none does."""
    return structure.unlike_numbers(got, wanted, contestant.arena.tolerance_for(torch.float32))


def _incorrect(
    contestant: Contestant, kind: str, title: str, evidence: Evidence | None = None
) -> Stop:
    finding = Finding(
        stage=contestant.stage,
        kind=kind,
        severity=Severity.GATE,
        source=Source.JUDGE,
        title=title[:300],
        evidence=evidence or {},
    )
    return Stop(Verdict.INCORRECT, finding)


_VALUE_SUGGESTIONS = {
    "values": "Compare the marked region's index arithmetic, masks and strides with the reference.",
    "nan": "Look for divisions by zero, overflow in exp, or masked lanes that reach a reduction.",
    "unwritten": "Let the grid and the masks cover the whole output.",
    "parameters": "Keep the reference's parameter names and shapes; re-pack them at the first call.",
    "trivial_answer": "Compute the output; a constant is not taken for an answer.",
    "outside_given_distribution": "Make it stable over the whole range of values the inputs can have.",
    "state": "Keep nothing between calls but weights.",
    "race": "Let no program read what another one writes in the same launch; split it into two launches.",
}


def _value_finding(
    contestant: Contestant,
    index: int,
    mismatch: compare.Mismatch,
    kind: str,
    title: str | None = None,
) -> Finding:
    output = f"output {index}"
    seen = evidence_of(contestant.runs[-1].touched if contestant.runs else (), output)
    kernels = seen.get("stored_by")
    return Finding(
        stage=contestant.stage,
        kind=kind,
        severity=Severity.GATE,
        source=Source.JUDGE,
        title=(title or mismatch.title)[:300],
        evidence={**mismatch.evidence, **seen},
        location=Location(
            kernel=str(kernels[0]) if isinstance(kernels, list) else None,
            tensor=output,
            region=mismatch.region[:200],
        ),
        suggestion=_VALUE_SUGGESTIONS.get(kind, ""),
    )


def _all_bytes(lent: Lent) -> Any:
    from gpu_runner.evaluation.protocol import Placed

    return Placed(shape=(lent.nbytes,), dtype="uint8")


# Genuineness over all calls


def late(contestant: Contestant, rng: random.Random) -> None:
    """Go on calling, how often nobody knows before, and look at some calls and the last. Raises Stop.

    All calls but those are as cheap as one can be; what is counted in them counts all the same. Where calls change the
    module's state, the reference has to keep up with them, so all are looked at.
    """
    has_state = bool(contestant.arena.buffer_names)
    programs = sum(math.prod(launch.grid) for launch in contestant.runs[0].launches)
    number = min(rng.randrange(*LATE), max(FEWEST_LATE, LATE_PROGRAMS // max(1, programs)))
    started = time.monotonic()
    for left in reversed(range(number)):
        is_slow = time.monotonic() - started > LATE_BUDGET_S
        if is_slow and 0 < left < number - FEWEST_LATE:
            continue
        composition = contestant.arena.mixer.next()
        if left == 0 or has_state or rng.random() < LOOKED_AT:
            trial(contestant, composition)
        else:
            request = Run(composition=composition)
            timeout_s = contestant.arena.deadlines.call
            ran = _asked(contestant, request, Ran, timeout_s, (), contestant.stage, "call")
            contestant.runs.append(ran)
            contestant.last = []
            _check_safe(contestant, ran)
            _check_stale(contestant, ran)
            if found := genuineness.deferred(ran):
                raise Stop(Verdict.CHEATING, found)


def genuine(contestant: Contestant, track: Track) -> None:
    """Raises Stop(cheating) unless own kernels made the output. The last thing asked of the player."""
    genuine_so_far(contestant, track)
    found = noop(contestant)
    if found is not None:
        raise Stop(Verdict.CHEATING, found)


def genuine_so_far(contestant: Contestant, track: Track) -> None:
    """Raises Stop(cheating) if the calls until now show that others than own kernels made the output."""
    runs = [run for run in contestant.runs if run.operations or run.launches]
    found = _computed_by_torch(contestant, runs, track)
    if found is None:
        varying = _varying_outputs(contestant)
        found = next(filter(None, (genuineness.sourceless(run, varying) for run in runs)), None)
    if found is None and reads_numbers(contestant):
        found = _told_alone(contestant)
    if found is None:
        found = genuineness.reads_earlier_call(runs, _output_elements(contestant))
    if found is None:
        defined = contestant.loaded.kernels if contestant.loaded else ()
        found = genuineness.no_launch(runs, defined)
    if found is not None:
        raise Stop(Verdict.CHEATING, found)


def _varying_outputs(contestant: Contestant) -> list[int]:
    """Outputs that hang on the tensors among the inputs: they alone differ from call to call."""
    arena, truths = contestant.arena, contestant.truths
    if not arena.sets[0] or any(tree != arena.described.trees[0] for tree in arena.described.trees):
        return []
    return [
        i
        for i in range(len(arena.outputs.places))
        if any(not compare.identical(t.native[i], truths[0].native[i]) for t in truths[1:])
    ]


def reads_numbers(contestant: Contestant) -> bool:
    """Whether host code looked at what was computed, so that it may go other ways where nothing is."""
    return any(op.group == "host" for run in contestant.runs for op in run.operations)


def _computed_by_torch(contestant: Contestant, runs: Sequence[Ran], track: Track) -> Finding | None:
    found = genuineness.torch_computes(runs, track, has_floats=contestant.arena.has_floats)
    if found is None or not found.evidence.get("by_host") or _numbers_matter(contestant):
        return found
    return None


@dataclass(frozen=True)
class _Retold:
    """A call, one on other inputs, and the first again in which the host is told the numbers that it read in the other."""

    own: list[torch.Tensor]
    of_other: list[torch.Tensor]
    blind: list[torch.Tensor]
    is_other_alike: bool
    """Whether the reference's answers to both inputs are equal."""


def _retold(contestant: Contestant) -> _Retold | None:
    """None where one of the calls fails."""
    one, other = contestant.arena.mixer.next(), contestant.arena.mixer.next()
    try:
        _, truth, own = call(contestant, one)
        _, truth_of_other, of_other = call(contestant, other)
        _, _, blind = call(contestant, one, blind=True)
    except Stop:
        return None
    is_alike = genuineness.identical(truth.native, truth_of_other.native)
    return _Retold(own, of_other, blind, is_alike)


def _told_alone(contestant: Contestant) -> Finding | None:
    """Whether a call answers for other inputs than its own where the host is told those numbers that it read of them."""
    calls = _retold(contestant)
    if calls is None or calls.is_other_alike:
        return None
    return genuineness.told_alone(calls.blind, calls.of_other)


def _numbers_matter(contestant: Contestant) -> bool:
    """Whether other outputs come when the host is told the numbers that it read in a call on other inputs.

    A printed mean changes nothing. A maximum for the kernel does, and so does a key of remembered results.
    """
    calls = _retold(contestant)
    if calls is None:
        return True
    return not (calls.own and calls.blind and genuineness.identical(calls.own, calls.blind))
