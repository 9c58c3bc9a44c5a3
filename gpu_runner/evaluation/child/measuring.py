"""Times of a candidate and its baselines on a GPU: the players that `timing.measure` plays against each other.

The candidate is the process that was found correct; the players it is timed against live with the task. All are seated with
the same inputs and weights. Of each window one output, of a call that the judge draws and only the harness is told, is kept; a
few are compared with the reference afterwards.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median, quantiles
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from gpu_runner.core.evaluation import Baselines, Speedup, Timing
from gpu_runner.core.findings import Finding, Location, Severity, Source
from gpu_runner.core.intervals import ratio_interval
from gpu_runner.core.verdicts import Stage, Verdict
from gpu_runner.evaluation.child import compare, failures, genuineness, timing
from gpu_runner.evaluation.child.arena import Arena
from gpu_runner.evaluation.child.failures import Stop
from gpu_runner.evaluation.child.links import PlayerLink, PlayerLost
from gpu_runner.evaluation.child.trials import Contestant
from gpu_runner.evaluation.errors import DeviceLost
from gpu_runner.evaluation.protocol import (
    Composition,
    Equip,
    Failed,
    HostWindow,
    Load,
    Loaded,
    Message,
    Place,
    Ran,
    Run,
    Stored,
    Timed,
    Window,
)
from gpu_runner.evaluation.protocol import Enqueued as EnqueuedAnswer

if TYPE_CHECKING:
    from gpu_runner.evaluation.child.open_task import OpenTask

CHECKED_WINDOWS = 3
WINDOW_TIMEOUT_S = 60.0
GATE_PATIENCE_S = 2.0
"""For a player to enqueue a window; longer than any host takes that does not wait for the device itself."""
GATE_BYTES = 4096


@dataclass
class TimedPlayer:
    """`timing.Player` over a channel. Raises Stop for a candidate that fails, DeviceLost for anybody else."""

    name: str
    link: PlayerLink
    arena: Arena
    rng: random.Random
    is_candidate: bool = False
    kept: list[tuple[Composition, list[torch.Tensor]]] = field(default_factory=list)
    peak_bytes: int | None = None
    _ticket: int = 0
    _is_equipped: bool = False
    _waits_for_device: bool = False

    def __post_init__(self) -> None:
        from gpu_runner.evaluation.child import cuda_memory

        memory: Any = self.arena.memory
        self._gate_memory = memory.lend(GATE_BYTES)
        self._gate = cuda_memory.Gate(self._gate_memory)
        self._room = memory.lend(self.arena.outputs.nbytes)

    def begin_place(self, seed: int) -> None:
        if not self._is_equipped:
            request = Equip(gate_bytes=GATE_BYTES, outputs=self.arena.outputs)
            self._send(request, [self._gate_memory.fd, self._room.fd])
            self._answer(Stored)
            self._is_equipped = True
        self._send(Place(seed=seed))

    def finish_place(self) -> None:
        self._answer(Stored)

    def window(self, calls: int, seed: int) -> timing.Window:
        """A host that was busy for a moment is no player that waits for the device: that window is taken again."""
        window = self._window(calls, seed)
        if window.is_gated or self._waits_for_device:
            return window
        again = self._window(calls, seed + 1)
        self._waits_for_device = not again.is_gated
        return again

    def begin(self) -> None:
        """A new measurement: whether the player waits for the device is found out anew."""
        self._waits_for_device = False

    def _window(self, calls: int, seed: int) -> timing.Window:
        compositions = tuple(self.arena.mixer.next() for _ in range(calls))
        self._ticket += 1
        sampled = random.Random(seed).randrange(calls)
        self._send(Window(compositions=compositions, ticket=self._ticket, sampled=sampled))
        is_gated = not self._waits_for_device and self.link.has_answered(GATE_PATIENCE_S)
        if is_gated:
            self._answer(EnqueuedAnswer)
        started = perf_counter()
        self._gate.open(self._ticket)
        if not is_gated:
            self._answer(EnqueuedAnswer)
        answer = self._answer(Timed, step="device_hang")
        judge_us = (perf_counter() - started) * 1e6
        self.peak_bytes = answer.peak_bytes
        if self.is_candidate and (len(self.kept) < CHECKED_WINDOWS or self.rng.random() < 0.1):
            self._keep(compositions[sampled])
        return timing.Window(claims_us=answer.times_us, judge_us=judge_us, is_gated=is_gated)

    def host_window(self, calls: int, seed: int) -> Sequence[float]:
        compositions = tuple(self.arena.mixer.next() for _ in range(calls))
        self._send(HostWindow(compositions=compositions))
        return tuple(self._answer(Timed).times_us)

    def close(self) -> None:
        self.link.close()
        self.let_go()

    def let_go(self) -> None:
        """Of the memory that was lent for the timing; the player itself stays."""
        self._room.close()
        self._gate_memory.close()

    def _keep(self, composition: Composition) -> None:
        outputs = [self._room.tensor(p).clone() for p in self.arena.outputs.places]
        self.kept = [*self.kept[-CHECKED_WINDOWS + 1 :], (composition, outputs)]

    def _send(self, request: Message, fds: Sequence[int] = ()) -> None:
        try:
            self.link.send(request, fds)
        except PlayerLost as lost:
            raise self._lost(lost, "call") from lost

    def _answer(self, kind: Any, step: str = "call") -> Any:
        try:
            answer = self.link.answer(kind, WINDOW_TIMEOUT_S)
        except PlayerLost as lost:
            raise self._lost(lost, step) from lost
        if isinstance(answer, Failed):
            if self.is_candidate:
                raise failures.why_failed(answer, Stage.TIMING)
            raise DeviceLost(f"timing {self.name} failed: {answer.error}: {answer.message}")
        return answer

    def _lost(self, lost: PlayerLost, step: str) -> Exception:
        if self.is_candidate:
            return failures.why_lost(lost, Stage.TIMING, step)
        end = lost.link.close().in_words
        return DeviceLost(
            f"the player of {self.name} was lost while timing: {lost.detail}; it {end}"
        )


@dataclass
class Company:
    """The players that every candidate of a task is timed against; they live as long as the judge's task."""

    eager: TimedPlayer
    others: list[TimedPlayer]
    idle: TimedPlayer
    remarks: list[Finding]
    known_us: float = 0.0
    """What eager took per call when it was last timed."""

    @property
    def everybody(self) -> list[TimedPlayer]:
        return [self.eager, *self.others, self.idle]

    def close(self) -> None:
        for player in self.everybody:
            player.close()


def measure(
    task: "OpenTask",
    contestant: Contestant,
    notes: list[Finding],
    seconds: dict[str, float],
) -> tuple[Timing, Baselines, Speedup]:
    """Time the candidate against every baseline of the task. Raises Stop where it fails or lies.

    The device is held alone only while samples are taken: by then everybody has compiled.

    Args:
        contestant: has passed its trials; the caller's to close.
        seconds: gets the time of each step: gather (the baselines, once a task), measure (the wait for the device
            included), check.
    """
    clock, arena = partial(_timed, seconds), contestant.arena
    rng = random.Random(task.rng.randrange(1 << 60))
    if task.company is None:
        with clock("gather"):
            task.company = _gather(task, arena, rng)
    company = task.company
    candidate = TimedPlayer("candidate", contestant.link, arena, rng, is_candidate=True)
    try:
        with clock("measure"), task.alone():
            samples = _samples(company, candidate, rng)
        found = contestant.accusations()
    except DeviceLost:
        company.close()
        task.company = None
        raise
    finally:
        candidate.let_go()
    if found:
        raise Stop(Verdict.CHEATING, found[0])
    own = samples["candidate"]
    if own.is_forged:
        raise _forgery(own)
    if own.is_doubted:
        own = samples["candidate"] = own.by_the_judge()
    with clock("check"):
        _check_kept(arena, candidate.kept)
    peaks = {p.name: p.peak_bytes for p in (company.eager, candidate, *company.others)}
    times = {name: _timing(s, peaks[name]) for name, s in samples.items()}
    ratios = {
        name: ratio_interval(s.blocks_us, own.blocks_us)
        for name, s in samples.items()
        if name != "candidate"
    }
    notes += company.remarks + _remarks(times["candidate"], own.is_gated)
    notes += [
        _baseline_waits(name) for name, s in samples.items() if own.is_gated and not s.is_gated
    ]
    return times["candidate"], _by_name(Baselines, times), _by_name(Speedup, ratios)


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    started = perf_counter()
    try:
        yield
    finally:
        seconds[step] = round(perf_counter() - started, 4)


def _samples(
    company: Company, candidate: TimedPlayer, rng: random.Random
) -> dict[str, timing.Samples]:
    """Taken a second time before anybody is called a liar: a busy host is no forgery."""
    players = [company.eager, candidate, *company.others]
    for player in (*players, company.idle):
        player.begin()
    samples = timing.measure(players, company.idle, rng, known_us=company.known_us)
    if samples["candidate"].is_doubted:
        samples = timing.measure(players, company.idle, rng, in_doubt=True)
    eager = samples[company.eager.name]
    company.known_us = eager.claimed_us + eager.events_us
    return samples


def _gather(task: "OpenTask", arena: Arena, rng: random.Random) -> Company:
    remarks: list[Finding] = []
    eager, *others = _baselines(task, arena, rng, remarks)
    idle = TimedPlayer("idle", _seated(task, arena, _IDLE, "idle"), arena, rng)
    return Company(eager, others, idle, remarks)


_IDLE = "import torch\n"


def _by_name(kind: Any, values: dict[str, Any]) -> Any:
    return kind(**{n: values[n] for n in ("eager", "torch_compile", "user") if n in values})


def _baselines(
    task: "OpenTask", arena: Arena, rng: random.Random, notes: list[Finding]
) -> list[TimedPlayer]:
    """Eager first; torch.compile and the user's own kernel where they run."""
    eager = _seated(task, arena, arena.source, "reference")
    players = [TimedPlayer("eager", eager, arena, rng)]
    wanted = [("torch_compile", arena.source, "reference", True)]
    if task.spec.baseline_source:
        wanted.append(("user", task.spec.baseline_source, "baseline", False))
    for name, source, role, compiled in wanted:
        try:
            link = _seated(task, arena, source, role, compiled=compiled)
            _warm(link, arena)
        except (DeviceLost, PlayerLost) as error:
            notes.append(_no_baseline(name, str(error)))
            continue
        players.append(TimedPlayer(name, link, arena, rng))
    return players


def _seated(
    task: "OpenTask", arena: Arena, source: str, role: Any, *, compiled: bool = False
) -> PlayerLink:
    link = task.new_player("cuda", role)
    request = Load(
        source=source,
        role=role,
        device=str(arena.memory.device),
        precision=arena.precision.value,
        tf32=arena.tf32_flags,
        compiled=compiled,
        target=task.spec.target,
    )
    answers: list[Any] = [link.ask(request, Loaded, arena.deadlines.imports)]
    if role == "idle":
        answers.append(arena.lend_inputs(link))
    elif not isinstance(answers[0], Failed):
        answers.append(arena.seat(link))
    for answer in answers:
        if isinstance(answer, Failed):
            link.close()
            raise DeviceLost(f"{role} could not be set up: {answer.error}: {answer.message}")
    return link


def _warm(link: PlayerLink, arena: Arena) -> None:
    """The first call of a compiled module takes minutes."""
    request = Run(composition=arena.mixer.next(), watched=False)
    answer = link.ask(request, Ran, arena.deadlines.baseline_compile)
    if isinstance(answer, Failed):
        link.close()
        raise DeviceLost(f"{answer.error}: {answer.message}")


def _forgery(samples: timing.Samples) -> Stop:
    """The claims must fill the judge's own window; claims beyond it harm nobody but the candidate."""
    evidence = {
        "claimed_us": samples.claimed_us,
        "excess_us": samples.excess_us,
        "noise_us": samples.noise_us,
        "allowed_us": samples.allowed_us,
        "overhead_us": samples.overhead_us,
    }
    title = (
        f"calls took {samples.excess_us:+.1f} us more by the judge's clock than the claimed times"
    )
    accusation = genuineness.accuse("forged_result", title, dict(evidence), Source.JUDGE)
    return Stop(Verdict.CHEATING, accusation)


def _check_kept(arena: Arena, kept: Sequence[tuple[Composition, list[torch.Tensor]]]) -> None:
    """Outputs of timed calls must be right too: nobody looked while they ran."""
    for composition, outputs in kept:
        truth = arena.truth(composition, watched=False)
        for i, (got, expected) in enumerate(zip(outputs, truth.outputs, strict=True)):
            found = compare.mismatch(got, expected)
            if found is None:
                continue
            title = f"right when checked, wrong when timed: {found.title}"
            finding = genuineness.accuse("too_little_work", title, found.evidence, Source.JUDGE)
            location = Location(tensor=f"output {i}", region=found.region[:200])
            raise Stop(Verdict.CHEATING, finding.model_copy(update={"location": location}))


def _timing(samples: timing.Samples, peak_bytes: int | None) -> Timing:
    everything = [t for block in samples.blocks_us for t in block]
    low, _, high = quantiles(everything, n=4)
    return Timing(
        device_us=median(everything),
        call_us=median(samples.call_us) if samples.call_us else None,
        iqr_us=high - low,
        n=len(everything),
        samples_us=samples.blocks_us,
        peak_bytes=peak_bytes,
    )


def _remarks(own: Timing, is_gated: bool) -> list[Finding]:
    if not is_gated:
        return [_waits()]
    if own.call_us is None or own.call_us < 2 * own.device_us:
        return []
    title = f"a call takes {own.call_us:.0f} us, the device works {own.device_us:.0f} us of it: the host is the limit"
    return [
        Finding(
            stage=Stage.TIMING,
            kind="host_bound",
            severity=Severity.HINT,
            source=Source.JUDGE,
            title=title,
            evidence={"call_us": own.call_us, "device_us": own.device_us},
            suggestion="Launch fewer kernels and do less in Python per call.",
        )
    ]


def _waits() -> Finding:
    return Finding(
        stage=Stage.TIMING,
        kind="waits_for_device",
        severity=Severity.WARNING,
        source=Source.JUDGE,
        title="a call waits for the device before it returns, so its time includes the host's",
        suggestion="Leave out .item(), synchronize() and comparisons of tensors in Python.",
    )


def _baseline_waits(name: str) -> Finding:
    return Finding(
        stage=Stage.TIMING,
        kind="waits_for_device",
        severity=Severity.WARNING,
        source=Source.JUDGE,
        title=f"{name} waits for the device before its call returns: its time includes the host's, the candidate's does not",
        suggestion="Read the ratio to it as one of whole calls.",
    )


def _no_baseline(name: str, reason: str) -> Finding:
    return Finding(
        stage=Stage.TIMING,
        kind="no_baseline",
        severity=Severity.WARNING,
        source=Source.RUNNER,
        title=f"no times of {name}: {reason}"[:300],
    )
