"""What torch and Triton do during one call: operations by group, launches, and whether they reach the output.

`Recorder` follows storages: what stems from an input is tainted, and afterwards one walk backwards from the
outputs tells which operations the outputs depend on. So a sum that only feeds a debug print is no computation
between input and output, and neither is folding parameters. Counts are the player's claims; the judge weighs them.
"""

import functools
import math
import secrets
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from torch import _tensor_str
from torch.autograd import profiler_legacy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction

from gpu_runner.evaluation.child.memory import dtype_name
from gpu_runner.evaluation.protocol import Launch, Operation

# Classes that derive from it have their `__torch_dispatch__` wrapped by dynamo, whose import costs more than an evaluation.
TorchDispatchMode._should_skip_dynamo = classmethod(lambda cls: False)

HOST_READ_ELEMENTS = 64
"""Reading more floating-point values than this to the host in a call counts as computing there."""

_ALLOCATION = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like new_zeros"
    " ones ones_like new_ones full full_like new_full fill fill_ zero zero_ scalar_tensor arange eye linspace"
    " _efficientzerotensor lift_fresh lift_fresh_copy resize_ resize set_ tril_indices triu_indices"
    " record_stream _pin_memory is_pinned".split()
)
_COPY = frozenset(
    "clone copy_ copy cat stack constant_pad_nd index_select gather index index_put index_put_ _unsafe_index"
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
_COMPUTING = ("compute", "library", "random")


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


@dataclass
class Flow:
    """Storages of one call: which stem from inputs, which are weights, and what happened to them in order."""

    tainted: set[int] = field(default_factory=set)
    weights: frozenset[int] = frozenset()
    events: list[_Event] = field(default_factory=list)
    kept: list[torch.Tensor] = field(default_factory=list)

    def key(self, tensor: torch.Tensor) -> int:
        self.kept.append(tensor)  # so that no address is used twice within the call
        return _storage_key(tensor)

    def add(self, event: _Event) -> None:
        self.events.append(event)
        if event.from_inputs:
            self.tainted |= event.writes

    def trace_back(self, outputs: Sequence[torch.Tensor]) -> None:
        """Mark the events on which the outputs depend."""
        live = {_storage_key(t) for t in outputs}
        for event in reversed(self.events):
            if event.sinks or event.hidden or event.writes & live:
                event.reaches = True
                live |= event.reads


class Recorder(TorchDispatchMode):
    """Counts and follows operations of one call; fills fresh memory with a poison value.

    Args:
        inputs: tensors whose contents are new in this call.
        weights: parameters of the module; launches are trusted not to write them.
        line_of: line of the submitted source that is being executed, or None.
        poison: value for memory that `torch.empty` returns; None leaves it as it is.
    """

    def __init__(
        self,
        inputs: Sequence[torch.Tensor],
        weights: Sequence[torch.Tensor],
        line_of: Callable[[], int | None],
        poison: float | None = None,
    ) -> None:
        super().__init__()
        self.flow = Flow()
        self.flow.tainted = {self.flow.key(t) for t in inputs}
        self.flow.weights = frozenset(self.flow.key(t) for t in weights)
        self._line_of = line_of
        self._poison = poison

    def watch_functions(self) -> TorchFunctionMode:
        """The mode for what is no dispatched operation; enter it beside this one."""
        return _HostReads(self)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace not in _TORCHS_OWN:
            return self._step_into(func, args, kwargs)
        result = func(*args, **kwargs)
        self._record(func, args, kwargs, result)
        return result

    def _step_into(self, func, args, kwargs):
        """An operator that the module registered is what it does inside: go on watching there."""
        devices = {t.device.type for t in _tensors((args, kwargs))}
        key = "CUDA" if "cuda" in devices else "CPU"
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
        with self:
            return func.redispatch(keys, *args, **kwargs)

    def launched(self, tensors: Sequence[torch.Tensor], name: str) -> None:
        """A kernel got these tensors; it may read and write all of them, weights excepted."""
        keys = frozenset(self.flow.key(t) for t in tensors)
        from_inputs = bool(keys & self.flow.tainted)
        writes = keys - self.flow.weights
        self.flow.add(_Event(name, "launch", keys, writes, from_inputs))

    def read_by_host(self, tensor: torch.Tensor, name: str) -> None:
        key = self.flow.key(tensor)
        is_big_float = tensor.dtype.is_floating_point and tensor.numel() > HOST_READ_ELEMENTS
        self.flow.add(
            _Event(
                f"Tensor.{name}",
                "host",
                frozenset({key}),
                frozenset(),
                key in self.flow.tainted and is_big_float,
                self._line_of(),
                tensor.numel(),
                tensor.numel() * tensor.dtype.itemsize,
                sinks=is_big_float,
            )
        )

    def _record(self, func, args, kwargs, result) -> None:
        name = func._schema.name.removeprefix("aten::")
        inputs, outputs = _tensors((args, kwargs)), _tensors(result)
        group = group_of(func, name, inputs, outputs)
        if self._poison is not None and group == "allocation" and "empty" in name:
            _poison(outputs, self._poison)
        if name in _NO_WORK or not (inputs or outputs):
            return
        reads = frozenset(self.flow.key(t) for t in inputs)
        writes = frozenset(self.flow.key(t) for t in outputs) | _written(func, args, kwargs)
        from_inputs = bool(reads & self.flow.tainted) and group != "allocation"
        is_float = any(t.dtype.is_floating_point or t.dtype.is_complex for t in inputs)
        if group in _COMPUTING and not is_float:
            group = "integer"
        sinks = group == "host" and inputs[0].dtype != torch.bool
        self.flow.add(
            _Event(
                f"aten::{name}",
                group,
                reads,
                writes,
                from_inputs,
                self._line_of() if group in _COMPUTING else None,
                sum(t.numel() for t in outputs),
                sum(t.numel() * t.dtype.itemsize for t in (*inputs, *outputs)),
                sinks,
            )
        )

    def add_hidden(self, profile: Any) -> None:
        """What `seen_below` saw and this did not: dispatch was switched off for it."""
        seen = {e.name for e in self.flow.events if e.name.startswith("aten::")} | {_PRINTING}
        for event in hidden_operations(profile, seen):
            self.flow.add(event)

    def operations(self, outputs: Sequence[torch.Tensor]) -> tuple[Operation, ...]:
        """Everything recorded, equal steps added up, after walking back from the outputs."""
        self.flow.trace_back(outputs)
        merged: dict[tuple[Any, ...], list[int]] = {}
        for e in self.flow.events:
            if e.group == "launch":
                continue
            key = (e.name, e.group, e.reaches, e.from_inputs, e.line, e.hidden)
            sums = merged.setdefault(key, [0, 0, 0])
            sums[0] += 1
            sums[1] += e.elements
            sums[2] += e.nbytes
        self.flow.kept.clear()
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
            )
            for (name, group, reaches, from_inputs, line, hidden), (
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
        if name in _HOST_FUNCTIONS and args and isinstance(args[0], torch.Tensor):
            self._recorder.read_by_host(args[0], name)
        return func(*args, **(kwargs or {}))


def group_of(func: Any, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> str:
    """The group of one dispatched operation; see `Operation.group`."""
    if name in ("_to_copy", "to"):
        same = inputs and outputs and inputs[0].dtype == outputs[0].dtype
        return "copy" if same else "cast"
    if name in _ALLOCATION:
        return "allocation"
    if name == "copy_" and len(inputs) > 1 and inputs[0].dtype != inputs[1].dtype:
        return "cast"
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


def _is_view(func: Any) -> bool:
    aliases = [r.alias_info for r in func._schema.returns if r.alias_info is not None]
    return bool(aliases) and not any(a.is_write for a in aliases)


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> frozenset[int]:
    """Storages of the arguments that the schema says are written."""
    keys: set[int] = set()
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        keys |= {_storage_key(t) for t in _tensors(value)}
    return frozenset(keys)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [t for item in value for t in _tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _tensors(item)]
    return []


def _storage_key(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # sparse and other tensors without storage
        return id(tensor)


def _poison(tensors: Sequence[torch.Tensor], value: float) -> None:
    for tensor in tensors:
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            tensor.fill_(value)
        elif tensor.dtype != torch.bool:
            tensor.fill_(85 if math.isnan(value) else 99)


# Below the dispatcher

_PRINTING = f"printing-{secrets.token_hex(8)}"


def tell_printing_apart() -> None:
    """Writing a tensor out as text computes with dispatch switched off; name that in what `seen_below` sees."""
    write = _tensor_str._str

    def named(tensor: Any, *, tensor_contents: Any = None) -> str:
        with torch.autograd.profiler.record_function(_PRINTING):
            return write(tensor, tensor_contents=tensor_contents)

    _tensor_str._str = named


def seen_below() -> Any:
    """A context whose record `Recorder.add_hidden` reads: operations below the dispatcher, which nothing switches off."""
    return profiler_legacy.profile()


def hidden_operations(profile: Any, seen: set[str]) -> Iterator[_Event]:
    """Computing operations that ran without a visible one around them."""
    for event in profile.function_events:
        short = event.name.removeprefix("aten::")
        if not event.name.startswith("aten::") or not _may_compute(short):
            continue
        if not _has_visible_ancestor(event, seen):
            yield _Event(event.name, "compute", frozenset(), frozenset(), True, hidden=True)


def _has_visible_ancestor(event: Any, seen: set[str]) -> bool:
    while event is not None:
        if event.name in seen:
            return True
        event = event.cpu_parent
    return False


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

    def reset(self, recorder: Recorder | None, *, noop: bool) -> None:
        self.launches, self.count, self.recorder, self.noop = [], 0, recorder, noop

    def _wrap(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def tapped(kernel, *args, grid=None, warmup=False, **kwargs):
            if warmup:
                return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            own = self.is_own_kernel(kernel)
            self._note(kernel, args, kwargs, grid, own)
            if own and self.noop:
                return None
            self.depth += 1
            try:
                return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            finally:
                self.depth -= 1

        return tapped

    def is_own_kernel(self, kernel: Any) -> bool:
        code = getattr(getattr(kernel, "fn", None), "__code__", None)
        return code is not None and self._is_own(code.co_filename)

    def _note(self, kernel, args, kwargs, grid, own) -> None:
        self.count += 1
        tensors = _launch_tensors((args, kwargs))
        if self.recorder is not None:
            self.recorder.launched(tensors, kernel_name(kernel))
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
