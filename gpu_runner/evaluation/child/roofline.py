"""Modelled time of a call on a named GPU: the sum over its own kernels and its torch operations.

Every time is in microseconds and modelled, never measured. A kernel or an operation costs

    launch + (dram^4 + l2^4 + dot^4 + alu^4) ^ (1/4) + exposed

the largest of four times, with the next largest felt a little where they are close. For an own kernel:

- dram: bytes that reach DRAM / (bandwidth * copy_fraction * parallelism). Each argument's memory is read at least once
  as far as it is touched; what arguments share counts once. What a program reads again comes from L2 if the stretches
  of all resident programs fit into 60 % of it; what others read again, as far as the tensors do, else at most once per
  wave of resident blocks.
  Uncoalesced access multiplies by sector bytes / wanted bytes.
- parallelism: bytes in flight over all resident blocks / (bandwidth * latency), at most 1 (Little's law): few blocks,
  few warps, small tiles and no pipelining leave the memory idle.
- l2: all sectors requested, and spilled registers twice (again in loops), / (l2_bandwidth * 0.8).
- dot: operations of `tl.dot` / (peak of its numeric path * efficiency). A dot's fixed cost of 100 cycles, shared by at
  most three resident blocks, makes small tiles inefficient; fewer than four warps leave tensor cores idle.
- alu: float operations, a quarter of the integer ones, special functions, atomics; two floating-point operations an FMA.
- dot and alu are stretched by the tail: the busiest SM's blocks / the mean (ceil(blocks / SMs) * SMs / blocks).
- exposed: in kernels with dots, what neither pipelining (num_stages) nor other resident blocks hide.
- blocks resident on an SM: the least that registers, shared memory, warps and the block limit allow.

For a torch operation: one launch; bytes of inputs (times its passes over them) and outputs / bandwidth; operations / the
peak of its numeric path, times what libraries reach (`_LIBRARY`). Tensor cores count for float32 only where the
precision says so. The same function serves the reference and what a candidate leaves to libraries.

Source: Williams, Waterman and Patterson (2009) for the roofline; the derating is ours, its constants chosen so that
rankings hold that are known from measurements (tests/evaluation/test_roofline.py states them).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gpu_runner.core.targets import Target
from gpu_runner.evaluation.child.counting import Counts, Operation, TensorTraffic

LATENCY_S = 0.55e-6
"""From a load to its data, out of DRAM."""

BLOCK_START_S, WARP_START_S = 0.4e-6, 0.02e-6
"""To start a block and to drain it: fixed, and for each of its warps."""

DOT_OVERHEAD_CYCLES = 100.0
_L2_SHARE = 0.6
_L2_REACHED = 0.8
_ALU_REACHED = 0.7
_DOT_REACHED = 0.95
_IEEE_DOT_REACHED = 0.72
_TF32X3_REACHED = 0.45
_SLOW_ORDER = {
    "tf32 kn": 3.7,
    "tf32 mk": 3.7,
    "tf32 mn": 3.7,
    "tf32 rn": 3.7,
    "tf32x3 kn": 2.1,
    "tf32x3 rn": 2.1,
    "ieee kk": 3.2,
    "ieee mk": 3.2,
    "ieee rk": 3.2,
}
"""How much longer a dot takes when its operands lie across the order that its instructions read: TF32 wants both
contiguous along K, ordinary arithmetic the right one along N. Measured on an H200; 16-bit types take either order."""

_SHARPNESS = 4.0
_WITHOUT_WARP_GROUP = 0.6
"""Of the tensor cores' peak, where a block has fewer than the four warps that issue the wide instructions."""
_UNHIDDEN = {1: 0.8, 2: 0.2}
_VECTOR_BYTES = 16
_OUTSTANDING = 4
_ATOMICS_PER_S_AND_SM = 1.0e9

_LIBRARY = {"matmul": 1.0, "convolution": 0.40, "attention": 0.36}
"""Of what a large matrix product reaches on the same path."""

_LIBRARY_IEEE = 0.75
_PASSES = {
    "native_group_norm": 2.0,
    "native_batch_norm": 2.0,
    "_native_batch_norm_legit": 2.0,
    "_batch_norm_with_update": 2.0,
    "var": 1.5,
    "var_mean": 1.5,
    "std": 1.5,
}
"""How often eager PyTorch's kernel reads its input, where not once."""

_STREAMING = {"pointwise": 1.0, "copy": 1.0, "random": 0.9, "reduction": 0.72}
"""Share of a copy's bandwidth that eager kernels of a kind reach; measured on an H200 at sizes that fill it."""

_SLOW_STREAMING = {
    "avg_pool2d": 0.25,
    "avg_pool3d": 0.25,
    "max_pool2d_with_indices": 0.45,
    "max_pool3d_with_indices": 0.35,
    "cumsum": 0.35,
    "cumprod": 0.35,
    "native_layer_norm": 0.62,
    "native_group_norm": 0.42,
    "native_batch_norm": 0.25,
    "_native_batch_norm_legit": 0.25,
    "_softmax": 0.6,
    "_log_softmax": 0.55,
    "argmax": 0.5,
    "argmin": 0.5,
}


@dataclass(frozen=True)
class Part:
    """One kernel or operation of a modelled call. `bound` names the largest of its times."""

    name: str
    kind: str  # "kernel" or the kind of the operation
    us: float
    launch_us: float
    dram_us: float
    l2_us: float = 0.0
    dot_us: float = 0.0
    alu_us: float = 0.0
    bound: str = "dram"
    dram_bytes: float = 0.0
    minimum_bytes: float = 0.0
    flops: float = 0.0
    blocks_per_sm: int = 0
    occupancy: float = 0.0  # resident warps / the most that an SM holds
    limiter: str = ""  # what limits it: "registers", "shared memory", "warps" or "blocks"
    waves: float = 0.0
    tail: float = 1.0
    parallelism: float = 1.0
    bytes_per_wanted_byte: float = 1.0
    line: int | None = None
    grid: int = 0
    flops_a_dot: float = 0.0
    dot_efficiency: float = 1.0  # of the matrix units' peak
    requested_bytes: float = 0.0  # from L2, spills left out
    spread_tensor: str = ""  # the argument whose accesses move the most bytes in vain
    spread_line: int | None = None
    reread_tensor: str = ""  # the argument that is loaded more often than once
    reread_line: int | None = None  # where it is loaded last
    reread_times: float = 1.0


@dataclass(frozen=True)
class ModelledCall:
    """The modelled time of one call, and where it goes."""

    us: float
    parts: list[Part] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {"us": self.us, "parts": [asdict(part) for part in self.parts]}


def modelled_us(
    launches: Sequence[Any],
    operations: Sequence[Any],
    compiled: Sequence[Any],
    target: Target,
    *,
    matmul: str = "ieee",
    convolution: str = "tf32",
) -> ModelledCall:
    """The modelled time of a call.

    Args:
        launches: `Launch`es of a full-size session, or what their `as_json` gave.
        operations: `Operation`s of the same session, or their JSON.
        compiled: `CompiledKernel`s for the same target, or their JSON; a launch without one is taken to need
            64 registers and no shared memory.
        matmul: how float32 matrix products of torch compute, "ieee" or "tf32".
        convolution: the same for convolutions.
    """
    launches_ = [_json(launch) for launch in launches]
    compiled_ = [_json(kernel) for kernel in compiled]
    float32 = {"matmul": matmul, "convolution": convolution, "attention": matmul}
    parts = [
        kernel_part(launch, _compiled_for(launch, compiled_), target)
        for launch in launches_
        if not launch["is_noop"]
    ]
    for operation in operations:
        read = (
            operation if isinstance(operation, Operation) else Operation.from_json(_json(operation))
        )
        part = operation_part(read, target, float32)
        if part is not None:
            parts.append(part)
    return ModelledCall(us=sum(part.us for part in parts), parts=parts)


def _json(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else value.as_json()


def _compiled_for(
    launch: dict[str, Any], compiled: Sequence[dict[str, Any]]
) -> dict[str, Any] | None:
    """The compiled kernel of the launch: same name and constants, else same name."""
    named = [k for k in compiled if k["kernel"] == launch["kernel"] and not k.get("failure")]
    constants = {name: str(value) for name, value in launch["constexprs"].items()}
    options = launch["options"]
    for kernel in named:
        same = {name: str(value) for name, value in kernel["constexprs"].items()} == constants
        if same and options.get("num_warps", kernel["num_warps"]) == kernel["num_warps"]:
            return kernel
    return next((k for k in named if k.get("is_chosen")), named[0] if named else None)


# --------------------------------------------------------------------------------------------------------------------
# Own kernels


@dataclass(frozen=True)
class Residency:
    """How many blocks an SM holds at once, and why not more."""

    blocks_per_sm: int
    warps: int
    occupancy: float
    limiter: str


def residency(target: Target, *, num_warps: int, registers: int, shared_bytes: int) -> Residency:
    """Blocks that fit on one SM; at least 1. Registers are given out in units of 8 a thread, 1 KiB of shared memory
    is the system's."""
    threads = num_warps * target.warp_size
    rounded = max(8, -(-registers // 8) * 8)
    limits = {
        "registers": target.registers_per_sm // (rounded * threads),
        "shared memory": target.shared_per_sm // (shared_bytes + 1024)
        if shared_bytes
        else target.blocks_per_sm + 1,
        "warps": target.warps_per_sm // num_warps,
        "blocks": target.blocks_per_sm,
    }
    limiter = min(limits, key=lambda name: limits[name])
    blocks = max(1, limits[limiter])
    warps = blocks * num_warps
    return Residency(blocks, warps, min(1.0, warps / target.warps_per_sm), limiter)


def kernel_part(launch: dict[str, Any], compiled: dict[str, Any] | None, target: Target) -> Part:
    """The modelled time of one launch of an own kernel."""
    counts = Counts.from_json(launch["counts"])
    gx, gy, gz = launch["grid"]
    blocks = max(1, gx * gy * gz)
    options = launch["options"]
    kernel = compiled or {}
    num_warps = int(kernel.get("num_warps") or options.get("num_warps") or 4)
    stages = int(kernel.get("num_stages") or options.get("num_stages") or 3)
    held = residency(
        target,
        num_warps=num_warps,
        registers=int(kernel.get("registers") or 64),
        shared_bytes=int(kernel.get("shared_bytes") or 0),
    )
    concurrent = min(blocks, held.blocks_per_sm * target.sms)
    waves = blocks / (held.blocks_per_sm * target.sms)
    tail = math.ceil(blocks / target.sms) * target.sms / blocks
    spread = counts.bytes_per_wanted_byte
    dram_bytes, minimum = dram_traffic(counts, blocks, concurrent, target)
    parallelism = _parallelism(counts, num_warps, stages, concurrent, target)
    rounds = max(1.0, counts.loads / max(1.0, counts.programs))
    dram = dram_bytes / (target.bandwidth * target.copy_fraction * parallelism)
    spilled = _spilled(kernel, rounds) * num_warps * target.warp_size * blocks
    requested = sum((t.loaded + t.stored) * t.spread for t in counts.tensors.values())
    requested += 2 * counts.atomic_bytes
    l2 = (requested + spilled) / (target.l2_bandwidth * _L2_REACHED)
    dot = _dot_seconds(counts, num_warps, held, target) * tail
    alu = _alu_seconds(counts, target, num_warps, held) * tail
    start = max(1.0, waves / min(held.blocks_per_sm, 4))
    start *= BLOCK_START_S + num_warps * WARP_START_S
    times = {"dram": dram, "l2": l2, "dot": dot, "alu": alu}
    busy = _joined(times) + _exposed(times, counts, stages, held)
    return Part(
        name=launch["kernel"],
        kind="kernel",
        us=target.launch_us + 1e6 * (busy + start),
        launch_us=target.launch_us + 1e6 * start,
        dram_us=1e6 * dram,
        l2_us=1e6 * l2,
        dot_us=1e6 * dot,
        alu_us=1e6 * alu,
        bound=_bound(times, target.launch_us * 1e-6 + start),
        dram_bytes=dram_bytes,
        minimum_bytes=minimum,
        flops=counts.flops + counts.special + counts.dot_flops,
        blocks_per_sm=held.blocks_per_sm,
        occupancy=held.occupancy * min(1.0, blocks / (held.blocks_per_sm * target.sms)),
        limiter=held.limiter if waves >= 1 else "grid",
        waves=waves,
        tail=tail,
        parallelism=parallelism,
        bytes_per_wanted_byte=spread,
        line=launch.get("line"),
        grid=blocks,
        flops_a_dot=counts.dot_flops / max(1.0, counts.dot_calls),
        dot_efficiency=_dot_efficiency(counts, dot / tail, target),
        requested_bytes=requested,
        **_most_spread(counts),
        **_most_reread(counts),
    )


def _spilled(compiled: Mapping[str, Any], rounds: float) -> float:
    """Bytes that a thread stores and loads for want of registers.

    Args:
        rounds: loads of a program.
    """
    once = float(compiled.get("spill_bytes") or 0)
    in_loops = float(compiled.get("spill_bytes_in_loops", once))
    return 2.0 * (once + in_loops * (max(1.0, rounds / 4) - 1.0))


def _most_spread(counts: Counts) -> dict[str, Any]:
    """Which argument's accesses, at which line, move the most bytes that nobody asked for."""
    wasted = [
        (moved - wanted, name, int(line))
        for name, tensor in counts.tensors.items()
        for line, (_, wanted, moved) in tensor.lines.items()
    ]
    most, name, line = max(wasted, default=(0.0, "", 0))
    return {"spread_tensor": name, "spread_line": line or None} if most > 0 else {}


def _most_reread(counts: Counts) -> dict[str, Any]:
    """Which argument is loaded more often than its size, how often, and the last line that does."""
    again = [
        (tensor.loaded - tensor.memory_bytes, name, tensor)
        for name, tensor in counts.tensors.items()
        if tensor.memory_bytes and tensor.loaded > 1.1 * tensor.memory_bytes
    ]
    if not again:
        return {}
    _, name, tensor = max(again, key=lambda one: one[:2])
    lines = [int(line) for line, (loaded, _, _) in tensor.lines.items() if loaded]
    return {
        "reread_tensor": name,
        "reread_line": max(lines, default=0) or None,
        "reread_times": tensor.loaded / tensor.memory_bytes,
    }


def _dot_efficiency(counts: Counts, dot_s: float, target: Target) -> float:
    """The least time at which the matrix units could do the products / their modelled time."""
    if not dot_s:
        return 1.0
    least = sum(flops / _peak(path, target)[0] for path, flops in counts.dots.items())
    return min(1.0, least / dot_s)


def _joined(times: Mapping[str, float]) -> float:
    return sum(t**_SHARPNESS for t in times.values()) ** (1 / _SHARPNESS)


def _exposed(times: Mapping[str, float], counts: Counts, stages: int, held: Residency) -> float:
    """What does not overlap within one block of a kernel with dots; other resident blocks hide their share of it.

    Without pipelining (one stage) most of the shorter of memory and dot time; and always most of the shorter of dot and
    ordinary arithmetic, since each waits for the other's result.
    """
    if not counts.dot_calls:
        return 0.0
    memory = max(times["dram"], times["l2"])
    unhidden = _UNHIDDEN.get(stages, 0.0) * min(memory, times["dot"]) / held.blocks_per_sm
    return unhidden + 0.8 * min(times["dot"], times["alu"])


def _bound(times: Mapping[str, float], launch_s: float) -> str:
    largest = max(times, key=lambda name: times[name])
    return largest if times[largest] > launch_s else "launch"


def dram_traffic(
    counts: Counts, blocks: int, concurrent: int, target: Target
) -> tuple[float, float]:
    """(bytes that reach DRAM, bytes that would if everything were read once, coalesced).

    Args:
        blocks: programs of the launch.
        concurrent: how many of them are resident at once.
    """
    l2 = _L2_SHARE * target.l2_bytes
    waves = max(1.0, blocks / concurrent)
    resident = concurrent * sum(
        min(t.footprint, (t.loaded + t.stored) / blocks) for t in counts.tensors.values()
    )
    lost = 1.0 - min(1.0, l2 / resident) if resident else 0.0
    memories: dict[str, list[TensorTraffic]] = {}
    for tensor in counts.tensors.values():
        memories.setdefault(tensor.memory, []).append(tensor)
    requested = {
        memory: sum(t.loaded * t.spread * _fetched_share(t, blocks, lost) for t in tensors)
        for memory, tensors in memories.items()
    }
    sizes = {memory: float(tensors[0].memory_bytes) for memory, tensors in memories.items()}
    working_set = sum(size for memory, size in sizes.items() if requested[memory] > size)
    misses = 1.0 - min(1.0, l2 / working_set) if working_set else 0.0
    total = minimum = counts.atomic_bytes
    for memory, tensors in memories.items():
        size = sizes[memory]
        written = sum(t.stored * max(1.0, t.spread) for t in tensors)
        total += _reaching_dram(requested[memory], size, waves, misses)
        total += _reaching_dram(written, size, waves, misses)
        minimum += min(sum(t.loaded * min(1.0, t.spread) for t in tensors), size)
        minimum += min(sum(t.stored for t in tensors), size)
    return total, minimum


def _fetched_share(tensor: TensorTraffic, blocks: int, lost: float) -> float:
    """Of what programs load, the share that they do not find in L2 from an earlier pass over their own stretch.

    Args:
        lost: share of a stretch that has left L2 before it is read again.
    """
    times = tensor.loaded / blocks / tensor.footprint if tensor.footprint else 1.0
    return (1.0 + (times - 1.0) * lost) / times if times > 1.0 else 1.0


def _reaching_dram(requested: float, memory: float, waves: float, misses: float) -> float:
    """Everything once; what is asked for again, as far as L2 misses it, at most once per wave of blocks."""
    once = min(requested, memory)
    again = max(0.0, min(requested, max(1.0, waves) * memory) - once)
    return once + again * misses


def _parallelism(
    counts: Counts, num_warps: int, stages: int, concurrent: int, target: Target
) -> float:
    """Bytes in flight / bytes that must be in flight to keep DRAM busy, at most 1."""
    moved = counts.load_bytes or counts.store_bytes
    rounds = max(1.0, counts.loads / max(1.0, counts.programs))
    a_round = moved * counts.bytes_per_wanted_byte / max(1.0, counts.programs) / rounds
    ahead = max(1, stages - 1) * 2 if counts.dot_calls else min(rounds, 2.0)
    most = num_warps * target.warp_size * _VECTOR_BYTES * _OUTSTANDING
    in_flight = concurrent * min(a_round * ahead, float(max(most, a_round)))
    needed = target.bandwidth * LATENCY_S
    return min(1.0, max(0.01, in_flight / needed))


def _dot_seconds(counts: Counts, num_warps: int, held: Residency, target: Target) -> float:
    seconds = 0.0
    calls = max(1.0, counts.dot_calls)
    a_call = counts.dot_flops / calls
    for order, flops in counts.dot_orders.items():
        path = order.partition(" ")[0]
        peak, reached = _peak(path, target)
        per_cycle = peak / (target.sms * target.clock_hz)
        cycles = a_call / per_cycle
        overhead = DOT_OVERHEAD_CYCLES / min(held.blocks_per_sm, 3)
        efficiency = reached * cycles / (cycles + overhead) * min(1.0, held.warps / 4)
        if num_warps < 4 and path != "ieee":
            efficiency *= _WITHOUT_WARP_GROUP
        seconds += flops * _SLOW_ORDER.get(order, 1.0) / (peak * efficiency)
    return seconds


def _peak(path: str, target: Target) -> tuple[float, float]:
    """(operations per second, share of them that a good own kernel reaches) of a dot's numeric path."""
    if path == "ieee":
        return target.fp32, _IEEE_DOT_REACHED
    if path == "tf32x3":
        return target.dot["tf32"] / 3, _TF32X3_REACHED
    if path in ("fp64", "fp32"):
        return target.fp64, _IEEE_DOT_REACHED
    peak = target.dot.get(path) or target.dot["fp16"]
    return peak, _DOT_REACHED * target.dot_fraction


def _alu_seconds(counts: Counts, target: Target, num_warps: int, held: Residency) -> float:
    busy = min(1.0, held.warps / 8)  # two warps a scheduler hide the latency of arithmetic
    ordinary = counts.flops + 0.25 * counts.integer_ops
    seconds = ordinary / (target.fp32 / 2 * _ALU_REACHED * busy)
    seconds += counts.special / (target.special * busy)
    return seconds + counts.atomics / (_ATOMICS_PER_S_AND_SM * target.sms)


# --------------------------------------------------------------------------------------------------------------------
# Torch operations


def operation_part(operation: Operation, target: Target, float32: Mapping[str, str]) -> Part | None:
    """The modelled time of one torch operation; None for views and allocations, which launch nothing.

    Args:
        float32: by kind ("matmul", "convolution", "attention"), how float32 operands compute: "ieee" or "tf32".
    """
    if operation.kind in ("view", "allocation"):
        return None
    moved = operation.read_bytes * _PASSES.get(operation.op, 1.0) + operation.written_bytes
    streaming = _SLOW_STREAMING.get(operation.op) or _STREAMING.get(operation.kind, 1.0)
    few = min(1.0, max(0.02, moved / (target.bandwidth * LATENCY_S)))
    dram = moved / (target.bandwidth * target.copy_fraction * streaming * max(few, 0.2))
    dot = alu = 0.0
    if operation.kind in _LIBRARY:
        dot = operation.flops / _library_rate(operation, target, float32)
    else:
        alu = operation.flops / (target.fp32 / 2 * _ALU_REACHED)
        alu += operation.special / target.special
    times = {"dram": dram, "dot": dot, "alu": alu}
    return Part(
        name=operation.op,
        kind=operation.kind,
        us=target.launch_us + 1e6 * _joined(times),
        launch_us=target.launch_us,
        dram_us=1e6 * dram,
        dot_us=1e6 * dot,
        alu_us=1e6 * alu,
        bound=_bound(times, target.launch_us * 1e-6),
        dram_bytes=moved,
        minimum_bytes=operation.read_bytes + operation.written_bytes,
        flops=operation.flops,
        line=operation.line,
    )


def _library_rate(operation: Operation, target: Target, float32: Mapping[str, str]) -> float:
    """Operations per second that a vendor's library reaches; small outputs do not fill the SMs."""
    path = {"bfloat16": "bf16", "float16": "fp16", "float64": "fp64", "int8": "int8"}.get(
        operation.dtype, operation.dtype
    )
    filled = _filled(operation, target)
    share = _LIBRARY[operation.kind] * filled
    if path == "float32":
        if float32.get(operation.kind, "ieee") == "ieee":
            return target.fp32 * _LIBRARY_IEEE * share
        path = "tf32"
    if path.startswith("float8"):
        path = "fp8"
    if operation.kind != "attention" and _is_depthwise(operation):
        return target.fp32 * 0.25 * filled
    return (target.dot.get(path) or target.fp32) * target.dot_fraction * share * _deep(operation)


def _deep(operation: Operation) -> float:
    """Share of the tensor cores' rate that a sum of this length reaches: a short one is mostly prologue and epilogue."""
    if operation.kind != "matmul" or not operation.out_shapes:
        return 1.0
    depth = operation.flops / (2.0 * max(1, math.prod(operation.out_shapes[0])))
    return min(1.0, 1.055 * depth / (depth + 220.0))


def _filled(operation: Operation, target: Target) -> float:
    """Share of SMs busy when the output is cut into tiles of 128 by 128 (64 rows where splitting helps)."""
    shape = operation.out_shapes[0] if operation.out_shapes else [1]
    if operation.kind == "convolution" and len(shape) > 2:
        rows, cols = shape[0] * math.prod(shape[2:]), shape[1]
        batch = 1
    else:
        rows, cols = (shape[-2] if len(shape) > 1 else 1), shape[-1]
        batch = math.prod(shape[:-2])
    tiles = batch * math.ceil(rows / 128) * math.ceil(cols / 128)
    used = rows * cols / (math.ceil(rows / 64) * 64 * math.ceil(cols / 64) * 64)
    busiest = math.ceil(tiles / target.sms) * target.sms
    return max(0.05, max(tiles / busiest, min(1.0, 4 * tiles / target.sms) * 0.8) * max(0.25, used))


def _is_depthwise(operation: Operation) -> bool:
    """A convolution whose weight has one input channel per group."""
    if operation.kind != "convolution" or len(operation.shapes) < 2:
        return False
    data, weight = operation.shapes[:2]
    return len(weight) > 2 and weight[1] == 1 and len(data) > 1 and data[1] > 1
