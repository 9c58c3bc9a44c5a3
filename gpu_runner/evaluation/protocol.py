"""What the judge and a player say to each other: one request, one answer, every field bounded and checked.

Values that are no tensors cross in a small typed JSON encoding; tensors cross in lent buffers, and a
`{"tensor": i}` in the encoding says where one belongs. Nothing is ever pickled. Each request carries a
nonce that its answer must repeat, so that a line which a candidate writes into the pipe is a forgery.

The exchange is: `Load`, then for the reference `Describe` (it makes the inputs), `Construct`, `Export`
(inputs or state into a buffer), `Adopt` (input sets out of buffers), `Run` any number of times, `Equip`, `Place` and `Window`
for times, `Model` (full size over untouched memory), `Compile` (for a target GPU), and `Report` (what the hook saw).
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gpu_runner.core.task_report import TensorSpec
from gpu_runner.evaluation.errors import ProtocolError

TEXT_LIMIT: Final = 4_000
DEPTH_LIMIT: Final = 12
ITEMS_LIMIT: Final = 20_000
TENSORS_LIMIT: Final = 4_096

Encoded = Any
"""A JSON value written by `encode`; read it with `decode` alone."""

Name = Annotated[str, Field(max_length=300)]
Text = Annotated[str, Field(max_length=TEXT_LIMIT)]
Count = Annotated[int, Field(ge=0, le=2**62)]
Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Placed(TensorSpec):
    """A tensor inside a lent buffer, `offset` bytes from its start; stride None means contiguous."""

    shape: tuple[Count, ...] = Field(max_length=16)
    dtype: str = Field(max_length=24)
    stride: tuple[Count, ...] | None = Field(default=None, max_length=16)
    offset: Count = 0


class Buffer(Message):
    """A lent buffer that travels beside a message as a file descriptor, and what lies in it."""

    nbytes: Count
    places: tuple[Placed, ...] = Field(max_length=TENSORS_LIMIT)


class Slabs(Message):
    """How one working input is put together: along `axis`, `cuts[i]` to `cuts[i+1]` come from set `sets[i]`."""

    axis: int = Field(ge=0, le=15)
    cuts: tuple[Count, ...] = Field(min_length=2, max_length=65)
    sets: tuple[int, ...] = Field(min_length=1, max_length=64)
    shape_values: Literal["", "extremes", "ties"] = ""
    low: float = 0.0
    high: float = 0.0


class Composition(Message):
    """The working inputs of one call: non-tensor values of set `base`, tensors from slabs of several sets."""

    base: int = Field(ge=0, le=63)
    slabs: tuple[Slabs, ...] = Field(max_length=TENSORS_LIMIT)


# Requests, from the judge


class Load(Message):
    do: Literal["load"] = "load"
    source: str = Field(max_length=256 * 1024)
    role: Literal["reference", "baseline", "candidate", "idle"]
    device: str = Field(max_length=20)
    precision: Literal["reference", "ieee", "tf32"] = "reference"
    tf32: tuple[bool, bool] | None = Field(
        default=None, description="for matmul and convolution; None: as the source leaves them"
    )
    compiled: bool = Field(default=False, description="wrap the module in torch.compile")
    target: str = Field(
        default="h200", max_length=40, description="the GPU that a CPU stands in for"
    )


class Describe(Message):
    """Reference only: `get_init_inputs` once and `get_inputs` `sets` times, each under a seed of its own."""

    do: Literal["describe"] = "describe"
    seeds: tuple[int, ...] = Field(min_length=1, max_length=64)


class Construct(Message):
    """Build the module under `seed`; with `state`, load it by name and shape from the buffer that comes along."""

    do: Literal["construct"] = "construct"
    seed: int
    init: Encoded
    init_buffer: Buffer | None = None
    state: Buffer | None = None
    names: tuple[Name, ...] = Field(default=(), description="of the tensors in `state`")


class Export(Message):
    """Reference only: copy an input set (or the init tensors, or the state) into the buffer that comes along."""

    do: Literal["export"] = "export"
    what: Literal["inputs", "init", "state"]
    index: int = 0
    buffer: Buffer


class Adopt(Message):
    """The input sets of the task, read only, one buffer each."""

    do: Literal["adopt"] = "adopt"
    trees: tuple[Encoded, ...] = Field(min_length=1, max_length=64)
    buffers: tuple[Buffer, ...] = Field(min_length=1, max_length=64)


class Run(Message):
    """One call over freshly composed inputs, from fresh weights if `fresh`.

    With buffers, outputs (and working inputs and buffers of the module as they are after the call) are copied
    into them when their places fit exactly; a misfit is told by the answer's own places.
    """

    do: Literal["run"] = "run"
    composition: Composition
    is_double: bool = Field(
        default=False, description="the reference in float64; never for candidates"
    )
    fresh: bool = False
    poison: Literal["", "nan", "number"] = Field(
        default="", description="what fresh memory is filled with; empty: as it comes"
    )
    watched: bool = Field(default=True, description="operations are counted in this call")
    backwards: bool = Field(default=False, description="programs last to first, if interpreted")
    noop: bool = Field(default=False, description="own kernels do nothing in this call")
    blind: bool = Field(
        default=False,
        description="the host is told the numbers that it read in the call before, not this one's",
    )
    audit: bool = Field(default=False, description="operations also counted below the dispatcher")
    outputs: Buffer | None = None
    after: Buffer | None = Field(default=None, description="for the working inputs after the call")
    buffers: Buffer | None = Field(
        default=None, description="for the module's buffers after the call"
    )
    buffer_names: tuple[Name, ...] = Field(default=(), max_length=TENSORS_LIMIT)
    previous: Buffer | None = Field(
        default=None, description="for the outputs of the call before, as they are now"
    )


class Equip(Message):
    """Adopt what windows need, by two descriptors: the gate's buffer and the room for one call's outputs."""

    do: Literal["equip"] = "equip"
    gate_bytes: Count
    outputs: Buffer


class Place(Message):
    """Move all working buffers to fresh addresses."""

    do: Literal["place"] = "place"
    seed: int


class Window(Message):
    """Call once per composition behind the gate; answered twice, by `Enqueued` and, the gate open, by `Timed`."""

    do: Literal["window"] = "window"
    compositions: tuple[Composition, ...] = Field(min_length=1, max_length=2_000)
    ticket: Count
    sampled: int = Field(description="which call's outputs are copied into the room for them")


class HostWindow(Message):
    """Call once per composition, one at a time, timed by the host's clock from call to synchronise."""

    do: Literal["host_window"] = "host_window"
    compositions: tuple[Composition, ...] = Field(min_length=1, max_length=2_000)


class Model(Message):
    """Launches and operations of one call at full size over untouched memory, for modelled speed.

    The reference makes its own inputs and constructor arguments; others get them, tensors by their places alone.
    """

    do: Literal["model"] = "model"
    seed: int
    init: Encoded = None
    init_places: tuple[Placed, ...] = Field(default=(), max_length=TENSORS_LIMIT)
    inputs: Encoded = None
    places: tuple[Placed, ...] = Field(default=(), max_length=TENSORS_LIMIT)


class Compile(Message):
    """Compile for a GPU, which need not be here, what one call at full size launches; fields as in `Model`."""

    do: Literal["compile"] = "compile"
    target: str = Field(max_length=40)
    seed: int
    init: Encoded
    init_places: tuple[Placed, ...] = Field(default=(), max_length=TENSORS_LIMIT)
    inputs: Encoded
    places: tuple[Placed, ...] = Field(default=(), max_length=TENSORS_LIMIT)


class Report(Message):
    do: Literal["report"] = "report"


Request = (
    Load
    | Describe
    | Construct
    | Export
    | Adopt
    | Run
    | Equip
    | Place
    | Window
    | HostWindow
    | Model
    | Compile
    | Report
)


# Answers, from a player: claims, all of them


class Accusation(Message):
    """Something the hook saw. `what` is an audit event or the name of a protected attribute."""

    what: Name
    kind: Literal["tampering", "uses_reference", "deferred_work", "torch_computes"]
    detail: Text
    line: int | None = Field(default=None, ge=1, le=100_000)


class Failed(Message):
    """The submitted code raised; `line` is the innermost of its own lines."""

    status: Literal["failed"] = "failed"
    where: Literal["load", "describe", "construct", "call", "compile"]
    error: Name
    message: Text
    line: int | None = Field(default=None, ge=1, le=100_000)
    trace: Text = ""
    kernel: Name | None = None
    cause: Literal[
        "own", "no_entry", "unsupported", "out_of_memory", "compile", "launch", "device"
    ] = "own"
    accusations: tuple[Accusation, ...] = Field(default=(), max_length=100)


class Loaded(Message):
    status: Literal["loaded"] = "loaded"
    has_init_inputs: bool = False
    has_function: bool = False
    options: dict[Name, Encoded] = Field(
        default={}, max_length=20, description="TOLERANCE, PRECISION, INPLACE"
    )
    matmul_tf32: bool = False
    conv_tf32: bool = False
    kernels: tuple[Name, ...] = Field(default=(), max_length=500, description="own kernels defined")
    seconds: Seconds = 0


class Described(Message):
    status: Literal["described"] = "described"
    init: Encoded
    init_buffer: Buffer
    trees: tuple[Encoded, ...] = Field(max_length=64)
    buffers: tuple[Buffer, ...] = Field(max_length=64)


class Constructed(Message):
    status: Literal["constructed"] = "constructed"
    names: tuple[Name, ...] = Field(default=(), max_length=TENSORS_LIMIT)
    state: Buffer
    parameters: Count = 0
    is_buffer: tuple[bool, ...] = Field(default=(), max_length=TENSORS_LIMIT)
    loaded: tuple[Name, ...] = Field(default=(), max_length=TENSORS_LIMIT)
    missing: tuple[Name, ...] = Field(
        default=(), max_length=TENSORS_LIMIT, description="own, without counterpart"
    )
    unexpected: tuple[Name, ...] = Field(
        default=(), max_length=TENSORS_LIMIT, description="the reference's alone"
    )
    training: bool = True
    seconds: Seconds = 0


class Stored(Message):
    status: Literal["stored"] = "stored"


class Operation(Message):
    """One kind of dispatched operation of one call, with what is known about where its result goes."""

    name: Name
    group: Literal[
        "allocation", "view", "copy", "cast", "compute", "integer", "library", "random", "host"
    ]
    calls: Count
    elements: Count = 0
    nbytes: Count = 0
    reaches_output: bool = False
    from_inputs: bool = False
    line: int | None = Field(default=None, ge=1, le=100_000)
    hidden: bool = Field(default=False, description="seen below the dispatcher only")
    by_host: bool = Field(
        default=False, description="reaches the output by a few numbers only that the host reads"
    )
    is_stale: bool = Field(default=False, description="reads what an earlier call left")


class Launch(Message):
    """One launch of a kernel; `own` when the kernel was written in the candidate's source."""

    kernel: Name
    grid: tuple[int, ...] = Field(max_length=3)
    own: bool = True
    line: int | None = Field(default=None, ge=1, le=100_000)
    args: dict[str, Any] = Field(default={}, max_length=300)


class Touch(Message):
    """One line of one kernel that accesses an input or output ("input 0"), whose argument is `tensor` there."""

    name: Name
    access: Name
    kernel: Name
    line: int | None = Field(default=None, ge=1, le=100_000)
    tensor: Name = ""
    unread: Text = Field(default="", description="where elements lie that no kernel reads")
    is_masked: bool = Field(default=False, description="some store to it left lanes out")


class Ran(Message):
    status: Literal["ran"] = "ran"
    tree: Encoded
    outputs: Buffer
    devices: tuple[Name, ...] = Field(default=(), max_length=TENSORS_LIMIT)
    stored: tuple[Name, ...] = Field(
        default=(), max_length=8, description="which of the given buffers were filled"
    )
    operations: tuple[Operation, ...] = Field(default=(), max_length=1_000)
    sourceless: tuple[Count, ...] = Field(
        default=(),
        max_length=TENSORS_LIMIT,
        description="outputs that hold nothing of which is known that it stems from an input",
    )
    launches: tuple[Launch, ...] = Field(default=(), max_length=2_000)
    launch_count: Count = 0
    computes: dict[Name, tuple[Name, ...]] = Field(
        default={}, max_length=500, description="what interpreted kernels did to blocks, by name"
    )
    memory: tuple[dict[str, Any], ...] = Field(
        default=(), max_length=200, description="interpreter findings"
    )
    unwritten: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        default=(), max_length=TENSORS_LIMIT, description="share of each output's elements"
    )
    touched: tuple[Touch, ...] = Field(default=(), max_length=400)
    unevaluable: Text = ""
    narrowest: str = Field(
        default="",
        max_length=24,
        description="coarsest floating-point type of any operation's result",
    )
    unreadable: Text = Field(default="", description="what in the answer cannot cross")
    lazy_outputs: tuple[Name, ...] = Field(
        default=(), max_length=50, description="types of outputs that are no plain tensors"
    )
    relaid: tuple[Count, ...] = Field(
        default=(),
        max_length=TENSORS_LIMIT,
        description="inputs that the call gave another shape, layout or memory",
    )
    threads: Count = 0
    seconds: Seconds = 0


class Enqueued(Message):
    status: Literal["enqueued"] = "enqueued"


class Timed(Message):
    """Microseconds per call, in order; with the first window, what a call takes of the device's memory."""

    status: Literal["timed"] = "timed"
    times_us: tuple[Annotated[float, Field(gt=0, lt=1e12, allow_inf_nan=False)], ...] = Field(
        max_length=2_000
    )
    peak_bytes: Count | None = None


class Modelled(Message):
    status: Literal["modelled"] = "modelled"
    launches: tuple[dict[str, Any], ...] = Field(default=(), max_length=2_000)
    operations: tuple[dict[str, Any], ...] = Field(default=(), max_length=5_000)
    seen: tuple[Operation, ...] = Field(
        default=(), max_length=1_000, description="torch's operations as in `Ran`, of a candidate"
    )
    outputs: tuple[Placed, ...] = Field(default=(), max_length=TENSORS_LIMIT)
    memory: tuple[dict[str, Any], ...] = Field(
        default=(), max_length=200, description="interpreter findings"
    )
    init: Encoded = None
    init_places: tuple[Placed, ...] = Field(default=(), max_length=TENSORS_LIMIT)
    inputs: Encoded = None
    places: tuple[Placed, ...] = Field(default=(), max_length=TENSORS_LIMIT)
    seconds: Seconds = 0


class CompiledAll(Message):
    status: Literal["compiled"] = "compiled"
    kernels: tuple[dict[str, Any], ...] = Field(default=(), max_length=500)
    seconds: Seconds = 0


class Reported(Message):
    status: Literal["reported"] = "reported"
    accusations: tuple[Accusation, ...] = Field(default=(), max_length=100)
    matmul_tf32: bool = False
    conv_tf32: bool = False
    seconds: Seconds = 0


Answer = (
    Failed
    | Loaded
    | Described
    | Constructed
    | Stored
    | Ran
    | Enqueued
    | Timed
    | Modelled
    | CompiledAll
    | Reported
)

_requests: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="do")])
_answers: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="status")])
_A = TypeVar("_A", bound=Message)


def request_from(message: Mapping[str, Any]) -> tuple[str, Request]:
    """The nonce and the request of a message. Raises ProtocolError."""
    return _split(message, _requests)


def answer_from(message: Mapping[str, Any], nonce: str, kind: type[_A]) -> _A | Failed:
    """A player's answer to the request with that nonce: of that kind, or how its code failed.

    Raises ProtocolError for anything else, a right answer with a wrong nonce included.
    """
    echoed, answer = _split(message, _answers)
    if echoed != nonce:
        raise ProtocolError("an answer to a question that was not asked")
    if not isinstance(answer, kind | Failed):
        raise ProtocolError(f"expected {kind.__name__}, got {type(answer).__name__}")
    return answer


def message_of(nonce: str, body: Message) -> dict[str, Any]:
    return {"nonce": nonce, "body": body.model_dump(mode="json")}


def _split(message: Mapping[str, Any], adapter: TypeAdapter[Any]) -> tuple[str, Any]:
    nonce = message.get("nonce")
    if not isinstance(nonce, str) or len(nonce) > 64:
        raise ProtocolError("a message without a nonce")
    try:
        return nonce, adapter.validate_python(message.get("body"))
    except (ValidationError, RecursionError) as error:
        raise ProtocolError(f"a message that does not fit: {str(error)[:500]}") from error


# The typed encoding of values that are no tensors


class Unencodable(ValueError):
    """The value cannot cross; the message names its type and where it stands."""


class _Budget:
    def __init__(self) -> None:
        self.left = ITEMS_LIMIT

    def spend(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0 or depth > DEPTH_LIMIT:
            raise Unencodable("the value is too large or too deeply nested to cross")


def encode(value: Any, tensors: list[Any] | None = None) -> Encoded:
    """Write a value as typed JSON; tensors are appended to `tensors` and replaced by their position.

    None, bool, int, float, str, list, tuple, dict, torch dtype, size and device are known, by their types' names:
    this module does not import torch. Raises Unencodable for anything else.
    """
    return _encode(value, tensors, 0, _Budget())


def _encode(value: Any, tensors: list[Any] | None, depth: int, budget: _Budget) -> Encoded:
    budget.spend(depth)
    if value is None or isinstance(value, bool):
        return value
    kind = type(value)
    if kind is int:
        return {"int": str(value)} if value.bit_length() < 4_096 else _refuse(value)
    if kind is float:
        return {"float": value.hex() if math.isfinite(value) else repr(value)}
    if kind is str:
        return {"str": value} if len(value) <= 65_536 else _refuse(value)
    if kind in (list, tuple) or (kind.__module__ == "torch" and kind.__name__ == "Size"):
        items = [_encode(item, tensors, depth + 1, budget) for item in value]
        return {kind.__name__.lower(): items}
    if isinstance(value, tuple) and (
        hasattr(value, "_fields") or kind.__module__ == "torch.return_types"
    ):  # a named tuple: the values count
        return {"tuple": [_encode(item, tensors, depth + 1, budget) for item in value]}
    if isinstance(value, dict):
        pairs = [
            [_encode(key, None, depth + 1, budget), _encode(item, tensors, depth + 1, budget)]
            for key, item in value.items()
        ]
        return {"dict": pairs}
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
        return {kind.__name__: str(value).removeprefix("torch.")}
    if tensors is not None and hasattr(value, "data_ptr") and hasattr(value, "stride"):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    return _refuse(value)


def _refuse(value: Any) -> Encoded:
    raise Unencodable(
        f"a value of type {type(value).__module__}.{type(value).__qualname__} cannot cross"
    )


def decode(encoded: Encoded, tensors: list[Any] | None = None, torch: Any = None) -> Any:
    """Read what `encode` wrote. `torch` is the module, needed for dtypes, sizes and devices only.

    Raises ProtocolError for anything `encode` would not write.
    """
    try:
        return _decode(encoded, tensors or [], torch, 0, _Budget())
    except (Unencodable, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ProtocolError(f"an unreadable value: {str(error)[:200]}") from error


def _decode(encoded: Encoded, tensors: list[Any], torch: Any, depth: int, budget: _Budget) -> Any:
    budget.spend(depth)
    if encoded is None or isinstance(encoded, bool):
        return encoded
    ((tag, body),) = encoded.items()
    if tag == "int":
        return int(body)
    if tag == "float":
        return float.fromhex(body)
    if tag == "str":
        return str(body)
    if tag == "tensor":
        return tensors[_position(body)]
    if tag == "dtype":
        return _dtype(torch, body)
    if tag == "device":
        return torch.device(body)
    if tag == "dict":
        return {
            _decode(key, [], torch, depth + 1, budget): _decode(
                item, tensors, torch, depth + 1, budget
            )
            for key, item in body
        }
    items = [_decode(item, tensors, torch, depth + 1, budget) for item in body]
    if tag == "size":
        return torch.Size(items)
    return items if tag == "list" else _tuple(tag, items)


def _tuple(tag: str, items: list[Any]) -> tuple[Any, ...]:
    if tag != "tuple":
        raise ValueError(f"unknown tag {tag[:20]!r}")
    return tuple(items)


def _position(body: Any) -> int:
    if not isinstance(body, int) or body < 0:
        raise ValueError(f"{body!r} is no position")
    return body


def _dtype(torch: Any, name: str) -> Any:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no dtype")
    return dtype
