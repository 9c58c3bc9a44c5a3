"""What torch and Triton do during one call: operations by group, launches, and whether they reach the output.

`Recorder` follows storages: what stems from an input is tainted, and afterwards one walk backwards from the
outputs tells which operations the outputs depend on. So a sum that only feeds a debug print is no computation
between input and output, and neither is folding parameters. Counts are the player's claims; the judge weighs them.
"""

import contextlib
import functools
import math
import secrets
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import triton
from torch import _tensor_str
from torch.autograd import profiler_legacy
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton.compiler import CompiledKernel
from triton.runtime.interpreter import GridExecutor, InterpretedFunction

from gpu_runner.evaluation.child.memory import dtype_name
from gpu_runner.evaluation.protocol import Launch, Operation

# Classes that derive from it have their `__torch_dispatch__` wrapped by dynamo, whose import costs more than an evaluation.
TorchDispatchMode._should_skip_dynamo = classmethod(lambda cls: False)

HOST_READ_ELEMENTS = 64
"""Reading more floating-point values than this to the host in a call counts as computing there."""
HOST_READ_INTEGERS = 1_024
"""The same for integers that kernels made from floating-point inputs: routing tables are read, tensors are not."""
PRINTED_ELEMENTS = 4_096
"""Numbers of a call that may be written out as text; summarised printing stays far below."""
LEAST_ADDRESS = 1 << 20
MOST_ADDRESSES = 4_096
"""Integer tensors with more elements than this are no tables of addresses."""

_ALLOCATION = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like new_zeros"
    " ones ones_like new_ones full full_like new_full fill fill_ zero zero_ scalar_tensor arange eye linspace"
    " _efficientzerotensor lift_fresh resize_ resize set_ tril_indices triu_indices"
    " record_stream _pin_memory is_pinned".split()
)
_COPY = frozenset(
    "clone copy_ copy lift_fresh_copy cat stack constant_pad_nd index_select gather index index_put index_put_ _unsafe_index"
    " _index_put_impl_ roll flip rot90 repeat repeat_interleave slice_scatter select_scatter scatter scatter_"
    " as_strided_scatter diagonal_scatter _reshape_copy as_strided_copy unfold_copy view_copy narrow_copy"
    " permute_copy expand_copy t_copy transpose_copy contiguous pixel_shuffle pixel_unshuffle im2col"
    " reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"
    " take embedding masked_select channel_shuffle _foreach_copy_ split_copy unbind_copy".split()
)
_LIBRARY = frozenset(
    "mm addmm bmm baddbmm addbmm addmv mv dot vdot _scaled_mm _int_mm _grouped_mm _scaled_grouped_mm"
    " _addmm_activation linear mkldnn_linear _mkl_linear _sparse_semi_structured_mm"
    " convolution _convolution convolution_overrideable cudnn_convolution cudnn_convolution_transpose"
    " cudnn_convolution_relu cudnn_convolution_add_relu mkldnn_convolution _slow_conv2d_forward slow_conv3d"
    " slow_conv3d_forward slow_conv_transpose2d slow_conv_transpose3d slow_conv_dilated2d slow_conv_dilated3d"
    " conv_depthwise3d _conv_depthwise2d _nnpack_spatial_convolution thnn_conv2d miopen_convolution"
    " _fft_r2c _fft_c2r _fft_c2c sort topk argsort msort".split()
)
_MATMUL = frozenset("mm addmm bmm baddbmm addbmm addmv mv dot linear _addmm_activation".split())
_TORCHS_OWN = frozenset(
    "profiler aten prims prim quantized _c10d_functional c10d mkldnn mkl onednn".split()
)
_HOST = frozenset("_local_scalar_dense is_nonzero equal item".split())
_NO_WORK = frozenset(
    "sym_size sym_stride sym_numel sym_storage_offset size stride detach detach_ alias"
    " _unsafe_view is_same_size resolve_conj resolve_neg lift _has_same_storage_numel".split()
)
_RANDOM_PREFIXES = ("rand", "normal", "bernoulli", "uniform", "native_dropout", "multinomial")
_HOST_FUNCTIONS = frozenset(
    "numpy __array__ tolist __dlpack__ to_dlpack storage __reduce_ex__".split()
)
_NO_DISPATCH = (torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl)
_NEGATING_VIEWS = frozenset("_neg_view _conj".split())
"""Whoever reads them next changes signs."""
_FILLING = frozenset("fill fill_ full full_like new_full".split())
_COMPUTING = ("compute", "library", "random")
_ACCUMULATING = frozenset(
    "index_put index_put_ _index_put_impl_ _unsafe_index_put put put_ scatter scatter_".split()
)


def uses_matmul(name: str) -> bool:
    return name.removeprefix("aten::") in _MATMUL


def uses_convolution(name: str) -> bool:
    return "conv" in name


@dataclass
class _Event:
    """One step of a call with the storages it read and wrote, as their implementations' addresses."""

    name: str
    group: str
    reads: frozenset[int]
    writes: frozenset[int]
    from_inputs: bool
    line: int | None = None
    elements: int = 0
    nbytes: int = 0
    sinks: bool = False
    reaches: bool = False
    hidden: bool = False
    by_host: bool = False
    is_flag: bool = False
    is_heavy: bool = False
    is_stale: bool = False


@dataclass
class Flow:
    """Storages of one call: which stem from inputs, which are weights, and what happened to them in order."""

    tainted: set[int] = field(default_factory=set)
    stale: frozenset[int] = frozenset()
    """Storages that an earlier call filled from its inputs, and whose contents outlived it."""
    written: set[int] = field(default_factory=set)
    floats: set[int] = field(default_factory=set)
    """Storages that hold floating-point values, whatever type they are looked at through."""
    from_floats: set[int] = field(default_factory=set)
    """Storages whose contents stem from floating-point inputs."""
    weights: frozenset[int] = frozenset()
    is_real: bool = True
    events: list[_Event] = field(default_factory=list)
    kept: list[torch.Tensor] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    shared: dict[int, torch.Tensor] = field(default_factory=dict)
    """Tensors whose memory the host may read by other ways."""

    def key(self, tensor: torch.Tensor) -> int:
        self.kept.append(tensor)  # so that no address is used twice within the call
        key = storage_key(tensor)
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            self.floats.add(key)
        if key not in self.seen:
            self.seen.add(key)
            if self.is_real and is_shared_with_host(tensor):
                self.shared[key] = tensor
        return key

    def begin(self, inputs: Sequence[torch.Tensor]) -> None:
        self.tainted = {self.key(t) for t in inputs}
        self.from_floats = self.tainted & self.floats

    def add(self, event: _Event) -> None:
        self.events.append(event)
        self.written |= event.writes
        if not event.from_inputs:
            return
        self.tainted |= event.writes
        if event.reads & self.from_floats:
            self.from_floats |= event.writes
            if event.group == "copy" and event.reads & self.floats:
                self.floats |= event.writes

    def at_addresses(self, addresses: Sequence[int]) -> list[torch.Tensor]:
        """Tensors of this call into whose storages the addresses point."""
        found: dict[int, torch.Tensor] = {}
        for tensor in self.kept if addresses else ():
            first, last = _span(tensor)
            if any(first <= a < last for a in addresses):
                found.setdefault(storage_key(tensor), tensor)
        return list(found.values())

    def count_host_reads(self) -> None:
        """Many small reads are one large one: mark all of a call when their sum is too large."""
        self._see_shared_memory()
        reads = [e for e in self.events if e.group == "host" and e.reads & self.from_floats]
        flags = [e for e in reads if e.is_flag]
        floats = [e for e in reads if e.reads & self.floats and not e.is_flag]
        integers = [e for e in reads if not e.reads & self.floats and not e.is_flag]
        limits = (
            (flags, HOST_READ_ELEMENTS),
            (floats, HOST_READ_ELEMENTS),
            (integers, HOST_READ_INTEGERS),
        )
        for some, limit in limits:
            if sum(e.elements for e in some) > limit:
                for e in some:
                    e.from_inputs = e.sinks = e.is_heavy = True
                    if not e.name.startswith("Tensor."):
                        e.name = "Tensor.item"

    def _see_shared_memory(self) -> None:
        """What a kernel or a copy leaves in memory that the host shares is read there, for all that anybody knows."""
        for key, tensor in self.shared.items():
            if key in self.written & self.from_floats:
                size = tensor.numel(), tensor.numel() * tensor.dtype.itemsize
                reads = frozenset({key})
                self.add(_Event("Tensor.numpy", "host", reads, frozenset(), False, None, *size))

    def is_from_floats(self, tensor: torch.Tensor) -> bool:
        return storage_key(tensor) in self.from_floats

    def see_stale(self, outputs: Sequence[torch.Tensor]) -> None:
        """An output that an earlier call made and this one did not write."""
        for tensor in outputs:
            key = storage_key(tensor)
            if key in self.stale - self.written:
                keys = frozenset({key})
                size = tensor.numel(), tensor.numel() * tensor.dtype.itemsize
                event = _Event("an earlier result", "copy", keys, keys, False, None, *size)
                event.is_stale = True
                self.events.append(event)

    def survivors(self) -> list["Survivor"]:
        """Storages that this call filled from its inputs, for whoever asks later which of them still exist."""
        found: dict[int, Survivor] = {}
        for tensor in self.kept:
            key = storage_key(tensor)
            if key in self.written & self.tainted and key not in found:
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    reference = StorageWeakRef(tensor.untyped_storage())
                    found[key] = Survivor(reference, tensor.dtype.itemsize)
        return list(found.values())

    def trace_back(self, outputs: Sequence[torch.Tensor]) -> None:
        """Mark the events on which the outputs depend; first those that do so by more than a number that the host reads."""
        ends = {storage_key(t) for t in outputs}
        for by_host in (False, True):
            live = set(ends)
            for event in reversed(self.events):
                is_end = event.sinks and (by_host or event.is_heavy)
                if is_end or event.hidden or event.writes & live:
                    event.by_host = not event.reaches and by_host
                    event.reaches = True
                    live |= event.reads


class Survivor(NamedTuple):
    """A storage that an earlier call filled from its inputs; its key stays its own while the reference exists."""

    storage: StorageWeakRef
    itemsize: int

    @property
    def key(self) -> int:
        return int(self.storage.cdata)


class Recorder(TorchDispatchMode):
    """Counts and follows operations of one call; fills fresh memory with a poison value.

    Args:
        inputs: tensors whose contents are new in this call.
        weights: parameters of the module; launches are trusted not to write them.
        line_of: line of the submitted source that is being executed, or None.
        poison: value for memory that `torch.empty` returns; None leaves it as it is.
        stale: storages that an earlier call filled from its inputs.
        replay: numbers that the host is told instead of those that it reads, in this order.
        is_real: whether memory holds what was computed; if not, launches are trusted with weights.
    """

    def __init__(
        self,
        inputs: Sequence[torch.Tensor],
        weights: Sequence[torch.Tensor],
        line_of: Callable[[], int | None],
        poison: float | None = None,
        stale: frozenset[int] = frozenset(),
        replay: Sequence[Any] = (),
        is_real: bool = True,
    ) -> None:
        super().__init__()
        self.numbers: list[Any] = []
        self.survivors: list[Survivor] = []
        self._replay = list(replay)
        self._is_real = is_real
        self.flow = Flow(stale=stale, is_real=is_real)
        self.flow.begin(inputs)
        self.flow.weights = frozenset(self.flow.key(t) for t in weights)
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
            result = func(*args, **kwargs)
        self._record(func, args, kwargs, result)
        if isinstance(result, float) and self.flow.is_from_floats(args[0]):
            return self.told(result)
        return result

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
        """A kernel gets these tensors, and those at these addresses; it may read and write all, weights excepted.

        Call what this answers with when the kernel has run: a weight that it wrote is no weight.
        """
        with _unwatched():
            addresses = [*addresses, *_addresses_in(tensors)]
            tensors = [*tensors, *self.flow.at_addresses(addresses)]
            keys = frozenset(self.flow.key(t) for t in tensors)
            trusted = self.flow.weights | self.flow.shared.keys()
            weights = [t for t in tensors if self._is_real and self.flow.key(t) in trusted]
            before = [t.detach().clone() for t in weights]
        from_inputs = bool(keys & self.flow.tainted)
        writes = keys - trusted
        self.flow.add(_Event(name, "launch", keys, writes, from_inputs))

        def after() -> None:
            with _unwatched():
                changed = [t for t, b in zip(weights, before, strict=True) if not _same_bits(t, b)]
            if changed:
                written = frozenset(self.flow.key(t) for t in changed)
                self.flow.weights -= written
                self.flow.add(_Event(name, "launch", keys, written, from_inputs))

        return after

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
            _Event(
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

    def printed(self, tensor: torch.Tensor, elements: int) -> None:
        """Text for people is no host read, text for a parser is."""
        self._printed += elements
        if self._printed > PRINTED_ELEMENTS:
            self.read_by_host(tensor, "__repr__", elements)

    def _record(self, func, args, kwargs, result) -> None:
        name = func._schema.name.removeprefix("aten::")
        inputs, outputs = _tensors((args, kwargs)), _tensors(result)
        group = group_of(func, name, inputs, outputs)
        if name in _FILLING and _is_filled_by_tensor(func, args, kwargs):
            group = "copy"
        if name in _ACCUMULATING and _accumulates(func, args, kwargs):
            group = "compute"
        if self._poison is not None and group == "allocation" and "empty" in name:
            _poison(outputs, self._poison)
        if name in _NO_WORK or not (inputs or outputs):
            return
        reads = frozenset(self.flow.key(t) for t in inputs)
        writes = frozenset(self.flow.key(t) for t in outputs) | _written(func, args, kwargs)
        from_inputs = bool(reads & self.flow.tainted) and group != "allocation"
        is_float = any(t.dtype.is_floating_point or t.dtype.is_complex for t in inputs)
        reinterprets = bool(reads & self.flow.floats & self.flow.from_floats)
        if group in _COMPUTING and not is_float and not reinterprets:
            group = "library" if name in _MATMUL else "integer"
        is_flag = group == "host" and inputs[0].dtype == torch.bool
        self.flow.add(
            _Event(
                f"aten::{name}",
                group,
                reads,
                writes,
                from_inputs,
                self._line_of() if group in (*_COMPUTING, "host") else None,
                sum(t.numel() for t in outputs) or int(group == "host"),
                sum(t.numel() * t.dtype.itemsize for t in (*inputs, *outputs)),
                sinks=group == "host" and not is_flag,
                is_flag=is_flag,
                is_stale=group not in ("allocation", "view")
                and self._reads_stale(func, args, kwargs),
            )
        )

    def _reads_stale(self, func, args, kwargs) -> bool:
        stale = self.flow.stale - self.flow.written
        if not stale:
            return False
        read = {storage_key(t) for t in _tensors((args, kwargs))} - _written(func, args, kwargs)
        return bool(read & stale)

    def add_hidden(self, profile: Any) -> None:
        """What `SeenBelow` saw and this did not: dispatch was switched off for it."""
        for event in hidden_operations(profile, self._span):
            self.flow.add(event)

    def mark_end(self) -> None:
        """The last thing that `SeenBelow` must have seen; if it has not, it was switched off."""
        with record_span(self._span + _END):
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
        recorder.read_by_host(args[0], name)
        if name not in ("numpy", "tolist") or not recorder.flow.is_from_floats(args[0]):
            return func(*args, **(kwargs or {}))
        with _unwatched():  # from a GPU it would be a copy
            result = func(args[0].detach().clone(), *args[1:], **(kwargs or {}))
        is_small = args[0].numel() <= HOST_READ_ELEMENTS
        return recorder.told(result) if is_small else result


def group_of(func: Any, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> str:
    """The group of one dispatched operation; see `Operation.group`."""
    if name in ("_to_copy", "to") and inputs and outputs:
        return _converting(inputs[0].dtype, outputs[0].dtype)
    if name in _ALLOCATION:
        return "allocation"
    if name in _NEGATING_VIEWS:
        return "compute"
    if name == "copy_" and len(inputs) > 1:
        return _converting(inputs[1].dtype, inputs[0].dtype)
    if name in _COPY:
        return "copy"
    if name in _HOST:
        return "host"
    if _is_view(func):
        return "view"
    if name in _LIBRARY:
        return "library"
    if name.startswith(_RANDOM_PREFIXES):
        return "random"
    return "compute"


def _converting(source: torch.dtype, target: torch.dtype) -> str:
    """Floating-point numbers that become integers are truncated, which is a computation."""
    if source == target:
        return "copy"
    return "compute" if source.is_floating_point and not _is_inexact(target) else "cast"


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _is_filled_by_tensor(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    for i, argument in enumerate(func._schema.arguments):
        if argument.name in ("value", "fill_value"):
            return isinstance(args[i] if i < len(args) else kwargs.get(argument.name), torch.Tensor)
    return False


def _is_view(func: Any) -> bool:
    if torch.Tag.inplace_view in func.tags:
        return True
    aliases = [r.alias_info for r in func._schema.returns if r.alias_info is not None]
    return bool(aliases) and not any(a.is_write for a in aliases)


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
        return [value]
    if isinstance(value, tuple | list):
        return [t for item in value for t in _tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _tensors(item)]
    return []


def storage_key(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # sparse and other tensors without storage
        return id(tensor)


def is_shared_with_host(tensor: torch.Tensor) -> bool:
    """Whether other code may look at its memory: a numpy array, a buffer, a file."""
    try:
        storage = tensor.untyped_storage()
        if storage.device.type != "cpu" or storage.nbytes() == 0:
            return False
        return not storage.resizable() or storage.is_shared()
    except (RuntimeError, NotImplementedError):
        return False


def _poison(tensors: Sequence[torch.Tensor], value: float) -> None:
    for tensor in tensors:
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            tensor.fill_(value)
        elif tensor.dtype != torch.bool:
            tensor.fill_(85 if math.isnan(value) else 99)


def _accumulates(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether this scatter adds or multiplies where others only move values."""
    for i, argument in enumerate(func._schema.arguments):
        if argument.name in ("accumulate", "reduce"):
            return bool(args[i] if i < len(args) else kwargs.get(argument.name))
    return False


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    """For the harness's own look at tensors in the middle of a call."""
    off = torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction()
    with record_span(_OURS), off[0], off[1]:
        yield


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(_bytes_of(a), _bytes_of(b))


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)


def _addresses_in(tensors: Sequence[torch.Tensor]) -> list[int]:
    """What could be addresses in small tables of 64-bit integers."""
    tables = [t for t in tensors if t.dtype == torch.int64 and t.numel() <= MOST_ADDRESSES]
    return [v for t in tables for v in t.detach().flatten().tolist() if v > LEAST_ADDRESS]


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last address of its storage."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    except (RuntimeError, NotImplementedError):
        return 0, 0


# Below the dispatcher

_OURS = f"ours-{secrets.token_hex(8)}"
_END = "-end"
record_span = torch._C._profiler._RecordFunctionFast
"""Names a stretch of time in what `SeenBelow` sees."""


def tell_printing_apart(printed: Callable[[torch.Tensor, int], None]) -> None:
    """Writing a tensor out as text computes with dispatch switched off; name that in what `SeenBelow` sees."""
    write = _tensor_str._str

    def named(tensor: Any, *, tensor_contents: Any = None) -> str:
        printed(tensor, _printed_elements(tensor))
        with record_span(_OURS):
            return write(tensor, tensor_contents=tensor_contents)

    _tensor_str._str = named


def _printed_elements(tensor: torch.Tensor) -> int:
    options = _tensor_str.PRINT_OPTS
    if tensor.numel() <= options.threshold:
        return tensor.numel()
    return math.prod(min(n, 2 * options.edgeitems) for n in tensor.shape)


class SeenBelow:
    """A context whose record `Recorder.add_hidden` reads: operations below the dispatcher, which nothing switches off.

    Its own reader of the profiler's records: what lies in what is told by their order, and not by times that may tie.
    """

    def __init__(self) -> None:
        self.events: list[_Below] = []

    def __enter__(self) -> "SeenBelow":
        profiler_legacy._enable_profiler_legacy(profiler_legacy.profile().config())
        return self

    def __exit__(self, *error: object) -> None:
        for records in profiler_legacy._disable_profiler_legacy():
            self.events += _nested(records)


@dataclass
class _Below:
    """One operation or named stretch that the profiler saw, and what lay around it."""

    name: str
    around: "_Below | None"


def _nested(records: Any) -> Iterator[_Below]:
    """The records of one thread, in the order of their beginnings."""
    innermost: _Below | None = None
    for record in records:
        if record.kind() == "push":
            innermost = _Below(record.name(), innermost)
            yield innermost
        elif record.kind() == "pop" and innermost is not None:
            innermost = innermost.around


def hidden_operations(profile: Any, span: str) -> Iterator[_Event]:
    """Computing operations that ran without a dispatched one around or in them."""
    spans = {span, _OURS}
    events = profile.events
    if not any(event.name == span + _END for event in events):
        yield _hidden("the profiler")
    dispatched: set[int] = set()
    for event in events:
        if event.name in spans:
            dispatched |= {id(above) for above in _ancestors(event)}
    for event in events:
        short = event.name.removeprefix("aten::")
        if not event.name.startswith("aten::") or not _may_compute(short):
            continue
        if id(event) not in dispatched and not any(e.name in spans for e in _ancestors(event)):
            yield _hidden(event.name)


def _hidden(name: str) -> _Event:
    return _Event(name, "compute", frozenset(), frozenset(), True, hidden=True)


def _ancestors(event: _Below | None) -> Iterator[_Below]:
    while event is not None:
        yield event
        event = event.around


@functools.lru_cache(maxsize=4096)
def _may_compute(short: str) -> bool:
    """Whether an operator may compute by itself: no view, no copy, and not merely made of others."""
    if short in _ALLOCATION | _COPY | _HOST | _NO_WORK | {"to", "_to_copy"}:
        return False
    packet = getattr(torch.ops.aten, short, None)
    if packet is None:
        return False
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return not any(_is_view(func) or _is_composite(func) for func in overloads)


def _is_composite(func: Any) -> bool:
    if not torch._C._dispatch_has_kernel(func.name()):
        return False  # known to TorchScript alone
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


# Launches


class LaunchTap:
    """Sees every launch of a Triton kernel, in the interpreter and on a GPU; can turn them into no-ops.

    Args:
        is_own: whether a file name is the submitted module's.
    """

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self.launches: list[Launch] = []
        self.count = 0
        self.depth = 0
        self.noop = False
        self.recorder: Recorder | None = None

    def install(self) -> None:
        """Wrap the launch functions; once per process, before the snapshot of the guard."""
        for owner in (InterpretedFunction, triton.runtime.jit.JITFunction):
            owner.run = self._wrap(owner.run)
        CompiledKernel.__getitem__ = self._wrap_compiled(CompiledKernel.__getitem__)
        for owner in (InterpretedFunction, GridExecutor):
            owner.__call__ = self._inside_only(owner.__call__)

    def printed(self, tensor: torch.Tensor, elements: int) -> None:
        if self.recorder is not None:
            self.recorder.printed(tensor, elements)

    def reset(self, recorder: Recorder | None, *, noop: bool) -> None:
        self.launches, self.count, self.recorder, self.noop = [], 0, recorder, noop

    def _wrap(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def tapped(kernel, *args, grid=None, warmup=False, **kwargs):
            def go():
                return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

            return go() if warmup else self._launch(kernel, args, kwargs, grid, go)

        return tapped

    def _launch(self, kernel, args, kwargs, grid, go: Callable[[], Any]) -> Any:
        own = self.is_own_kernel(kernel)
        after = self._note(kernel, args, kwargs, grid, own)
        if own and self.noop:
            return None
        self.depth += 1
        try:
            result = go()
        finally:
            self.depth -= 1
        after()
        return result

    def _wrap_compiled(self, launcher_of: Callable[..., Any]) -> Callable[..., Any]:
        """What `warmup` answers with can be launched as well."""

        def tapped(compiled, grid):
            launcher, kernel = launcher_of(compiled, grid), getattr(compiled.src, "fn", compiled)

            def launch(*args, **kwargs):
                return self._launch(kernel, args, kwargs, grid, lambda: launcher(*args, **kwargs))

            return launch

        return tapped

    def _inside_only(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The interpreter's ways to run a body are no ways to launch a kernel, as they are none on a GPU."""

        def tapped(function, *args, **kwargs):
            if self.depth == 0:
                raise RuntimeError("a kernel is launched by kernel[grid](...), and by nothing else")
            return call(function, *args, **kwargs)

        return tapped

    def is_own_kernel(self, kernel: Any) -> bool:
        code = getattr(getattr(kernel, "fn", None), "__code__", None)
        return code is not None and self._is_own(code.co_filename)

    def _note(self, kernel, args, kwargs, grid, own) -> Callable[[], None]:
        self.count += 1
        after = _nothing
        if self.recorder is not None:
            tensors, addresses = _launch_tensors((args, kwargs)), _addresses((args, kwargs))
            after = self.recorder.launched(tensors, addresses, kernel_name(kernel))
        if len(self.launches) < 500:
            names = [*getattr(kernel, "arg_names", [])]
            shown = {**dict(zip(names, args, strict=False)), **kwargs}
            self.launches.append(
                Launch(
                    kernel=kernel_name(kernel)[:300],
                    grid=_grid(grid, shown),
                    own=own,
                    line=_first_line(kernel) if own else None,
                    args={str(k)[:100]: _shown(v) for k, v in list(shown.items())[:200]},
                )
            )
        return after


def _nothing() -> None:
    """After a launch that nobody follows."""


def kernel_name(kernel: Any) -> str:
    return str(getattr(getattr(kernel, "fn", kernel), "__name__", "kernel"))


def _first_line(kernel: Any) -> int | None:
    code = getattr(kernel.fn, "__code__", None)
    return code.co_firstlineno if code is not None else None


def _launch_tensors(value: Any) -> list[torch.Tensor]:
    """Tensors among a launch's arguments, those inside descriptors and wrappers too."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [t for item in value for t in _launch_tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _launch_tensors(item)]
    base = getattr(value, "base", None)
    return [base] if isinstance(base, torch.Tensor) else []


def _addresses(value: Any) -> list[int]:
    """Integers among a launch's arguments that are large enough to point somewhere."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [value] if value > LEAST_ADDRESS else []
    if isinstance(value, tuple | list):
        return [a for item in value for a in _addresses(item)]
    if isinstance(value, dict):
        return [a for item in value.values() for a in _addresses(item)]
    if not isinstance(value, torch.Tensor) and callable(getattr(value, "data_ptr", None)):
        return _addresses(value.data_ptr())
    return []


def _grid(grid: Any, shown: dict[str, Any]) -> tuple[int, ...]:
    try:
        value = grid(shown) if callable(grid) else grid
        value = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
    except (TypeError, ValueError, KeyError, ZeroDivisionError):
        return ()
    return value[:3]


def _shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return {"shape": list(value.shape)[:16], "dtype": dtype_name(value.dtype)}
    if value is None or isinstance(value, bool | float):
        return value if value == value else "nan"
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)[:60]
    return str(value)[:60] if isinstance(value, str) else type(value).__name__


def line_finder(is_own: Callable[[str], bool]) -> Callable[[], int | None]:
    """A function that tells which line of the submitted module is running, innermost first."""

    def line() -> int | None:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            if is_own(frame.f_code.co_filename):
                return frame.f_lineno
            frame = frame.f_back
        return None

    return line
