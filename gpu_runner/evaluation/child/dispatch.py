"""What torch does during one call: operations by group, and whether they reach the output.

`Recorder` follows storages: what stems from an input is tainted, and afterwards one walk backwards from the
outputs tells which operations the outputs depend on. So a sum that only feeds a debug print is no computation
between input and output, and neither is folding parameters. Counts are the player's claims; the judge weighs them.
"""

import contextlib
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_runner.evaluation.child.answers import PLAIN_TENSORS
from gpu_runner.evaluation.child.below import (
    END,
    OURS,
    hidden_operations,
    record_span,
    torchs_namespaces,
)
from gpu_runner.evaluation.child.contents import Contents
from gpu_runner.evaluation.child.flow import (
    HOST_READ_ELEMENTS,
    HOST_READ_INTEGERS,
    UNSEEN,
    Event,
    Flow,
    Survivor,
    span_of,
    storage_key,
)
from gpu_runner.evaluation.child.groups import (
    ACCUMULATING,
    COMPUTING,
    FILLING,
    MATMUL,
    NO_WORK,
    accumulates,
    group_of,
    is_filled_by_tensor,
)
from gpu_runner.evaluation.child.memory import extent
from gpu_runner.evaluation.protocol import Operation

# Classes that derive from it have their `__torch_dispatch__` wrapped by dynamo, whose import costs more than an evaluation.
TorchDispatchMode._should_skip_dynamo = classmethod(lambda cls: False)
PRINTED_ELEMENTS = 4_096
"""Numbers of a call that may be written out as text; summarised printing stays far below."""
LEAST_ADDRESS = 1 << 20
"""Smaller integers point nowhere."""
MOST_ADDRESSES = 4_096
"""Integer tensors with more elements than this are no tables of addresses."""
INDEX_FACTOR = 16
"""Integers beyond this many times the elements of a call's largest tensor count nothing in it, not even bytes."""
_TORCHS_OWN = torchs_namespaces()
_HOST_FUNCTIONS = frozenset(
    "numpy __array__ tolist __dlpack__ to_dlpack storage __reduce_ex__".split()
)
_NO_DISPATCH = (torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl)


class Recorder(TorchDispatchMode):
    """Counts and follows operations of one call; fills fresh memory with a poison value.

    Args:
        inputs: tensors whose contents are new in this call.
        weights: parameters of the module; launches are trusted not to write them.
        line_of: line of the submitted source that is being executed, or None.
        poison: value for memory that `torch.empty` returns; None leaves it as it is.
        stale: storages that an earlier call filled from its inputs.
        state: what the reference changes from call to call, so that outputs may stem from it.
        replay: numbers that the host is told instead of those that it reads, in this order.
        is_real: whether memory holds what was computed; if not, launches are trusted with weights.
        read_addresses: where the memory begins that the last launch read; None where nobody sees it.
    """

    def __init__(
        self,
        inputs: Sequence[torch.Tensor],
        weights: Sequence[torch.Tensor],
        line_of: Callable[[], int | None],
        poison: float | None = None,
        stale: frozenset[int] = frozenset(),
        state: Sequence[torch.Tensor] = (),
        replay: Sequence[Any] = (),
        is_real: bool = True,
        read_addresses: Callable[[], frozenset[int]] | None = None,
    ) -> None:
        super().__init__()
        self._read_addresses = read_addresses
        self.numbers: list[Any] = []
        self.survivors: list[Survivor] = []
        self._replay = list(replay)
        self._is_real = is_real
        self.flow = Flow(stale=stale, is_real=is_real)
        self.flow.begin(inputs)
        self.contents = Contents(is_followed=is_real)
        self.flow.weights = frozenset(self.flow.key(t) for t in weights)
        self.flow.derived |= {self.flow.key(t) for t in state}
        self._line_of = line_of
        self._poison = poison
        self._span = secrets.token_hex(8)
        self._printed = 0

    def watch_functions(self) -> TorchFunctionMode:
        """The mode for what is no dispatched operation; enter it beside this one."""
        return _HostReads(self)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if any(kind.__torch_dispatch__ not in _NO_DISPATCH for kind in types):
            return NotImplemented  # what a subclass makes of it comes back here
        if func.namespace not in _TORCHS_OWN:
            return self._step_into(func, args, kwargs)
        with record_span(self._span):
            result = self._done(func, args, kwargs)
        self._record(func, args, kwargs, result)
        self.contents.note(t for t in _tensors((args, kwargs, result)))
        is_number = isinstance(result, int | float) and not isinstance(result, bool)
        return self.told(result) if is_number and self.flow.is_from_floats(args[0]) else result

    def _done(self, func, args, kwargs):
        """The operation itself; what it complains of may name a number."""
        try:
            return func(*args, **kwargs)
        except (RuntimeError, IndexError, ValueError):
            for tensor in _tensors((args, kwargs)):
                self.read_by_host(tensor, "error", 1)
            raise

    def told(self, number: Any) -> Any:
        """What the host gets to know where it reads a number that was made from floating-point inputs."""
        self.numbers.append(number)
        return self._replay.pop(0) if self._replay else number

    def _step_into(self, func, args, kwargs):
        """An operator that the module registered is what it does inside: go on watching there."""
        devices = {t.device.type for t in _tensors((args, kwargs))}
        key = "CUDA" if "cuda" in devices else "CPU"
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
        with self:
            return func.redispatch(keys, *args, **kwargs)

    def launched(
        self, tensors: Sequence[torch.Tensor], addresses: Sequence[int], name: str
    ) -> Callable[[], None]:
        """A kernel gets these tensors, and those at these addresses; it may read and write all.

        Weights and what else was settled are taken to be only read. Call what this answers with when the kernel has run:
        it sees which of them were written nevertheless; a weight that is written is no weight.
        """
        with unwatched():
            addresses = [*addresses, *_addresses_in(tensors)]
            tensors = [*tensors, *self.flow.at_addresses(addresses)]
            keys = frozenset(self.flow.key(t) for t in tensors)
            trusted = self.flow.weights | self.flow.shared.keys()
            trusted |= self.flow.settled(keys) if self._is_real else frozenset()
            real = [t for t in tensors if self._is_real and span_of(t)[0]]
            held = [t for t in real if self.flow.key(t) in trusted]
            before = [_bytes_of(t).clone() for t in held]
            changed_unseen = self.contents.changed(tensors)
        for tensor in changed_unseen:
            written = frozenset({self.flow.key(tensor)})
            event = Event(UNSEEN, "compute", frozenset(), written, True, self._line_of())
            event.hidden, event.elements = True, tensor.numel()
            self.flow.add(event)
        from_inputs = bool(keys & self.flow.tainted)
        writes = keys - trusted
        self.flow.add(Event(name, "launch", keys, writes, from_inputs))

        def after() -> None:
            self.flow.launched(self._read_by_launch(keys), keys)
            self.contents.note(tensors)
            with unwatched():
                changed = [
                    t for t, b in zip(held, before, strict=True) if not torch.equal(_bytes_of(t), b)
                ]
            if changed:
                written = frozenset(self.flow.key(t) for t in changed)
                self.flow.weights -= written
                self.flow.add(Event(name, "launch", keys, written, from_inputs))

        return after

    def _read_by_launch(self, keys: frozenset[int]) -> frozenset[int]:
        """Of the storages that the last launch reached, those that it read; all of them where nobody saw."""
        if self._read_addresses is None:
            return keys
        read = self._read_addresses()
        spans = {key: span_of(t)[0] for t in self.flow.kept if (key := storage_key(t)) in keys}
        return frozenset(key for key, first in spans.items() if first in read)

    def read_by_host(self, tensor: torch.Tensor, name: str, elements: int | None = None) -> None:
        """Values of a tensor go where no operation shows; `elements` of them, or all."""
        elements = tensor.numel() if elements is None else elements
        is_flag = tensor.dtype == torch.bool
        nbytes = elements * tensor.dtype.itemsize
        self.storage_read(self.flow.key(tensor), name, elements, nbytes, is_flag=is_flag)

    def storage_read(
        self, key: int, name: str, elements: int, nbytes: int, *, is_flag: bool = False
    ) -> None:
        self.flow.add(
            Event(
                f"Tensor.{name}",
                "host",
                frozenset({key}),
                frozenset(),
                False,
                self._line_of(),
                elements,
                nbytes,
                sinks=not is_flag,
                is_flag=is_flag,
            )
        )

    def printed(self, tensor: torch.Tensor, elements: int, text: str) -> str:
        """Text for people is no host read, text for a parser is."""
        self._printed += elements
        is_much = self._printed > PRINTED_ELEMENTS
        self.read_by_host(tensor, "__repr__", elements if is_much else 0)
        return self.told(text) if self.flow.is_from_floats(tensor) else text

    def _record(self, func, args, kwargs, result) -> None:
        name = func._schema.name.removeprefix("aten::")
        inputs, outputs = _tensors((args, kwargs)), _tensors(result)
        group = group_of(func, name, inputs, outputs)
        if name in FILLING and is_filled_by_tensor(func, args, kwargs):
            group = "copy"
        if name in ACCUMULATING and accumulates(func, args, kwargs):
            group = "compute"
        if self._poison is not None and group == "allocation" and "empty" in name:
            _poison(outputs, self._poison)
        if name in NO_WORK or not (inputs or outputs):
            return
        reads = frozenset(self.flow.key(t) for t in inputs)
        writes = frozenset(self.flow.key(t) for t in outputs) | _written(func, args, kwargs)
        from_inputs = bool(reads & self.flow.tainted) and group != "allocation"
        is_float = any(t.dtype.is_floating_point or t.dtype.is_complex for t in inputs)
        reinterprets = bool(reads & self.flow.floats & self.flow.from_floats)
        if group in COMPUTING and not is_float and not reinterprets:
            group = "library" if name in MATMUL else "integer"
        if group == "integer" and self._holds_no_indices(inputs):
            group = "compute"
        is_flag = group == "host" and inputs[0].dtype == torch.bool
        self.flow.add(
            Event(
                name if "::" in name else f"aten::{name}",
                group,
                reads,
                writes,
                from_inputs,
                self._line_of() if group in (*COMPUTING, "host") else None,
                sum(t.numel() for t in outputs) or int(group == "host"),
                sum(t.numel() * t.dtype.itemsize for t in (*inputs, *outputs)),
                sinks=group == "host" and not is_flag,
                is_flag=is_flag,
                is_stale=group not in ("allocation", "view")
                and self._reads_stale(func, args, kwargs),
                keeps_bits=group == "copy" or (group == "cast" and not is_float),
            )
        )
        if torch.Tag.dynamic_output_shape in func.tags:
            for tensor in inputs:
                self.read_by_host(tensor, "shape", 1)

    def _holds_no_indices(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether integers that kernels made of floating-point inputs are too large to point anywhere: numbers in disguise."""
        if not self._is_real:
            return False
        limit = INDEX_FACTOR * max(t.numel() for t in self.flow.kept)
        for tensor in inputs:
            is_long = tensor.numel() > HOST_READ_ELEMENTS and tensor.dtype.itemsize >= 4
            if is_long and tensor.dtype != torch.bool and self.flow.is_from_floats(tensor):
                with unwatched():
                    if int(tensor.max()) > limit or int(tensor.min()) < -limit:
                        return True
        return False

    def _reads_stale(self, func, args, kwargs) -> bool:
        stale = self.flow.stale - self.flow.written
        if not stale:
            return False
        read = {storage_key(t) for t in _tensors((args, kwargs))} - _written(func, args, kwargs)
        return bool(read & stale)

    def sourceless(self, outputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """Those of the outputs that nothing which was made of an input went into. Ask before `operations`.

        Known only where the launches' reads are seen: on a GPU, a replayed graph writes out of sight.
        """
        if self._read_addresses is None:
            return ()
        return tuple(
            i
            for i, tensor in enumerate(outputs)
            if tensor.numel() and storage_key(tensor) not in self.flow.derived
        )

    def add_hidden(self, profile: Any) -> None:
        """What `SeenBelow` saw and this did not: dispatch was switched off for it."""
        for event in hidden_operations(profile, self._span):
            self.flow.add(event)

    def mark_end(self) -> None:
        """The last thing that `SeenBelow` must have seen; if it has not, it was switched off."""
        with record_span(self._span + END):
            pass

    def operations(self, outputs: Sequence[torch.Tensor]) -> tuple[Operation, ...]:
        """Everything recorded, equal steps added up, after walking back from the outputs."""
        self.flow.count_host_reads()
        self.flow.see_stale(outputs)
        self.flow.trace_back(outputs)
        merged: dict[tuple[Any, ...], list[int]] = {}
        for e in self.flow.events:
            if e.group == "launch":
                continue
            facts = (e.from_inputs, e.line, e.hidden, e.by_host, e.is_stale)
            key = (e.name, e.group, e.reaches, *facts)
            sums = merged.setdefault(key, [0, 0, 0])
            sums[0] += 1
            sums[1] += e.elements
            sums[2] += e.nbytes
        self.survivors = self.flow.survivors()
        self.flow.kept.clear()
        self.flow.shared.clear()
        return tuple(
            Operation(
                name=name,
                group=group,
                calls=calls,
                elements=elements,
                nbytes=nbytes,
                reaches_output=reaches,
                from_inputs=from_inputs,
                line=line,
                hidden=hidden,
                by_host=by_host,
                is_stale=is_stale,
            )
            for (name, group, reaches, from_inputs, line, hidden, by_host, is_stale), (
                calls,
                elements,
                nbytes,
            ) in list(merged.items())[:1_000]
        )


class _HostReads(TorchFunctionMode):
    """Sees tensors handed to numpy or Python lists, which no dispatched operation shows."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name not in _HOST_FUNCTIONS or not args or not isinstance(args[0], torch.Tensor):
            return func(*args, **(kwargs or {}))
        recorder = self._recorder
        recorder.contents.leave_out(args[0])
        recorder.read_by_host(args[0], name)
        if name not in ("numpy", "tolist") or not recorder.flow.is_from_floats(args[0]):
            return func(*args, **(kwargs or {}))
        with unwatched():  # from a GPU it would be a copy
            result = func(args[0].detach().clone(), *args[1:], **(kwargs or {}))
        is_float = args[0].dtype.is_floating_point or args[0].dtype.is_complex
        most = HOST_READ_ELEMENTS if is_float else HOST_READ_INTEGERS
        return recorder.told(result) if args[0].numel() <= most else result


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> frozenset[int]:
    """Storages of the arguments that the schema says are written."""
    keys: set[int] = set()
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        keys |= {storage_key(t) for t in _tensors(value)}
    return frozenset(keys)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [as_plain(value)]
    if isinstance(value, tuple | list):
        return [t for item in value for t in _tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _tensors(item)]
    return []


def _poison(tensors: Sequence[torch.Tensor], value: float) -> None:
    for tensor in tensors:
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            tensor.fill_(value)
        elif tensor.dtype != torch.bool:
            tensor.fill_(85 if math.isnan(value) else 99)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """For the harness's own look at tensors in the middle of a call."""
    off = torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction()
    with record_span(OURS), off[0], off[1]:
        yield


def as_plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor that answers by torch's own methods, and not by those of a subclass."""
    if type(tensor) in PLAIN_TENSORS:
        return tensor
    with unwatched():
        return torch.Tensor.as_subclass(tensor, torch.Tensor)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from a tensor's first to its last element, as it lies there; an expanded one is small."""
    size = tensor.dtype.itemsize
    nbytes = extent(tensor.shape, tensor.stride()) * size
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage(), tensor.storage_offset() * size, (nbytes,))


def _addresses_in(tensors: Sequence[torch.Tensor]) -> list[int]:
    """What could be addresses in small tables of 64-bit integers."""
    tables = [t for t in tensors if t.dtype == torch.int64 and t.numel() <= MOST_ADDRESSES]
    return [v for t in tables for v in t.detach().flatten().tolist() if v > LEAST_ADDRESS]
