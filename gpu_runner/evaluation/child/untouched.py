"""Full-size calls without full-size work: memory is reserved but untouched, and torch operations are recorded, not run.

    with untouched.full_size() as construction:
        model, inputs = ModelNew(*get_init_inputs()), get_inputs()      # cheap even for gigabytes
    with untouched.full_size() as world:
        model(*inputs)
    world.operations     # [Operation]: what torch was asked to compute: shapes, bytes, floating-point operations
    world.launches       # [Launch]: own kernels with full-size arguments; counts scaled from a sample of programs
    world.findings, world.errors, world.unevaluable        # as in interpreter.session

Reserved memory reads as zero. Operations on at most `SMALL` elements run for real, since host code decides by their
values; views are real. In a process whose interpreter is installed, launches are sampled; in a "compile" child,
`compiling.compile_call` records them.
"""

import contextlib
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo  # what torch's first call on "meta" imports for seconds: so a warm parent has it already
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from triton import knobs

from gpu_runner.evaluation.child.counting import Operation
from gpu_runner.evaluation.child.distinct import bytes_of
from gpu_runner.evaluation.child.sessions import Launch, Sampling, Session, session
from gpu_runner.evaluation.child.stand_in import candidate_line
from gpu_runner.evaluation.child.traced_memory import unseen_by_torch

SMALL = 1 << 14
"""Elements of arguments and results together up to which an operation runs for real."""

_RESERVED_FROM = 1 << 16

_VIEWS = frozenset("aten::_unsafe_view aten::lift_fresh aten::_reshape_alias aten::detach".split())
_ALLOCATIONS = frozenset(
    "aten::empty aten::empty_like aten::empty_strided aten::empty_permuted aten::new_empty"
    " aten::new_empty_strided aten::resize_ aten::set_".split()
)
_RANDOM = frozenset(
    "rand randn randint rand_like randn_like randint_like randperm normal normal_ uniform_ random_"
    " bernoulli bernoulli_ exponential_ native_dropout multinomial".split()
)
_COPIES = frozenset(
    "copy_ clone _to_copy cat stack repeat fill_ zero_ zeros ones full zeros_like ones_like full_like"
    " new_zeros new_ones new_full arange constant_pad_nd index gather index_select embedding flip roll"
    " slice_scatter select_scatter linspace eye tril triu".split()
)
_GATHERS = frozenset("index gather index_select embedding take nll_loss_forward".split())
_SPECIAL = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sigmoid gelu silu mish softplus erf erfc sqrt"
    " rsqrt pow div reciprocal _softmax _log_softmax elu selu celu logsumexp hardswish atan asin acos"
    " sinh cosh logit log_sigmoid_forward".split()
)
_REDUCTIONS = frozenset(
    "sum mean amax amin max min argmax argmin var std var_mean std_mean prod norm linalg_vector_norm"
    " _softmax _log_softmax native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit"
    " _native_batch_norm_legit_no_training _batch_norm_with_update cumsum cumprod cummax cummin logcumsumexp"
    " logsumexp any all nll_loss_forward nll_loss2d_forward max_pool2d_with_indices max_pool3d_with_indices"
    " avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d topk sort mse_loss binary_cross_entropy"
    " smooth_l1_loss huber_loss _fused_rms_norm median mode count_nonzero".split()
)


@dataclass
class World:
    """What a full-size call asked for. `session` is None in a process without the interpreter."""

    operations: list[Operation] = field(default_factory=list)
    session: Session | None = None

    @property
    def launches(self) -> list[Launch]:
        return self.session.launches if self.session else []

    @property
    def findings(self) -> list[dict[str, Any]]:
        return self.session.findings if self.session else []

    @property
    def errors(self) -> list[dict[str, Any]]:
        return self.session.errors if self.session else []

    @property
    def unevaluable(self) -> str | None:
        return self.session.unevaluable if self.session else None


@contextlib.contextmanager
def full_size(
    sampling: Sampling | None = None, config: int | Mapping[str, int] = 0
) -> Iterator[World]:
    """Torch inside reserves instead of computing, and launches are sampled.

    Args:
        sampling: how much of each launch is interpreted; None for the default.
        config: which autotune configuration runs, as in `session`.
    """
    world = World()
    with contextlib.ExitStack() as stack:
        if knobs.runtime.interpret:
            world.session = stack.enter_context(
                session(sampling=sampling or Sampling(), config=config)
            )
        stack.enter_context(torch.no_grad())
        stack.enter_context(_Reserving(world.operations))
        yield world


def reserved(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of zeros whose pages exist only once they are written."""
    elements = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    elements = 0 if 0 in tuple(size) else elements
    nbytes = elements * dtype.itemsize
    with unseen_by_torch():
        if nbytes < _RESERVED_FROM:
            whole = torch.zeros(nbytes, dtype=torch.uint8)
        else:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
            pages = mmap.mmap(-1, nbytes, flags=flags)
            pages.madvise(getattr(mmap, "MADV_NOHUGEPAGE", mmap.MADV_NORMAL))
            whole = torch.frombuffer(pages, dtype=torch.uint8)
        return whole.view(dtype).as_strided(tuple(size), tuple(stride))


class _Reserving(TorchDispatchMode):  # type: ignore[misc]
    """Answers each operation with tensors of the right shape, and notes what it would have cost."""

    def __init__(self, operations: list[Operation]) -> None:
        super().__init__()
        self.operations = operations

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if is_view(func):
            return func(*args, **kwargs)
        inputs = list(_tensors((args, kwargs)))
        if any(tensor.device.type == "meta" for tensor in inputs):
            return func(*args, **kwargs)
        out = self._answer(func, args, kwargs, inputs)
        if func._schema.name not in _ALLOCATIONS:
            self.operations.extend(operations_of(func, args, kwargs, inputs, out))
        return out

    def _answer(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[torch.Tensor]
    ) -> Any:
        shapes = _on_meta(func, args, kwargs)
        if shapes is None:
            return func(*args, **kwargs)
        written = list(_written(func, args, kwargs))
        elements = sum(t.numel() for t in inputs) + sum(t.numel() for t in _tensors(shapes))
        if elements <= SMALL:
            out = func(*args, **kwargs)
            return _blanked(out) if func._schema.name in _ALLOCATIONS and not written else out
        outputs = _as_tuple(shapes)
        answers = [
            self._one(schema, value, written)
            for schema, value in zip(
                _return_schemas(func._schema, len(outputs)), outputs, strict=False
            )
        ]
        return answers[0] if not isinstance(shapes, (tuple, list)) else type(shapes)(answers)

    def _one(self, schema: Any, value: Any, written: list[tuple[Any, torch.Tensor]]) -> Any:
        if schema is not None and schema.alias_info is not None:
            for names, tensor in written:
                if names & schema.alias_info.before_set:
                    return tensor
        if isinstance(value, torch.Tensor):
            return reserved(value.size(), value.stride(), value.dtype)
        if isinstance(value, (list, tuple)):
            return type(value)(self._one(None, v, []) for v in value)
        return value


def _blanked(out: Any) -> Any:
    """Zeros in fresh memory, small as it is: not all programs run that would fill it, and host code may look."""
    with unseen_by_torch():
        for tensor in _tensors(out):
            tensor.zero_()
    return out


def is_view(func: Any) -> bool:
    if func._schema.name in _VIEWS:
        return True
    returns = func._schema.returns
    return bool(returns) and all(
        r.alias_info is not None and not r.alias_info.is_write for r in returns
    )


def _return_schemas(schema: Any, count: int) -> list[Any]:
    returns = list(schema.returns)
    return returns if len(returns) == count else [None] * count


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _on_meta(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result's shapes, computed without data; None when they depend on the data."""
    try:
        with torch._C.DisableTorchFunction():
            return func(*_to_meta(args), **_to_meta({**kwargs, **_meta_device(func)}))
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        # No meta kernel, or a data-dependent shape. A wrong call raises again when it runs for real.
        return None


def _meta_device(func: Any) -> dict[str, Any]:
    takes_device = any(argument.name == "device" for argument in func._schema.arguments)
    return {"device": torch.device("meta")} if takes_device else {}


def _to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (tuple, list)):
        return type(value)(_to_meta(item) for item in value)
    if isinstance(value, dict):
        return {name: _to_meta(item) for name, item in value.items()}
    return value


def _written(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[Any, torch.Tensor]]:
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            if isinstance(value, torch.Tensor):
                yield argument.alias_info.before_set, value


# --------------------------------------------------------------------------------------------------------------------
# What an operation costs


def operations_of(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inputs: list[torch.Tensor],
    out: Any,
) -> list[Operation]:
    """The operation as the kernels that eager PyTorch launches for it: mostly one; a convolution's bias is another."""
    outputs = list(_tensors(out))
    if not outputs and not func._schema.is_mutable:
        return []
    name = func._schema.name.removeprefix("aten::")
    outputs = outputs or [tensor for _, tensor in _written(func, args, kwargs)]
    written = float(bytes_of(outputs))
    operation = Operation(
        op=name,
        kind=kind_of(name, func),
        read_bytes=_read_bytes(name, func, inputs, args, kwargs, written),
        written_bytes=written,
        flops=_flops(func, args, kwargs, inputs, out, name),
        dtype=_dtype_of(inputs, outputs),
        shapes=[list(t.shape) for t in inputs],
        out_shapes=[list(t.shape) for t in outputs],
        special=float(max((t.numel() for t in outputs), default=0))
        if name.rstrip("_") in _SPECIAL or name in _SPECIAL
        else 0.0,
        line=candidate_line(),
    )
    if operation.kind == "convolution" and len(inputs) > 2:
        return [operation, _bias_of(operation)]
    return [operation]


def _bias_of(convolution: Operation) -> Operation:
    """cuDNN's convolution leaves the bias to an addition in place."""
    elements = 1.0
    for n in convolution.out_shapes[0]:
        elements *= n
    return Operation(
        op="add_",
        kind="pointwise",
        read_bytes=convolution.written_bytes,
        written_bytes=convolution.written_bytes,
        flops=elements,
        dtype=convolution.dtype,
        shapes=[convolution.out_shapes[0]],
        out_shapes=[convolution.out_shapes[0]],
        line=convolution.line,
    )


def kind_of(name: str, func: Any = None) -> str:
    """Which kind of `Operation` an ATen name is."""
    plain = name.partition(".")[0]
    if plain in ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "dot", "mv", "addmv", "linear"):
        return "matmul"
    if "convolution" in plain or plain.startswith(("conv", "_slow_conv", "slow_conv")):
        return "convolution"
    if "scaled_dot_product" in plain or "attention" in plain:
        return "attention"
    if plain in _RANDOM:
        return "random"
    if plain in _COPIES:
        return "copy"
    return "reduction" if plain in _REDUCTIONS else "pointwise"


def _read_bytes(
    name: str,
    func: Any,
    inputs: list[torch.Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    written: float,
) -> float:
    if name in _GATHERS:
        return written + bytes_of(t for t in inputs if not t.is_floating_point())
    if name in ("copy_", "fill_", "zero_", "uniform_", "normal_", "random_", "bernoulli_"):
        overwritten = {id(tensor) for _, tensor in _written(func, args, kwargs)}
        inputs = [t for t in inputs if id(t) not in overwritten]
    return float(bytes_of(inputs))


def _flops(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inputs: list[torch.Tensor],
    out: Any,
    name: str,
) -> float:
    """Two for each multiply-add of a matrix product or convolution, one for each element elsewhere."""
    counter = flop_registry.get(func._overloadpacket)
    if counter is not None:
        return float(counter(*args, **kwargs, out_val=out))
    if kind_of(name) == "attention" and len(inputs) >= 3:
        *batch, queries, width = inputs[0].shape
        keys, value_width = inputs[1].shape[-2], inputs[2].shape[-1]
        flops = 2.0 * queries * keys * (width + value_width)
        for n in batch:
            flops *= n
        return flops / 2 if _is_causal(func, args, kwargs) else flops
    return float(max((t.numel() for t in [*inputs, *_tensors(out)]), default=0))


def _is_causal(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    for i, argument in enumerate(func._schema.arguments):
        if argument.name == "is_causal":
            return bool(args[i] if i < len(args) else kwargs.get("is_causal", False))
    return False


def _dtype_of(inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> str:
    for tensor in [*inputs, *outputs]:
        if tensor.is_floating_point():
            return str(tensor.dtype).removeprefix("torch.")
    return str(outputs[0].dtype).removeprefix("torch.") if outputs else "float32"
