"""A task at one size: its reference player, its input sets, and the comparison of others with it.

The reference runs every composition that a candidate runs, in the same order, once as it is and once in float64. What it
answers stays in the judge; a candidate's process is lent the inputs and room for its own outputs, nothing else.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Precision
from gpu_runner.evaluation.child import compare, groups, inputs, structure
from gpu_runner.evaluation.child.links import PlayerLink, PlayerLost
from gpu_runner.evaluation.child.memory import Lent, Memory, contiguous_stride, dtype_named
from gpu_runner.evaluation.errors import InvalidTask
from gpu_runner.evaluation.protocol import (
    Adopt,
    Buffer,
    Composition,
    Construct,
    Constructed,
    Describe,
    Described,
    Encoded,
    Export,
    Failed,
    Load,
    Loaded,
    Placed,
    Ran,
    Run,
    Stored,
    decode,
)

SETS = 5
MOST_OUTPUT_BYTES = 1 << 29


@dataclass(frozen=True)
class Deadlines:
    """Seconds for each step of submitted code; see section 6.4 of the design."""

    imports: float = 60.0
    construct: float = 60.0
    compile_start: float = 10.0
    compile: float = 30.0  # per kernel, on top of the start or the first call
    call: float = 60.0
    noop: float = 10.0
    baseline_compile: float = 300.0


@dataclass(frozen=True)
class Truth:
    """What the reference answered to one composition."""

    composition: Composition
    tree: Encoded
    outputs: tuple[compare.Expected, ...]
    native: tuple[torch.Tensor, ...]
    after: tuple[torch.Tensor, ...]  # working inputs after the call
    relaid: tuple[int, ...]  # those whose shape or layout it changed
    buffers: tuple[torch.Tensor, ...]
    operations: tuple[Any, ...]


class Arena:
    """Opens a task at one size; everything that fails in `open` is the task's fault."""

    def __init__(
        self, spec: TaskSpec, source: str, link: PlayerLink, memory: Memory, rng: random.Random
    ) -> None:
        self.spec = spec
        self.source = source
        self.link = link
        self.memory = memory
        self.rng = rng
        self.seed = rng.randrange(1 << 31)
        self.deadlines = Deadlines()
        self.has_double = True
        self.uses_matmul = False
        self.uses_convolution = False
        self.narrowest: torch.dtype | None = None
        self.tolerance: compare.Tolerance | None = None
        self.is_inplace = False
        self.changes_inputs = False
        self.buffer_names: tuple[str, ...] = ()
        self._truth64_failed = ""

    def open(self) -> None:
        device = str(self.memory.device)
        self.loaded = self._must(
            self._ask(
                Load(
                    source=self.source,
                    role="reference",
                    device=device,
                    precision=self.spec.precision.value,
                    target=self.spec.target,
                ),
                Loaded,
                self.deadlines.imports,
            )
        )
        self._read_options()
        seeds = tuple(self.rng.randrange(1 << 31) for _ in range(SETS))
        self.described = self._must(
            self._ask(Describe(seeds=seeds), Described, self.deadlines.call)
        )
        self._check_sets()
        self._fill_sets()
        self._construct_reference()
        self._first_run()

    # Opening

    def _read_options(self) -> None:
        options = {name: decode(value) for name, value in self.loaded.options.items()}
        try:
            self.tolerance = compare.declared_tolerance(options.get("TOLERANCE"))
        except (ValueError, TypeError) as error:
            raise InvalidTask(str(error)) from error
        self.is_inplace = bool(options.get("INPLACE", False))
        declared = options.get("PRECISION")
        if declared is not None and declared not in {p.value for p in Precision}:
            raise InvalidTask(f"PRECISION is one of reference, ieee, tf32, not {declared!r}")
        self.declared_precision = declared

    def _check_sets(self) -> None:
        trees, buffers = self.described.trees, self.described.buffers
        if (
            any(tree != trees[0] for tree in trees)
            and len({str(structure.skeleton(tree)) for tree in trees}) > 1
        ):
            raise InvalidTask(
                "get_inputs() returns differently structured values from call to call"
            )
        first = [(p.shape, p.dtype) for p in buffers[0].places]
        if any([(p.shape, p.dtype) for p in b.places] != first for b in buffers):
            raise InvalidTask("get_inputs() returns tensors of other shapes or dtypes in each call")

    def _fill_sets(self) -> None:
        self.lent_sets = [
            self._export("inputs", i, buffer) for i, buffer in enumerate(self.described.buffers)
        ]
        self.lent_init = self._export("init", 0, self.described.init_buffer)
        self.sets = [
            [lent.tensor(spec) for spec in buffer.places]
            for lent, buffer in zip(self.lent_sets, self.described.buffers, strict=True)
        ]
        self.mixer = inputs.Mixer(self.sets, self.rng)
        self._must(self.lend_inputs(self.link))

    def _export(self, what: Any, index: int, buffer: Buffer) -> Lent:
        lent = self.memory.lend(buffer.nbytes)
        self._must(
            self._ask(
                Export(what=what, index=index, buffer=buffer),
                Stored,
                self.deadlines.call,
                [lent.fd],
            )
        )
        lent.seal()
        return lent

    @property
    def has_floats(self) -> bool:
        """Whether any input is a floating-point or complex tensor."""
        return any(t.dtype.is_floating_point or t.dtype.is_complex for t in self.sets[0])

    def lend_inputs(self, link: PlayerLink) -> Stored | Failed:
        """Lend a player the input sets, read only."""
        request = Adopt(trees=self.described.trees, buffers=self.described.buffers)
        return link.ask(request, Stored, self.deadlines.call, [lent.fd for lent in self.lent_sets])

    def _construct_reference(self) -> None:
        request = Construct(
            seed=self.seed, init=self.described.init, init_buffer=self.described.init_buffer
        )
        self.constructed = self._must(
            self._ask(request, Constructed, self.deadlines.construct, [self.lent_init.fd])
        )
        self.lent_state = self._export("state", 0, self.constructed.state)

    def _first_run(self) -> None:
        """Shapes of the outputs, buffers that a forward changes, and whether float64 runs."""
        ran = self._run_reference(Run(composition=self.mixer.next(), poison="number"))
        if ran.lazy_outputs:
            raise InvalidTask(f"the output is a {ran.lazy_outputs[0]}, not a plain tensor")
        self._check_outputs(ran)
        self.outputs = ran.outputs
        self.tree = ran.tree
        self.narrowest = dtype_named(ran.narrowest) if ran.narrowest else None
        names = [op.name for op in ran.operations]
        self.uses_matmul = any(groups.uses_matmul(name) for name in names)
        self.uses_convolution = any(groups.uses_convolution(name) for name in names)
        state = self.constructed
        candidates = [
            (name, place)
            for name, place, is_buffer in zip(
                state.names, state.state.places, state.is_buffer, strict=True
            )
            if is_buffer
        ]
        self._lend_rooms(candidates)
        if candidates:
            self.buffer_names = self._changed_buffers(candidates)
        self._lend_rooms([c for c in candidates if c[0] in self.buffer_names])

    def _check_outputs(self, ran: Ran) -> None:
        if not structure.has_number(ran.tree) and not any(
            math.prod(p.shape) for p in ran.outputs.places
        ):
            raise InvalidTask("Model.forward returns no elements: every output is empty")
        if self.memory.device.type == "cpu" and ran.outputs.nbytes > MOST_OUTPUT_BYTES:
            size, most = ran.outputs.nbytes / 1e9, MOST_OUTPUT_BYTES / 1e9
            raise InvalidTask(
                f"Model.forward returns {size:.1f} GB; without a GPU at most {most:.1f} GB can be compared."
                " Give sizes as module-level integers, so that smaller ones can be tried"
            )

    def _lend_rooms(self, buffers: Sequence[tuple[str, Placed]]) -> None:
        self.room_outputs = self.memory.lend(self.outputs.nbytes)
        self.places64 = _contiguous([_doubled(p) for p in self.outputs.places])
        self.room64 = self.memory.lend(self.places64.nbytes)
        inputs_places = self.described.buffers[0].places
        self.places_after = _contiguous(inputs_places)
        self.room_after = self.memory.lend(self.places_after.nbytes)
        self.places_buffers = _contiguous([p for _, p in buffers])
        self.room_buffers = self.memory.lend(self.places_buffers.nbytes)
        self.buffer_names = tuple(name for name, _ in buffers)

    def _changed_buffers(self, candidates: Sequence[tuple[str, Placed]]) -> tuple[str, ...]:
        before = [
            self.lent_state.tensor(p).clone()
            for name, p in zip(self.constructed.names, self.constructed.state.places, strict=True)
            if name in self.buffer_names
        ]
        truth = self.truth(self.mixer.next())
        return tuple(
            name
            for (name, _), old, new in zip(candidates, before, truth.buffers, strict=True)
            if not torch.equal(old, new)
        )

    # Truth

    def truth(self, composition: Composition, *, watched: bool = True, exact: bool = True) -> Truth:
        """Run the reference on a composition; its float64 copy too, where that runs and `exact` is wanted."""
        request = Run(
            composition=composition,
            watched=watched,
            poison="number",
            outputs=self.outputs,
            after=self.places_after,
            buffers=self.places_buffers if self.buffer_names else None,
            buffer_names=self.buffer_names,
        )
        rooms = [self.room_outputs, self.room_after]
        rooms += [self.room_buffers] if self.buffer_names else []
        ran = self._run_reference(request, [room.fd for room in rooms])
        if "outputs" not in ran.stored:
            raise InvalidTask("the output's shape or dtype changes from call to call")
        native = tuple(self.room_outputs.tensor(p).clone() for p in self.outputs.places)
        after = tuple(self.room_after.tensor(p).clone() for p in self.places_after.places)
        buffers = (
            tuple(self.room_buffers.tensor(p).clone() for p in self.places_buffers.places)
            if "buffers" in ran.stored
            else ()
        )
        return Truth(
            composition=composition,
            tree=ran.tree,
            outputs=self._expected(composition, native) if exact else (),
            native=native,
            after=after,
            relaid=ran.relaid,
            buffers=buffers,
            operations=ran.operations,
        )

    def _expected(
        self, composition: Composition, native: Sequence[torch.Tensor]
    ) -> tuple[compare.Expected, ...]:
        exact = self._double(composition)
        given = self.composed(composition)
        return tuple(
            compare.expect(
                one,
                exact[i] if exact else None,
                self.tolerance_for(one.dtype),
                [t for t in given if t.dtype.is_floating_point],
            )
            for i, one in enumerate(native)
        )

    def tolerance_for(self, dtype: torch.dtype) -> compare.Tolerance:
        """What the task declares; else by the coarsest type between the inputs and a result of this one."""
        if self.tolerance is not None:
            return self.tolerance
        coarsest = compare.coarser(dtype, self.narrowest)
        return compare.default_tolerance(coarsest, tf32=self.allows_tf32)

    def _double(self, composition: Composition) -> list[torch.Tensor]:
        """The outputs in float64; empty where the reference does not run so."""
        if not self.has_double:
            return []
        request = Run(composition=composition, is_double=True, watched=False, outputs=self.places64)
        answer = self._ask(request, Ran, self.deadlines.call, [self.room64.fd])
        if isinstance(answer, Failed) or "outputs" not in answer.stored:
            self.has_double = False
            return []
        return [self.room64.tensor(p).clone() for p in self.places64.places]

    def composed(self, composition: Composition) -> list[torch.Tensor]:
        """The working inputs of a call, put together here."""
        working = [inputs.empty_like_spec(t) for t in self.sets[0]]
        inputs.compose(working, self.sets, composition)
        return working

    @property
    def precision(self) -> Precision:
        return Precision(self.declared_precision or self.spec.precision.value)

    @property
    def matmul_may_use_tf32(self) -> bool:
        return self._may_use_tf32(self.loaded.matmul_tf32)

    @property
    def convolution_may_use_tf32(self) -> bool:
        return self._may_use_tf32(self.loaded.conv_tf32)

    def _may_use_tf32(self, flag: bool) -> bool:
        if self.precision is Precision.REFERENCE:
            return flag
        return self.precision is Precision.TF32

    @property
    def tf32_flags(self) -> tuple[bool, bool]:
        """For torch's own matmul and convolution, the same in every player."""
        return self.matmul_may_use_tf32, self.convolution_may_use_tf32

    @property
    def allows_tf32(self) -> bool:
        """Whether TF32 may be used anywhere between input and output, under the policy."""
        return (self.uses_matmul and self.matmul_may_use_tf32) or (
            self.uses_convolution and self.convolution_may_use_tf32
        )

    # Others

    def seat(self, link: PlayerLink, state: Lent | None = None) -> Constructed | Failed:
        """Construct a player's module under the reference's seed and state, and lend it the inputs.

        Args:
            state: other contents for the reference's state; the caller's.
        """
        request = Construct(
            seed=self.seed,
            init=self.described.init,
            init_buffer=self.described.init_buffer,
            state=self.constructed.state,
            names=self.constructed.names,
        )
        fds = [self.lent_init.fd, (state or self.lent_state).fd]
        answer = link.ask(request, Constructed, self.deadlines.construct, fds)
        if isinstance(answer, Constructed):
            adopted = self.lend_inputs(link)
            if isinstance(adopted, Failed):
                return adopted
        return answer

    def reset(self) -> None:
        """Give the reference the state it had at first, for the next candidate."""
        if self.buffer_names:
            self.reseat()

    def reseat(self, state: Lent | None = None) -> None:
        """Build the reference's module anew, with the state it had at first or with another one."""
        self._must(self.seat(self.link, state))

    def state(self) -> dict[str, torch.Tensor]:
        """The reference's parameters and buffers as they were at first."""
        places = self.constructed.state.places
        return {
            name: self.lent_state.tensor(place)
            for name, place in zip(self.constructed.names, places, strict=True)
        }

    def with_state(self, changed: Mapping[str, torch.Tensor]) -> Lent:
        """A copy of the state with some of it replaced; the caller closes it."""
        nbytes = self.constructed.state.nbytes
        everything = Placed(shape=(nbytes,), dtype="uint8")
        lent = self.memory.lend(nbytes)
        lent.tensor(everything).copy_(self.lent_state.tensor(everything))
        for name, place in zip(self.constructed.names, self.constructed.state.places, strict=True):
            if name in changed:
                lent.tensor(place).copy_(changed[name])
        return lent

    def close(self) -> None:
        self.link.close()

    # Asking the reference

    def _ask(self, request: Any, kind: Any, timeout_s: float, fds: Sequence[int] = ()) -> Any:
        try:
            return self.link.ask(request, kind, timeout_s, fds)
        except PlayerLost as lost:
            raise InvalidTask(why_lost(lost, request)) from lost

    def _must(self, answer: Any) -> Any:
        if isinstance(answer, Failed):
            raise refusal(answer)
        return answer

    def _run_reference(self, request: Run, fds: Sequence[int] = ()) -> Ran:
        ran = self._must(self._ask(request, Ran, self.deadlines.call, fds))
        if ran.unreadable:
            raise InvalidTask(
                f"Model.forward returns what cannot be compared: {ran.unreadable}."
                " Return tensors, numbers, or lists, tuples and dictionaries of them"
            )
        if not ran.outputs.places and not structure.has_number(ran.tree):
            raise InvalidTask("Model.forward returns no tensor")
        return ran


def refusal(failed: Failed) -> InvalidTask:
    """What the task's author is told of an exception in the reference."""
    what = {
        "load": "importing the task",
        "describe": "get_inputs or get_init_inputs",
        "construct": "constructing Model",
        "call": "Model.forward",
    }.get(failed.where, failed.where)
    name = "" if failed.error == "no_entry" else f"{failed.error}: "
    return InvalidTask(f"{what} failed: {name}{failed.message[:600]}", failed.line)


def why_lost(lost: PlayerLost, request: Any) -> str:
    step = type(request).__name__.lower()
    steps = {
        "load": "importing the task",
        "describe": "get_inputs or get_init_inputs",
        "construct": "constructing Model",
        "run": "Model.forward",
    }
    what = steps.get(step, step)
    if lost.cause == "hang":
        return f"{what} did not end ({lost.detail})"
    end = lost.link.close()
    said = end.output.strip()[-300:]
    return f"{what} {end.in_words}; it printed: {said}" if said else f"{what} {end.in_words}"


def _contiguous(places: Sequence[Placed]) -> Buffer:
    laid, offset = [], 0
    for p in places:
        laid.append(
            Placed(shape=p.shape, dtype=p.dtype, stride=contiguous_stride(p.shape), offset=offset)
        )
        count = 1
        for n in p.shape:
            count *= n
        offset += -(-count * dtype_named(p.dtype).itemsize // 256) * 256
    return Buffer(nbytes=offset, places=tuple(laid))


def _doubled(p: Placed) -> Placed:
    dtype = dtype_named(p.dtype)
    if dtype.is_complex:
        return p.model_copy(update={"dtype": "complex128"})
    return p.model_copy(update={"dtype": "float64"}) if dtype.is_floating_point else p
