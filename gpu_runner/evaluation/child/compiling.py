"""Compile every kernel that a full-size call launches for a GPU that is not there, and read what came out.

In a process of plain Triton (no TRITON_INTERPRET), in this order:

    compiling.install(target)                          # once, before the candidate is imported
    with untouched.full_size():
        model, inputs = ModelNew(*get_init_inputs()), get_inputs()
    kernels = compiling.compile_call(lambda: model(*inputs))      # [CompiledKernel], one per kernel and configuration

A kernel that does not compile has a `failure`: {"kind": "frontend" | "backend" | "resources", "message": one line,
"detail": at most 2,000 characters, "line": in the candidate's file, ...numbers}. The exception then goes on into the
candidate's host code as it would on a GPU; where that does not catch it, the call ends there, which is no error of
`compile_call`. Any other exception of the host code is raised to the caller. Compilation takes 0.3 to 2 s a kernel and
cannot be interrupted: the caller ends the process; `on_start` tells it which kernel was being compiled.
"""

import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.errors import TritonError
from triton.runtime import autotuner
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction, get_jit_fn_file_line

from gpu_runner.core.targets import Target
from gpu_runner.evaluation.child import early_limits, stand_in, untouched
from gpu_runner.evaluation.child.disassembly import Usage, usage_of
from gpu_runner.evaluation.child.sessions import describe, plain
from gpu_runner.evaluation.child.stand_in import candidate_line

_TENSOR_MEMORY_COLUMNS = 512


@dataclass
class CompiledKernel:
    """One kernel compiled with one configuration and signature.

    `dots` lists the matrix products of its TTIR as {"dtype": of the operands, "precision": "tf32", "ieee", ...} (the
    precision matters for float32 only), `computes` which of "float", "math" (exp, log and the like), "reduce" and "dot" it
    has.
    `uses_tensor_cores` is read from the machine code. `is_chosen` marks the configuration that a launch without a
    benchmark takes: the first that fits the target.
    """

    kernel: str
    line: int | None
    target: str
    config: dict[str, Any] | None = None
    config_index: int = 0
    is_chosen: bool = True
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    shared_bytes: int = 0
    registers: int = 0
    spill_bytes: int = 0
    spill_bytes_in_loops: int = 0
    dots: list[dict[str, str]] = field(default_factory=list)
    computes: list[str] = field(default_factory=list)
    uses_tensor_cores: bool = False
    seconds: float = 0.0
    grids: list[list[int]] = field(default_factory=list)
    args: list[dict[str, Any]] = field(default_factory=list)
    constexprs: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "CompiledKernel":
        """Read what `as_json` wrote; a TypeError says that it is not that."""
        return cls(**{name: raw[name] for name in cls.__dataclass_fields__ if name in raw})


@dataclass
class _Recording:
    """What `compile_call` collects while the call runs."""

    target: Target
    most_configs: int
    deadline: float
    on_start: Callable[[str], None] | None
    kernels: list[CompiledKernel] = field(default_factory=list)
    seen: dict[Any, CompiledKernel] = field(default_factory=dict)
    raised: list[BaseException] = field(default_factory=list)
    warmed: dict[str, CompiledKernel] = field(default_factory=dict)


_FAILURES = (TritonError, RuntimeError, ValueError, TypeError, KeyError, AssertionError)
"""What the compiler raises for a kernel that it refuses."""

_target: Target | None = None
_recording: _Recording | None = None
_config: tuple[int, dict[str, Any]] | None = None
_run_jit = JITFunction.run


def install(target: Target) -> None:
    """Let this process compile for the target; call it once, before the candidate is imported.

    Raises:
        RuntimeError: Triton was imported with TRITON_INTERPRET=1, so nothing would be compiled.
    """
    global _target
    if triton.knobs.runtime.interpret:
        raise RuntimeError("a process that interprets kernels cannot compile them")
    stand_in.answer_for(target)
    triton.runtime.driver.active.utils.load_binary = _load_binary
    triton.runtime.driver.active.launcher_cls = _launcher
    if not triton.knobs.cache.dir or not _is_writable(triton.knobs.cache.dir):
        triton.knobs.cache.dir = tempfile.mkdtemp(prefix="triton-")
    if target.backend == "cuda":
        early_limits.install(target)
    _target = target
    JITFunction.run = _compile_launch
    autotuner.Autotuner.run = _compile_configs


def _is_writable(folder: str) -> bool:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def compile_call(
    call: Callable[[], object],
    *,
    most_configs: int = 4,
    seconds: float = 60.0,
    on_start: Callable[[str], None] | None = None,
) -> list[CompiledKernel]:
    """Run the call over reserved memory, compiling each launch instead of making it.

    Args:
        call: the candidate's full-size call.
        most_configs: of each autotuned kernel, how many configurations are compiled at most.
        seconds: after them, no further configuration beyond the first is compiled.
        on_start: told the kernel's name before each compilation.
    """
    global _recording
    if _target is None:
        raise RuntimeError("call compiling.install(target) before the candidate is imported")
    recording = _Recording(_target, most_configs, time.monotonic() + seconds, on_start)
    outer, _recording = _recording, recording
    try:
        with untouched.full_size():
            call()
    except _FAILURES as error:
        if not _rose_from(error, recording.raised):
            raise
    finally:
        _recording = outer
    return recording.kernels


def _rose_from(error: BaseException | None, raised: list[BaseException]) -> bool:
    """Whether the exception is one of a refused kernel, or was raised while one was handled."""
    while error is not None:
        if any(error is known for known in raised):
            return True
        error = error.__cause__ or error.__context__
    return False


# --------------------------------------------------------------------------------------------------------------------
# Launches


def _compile_launch(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    """Replaces `JITFunction.run`: compiles with the launch's arguments."""
    recording = _recording
    if recording is None:
        return _run_jit(self, *args, grid=grid, warmup=warmup, **kwargs)
    index, config = _config or (0, None)
    record = CompiledKernel(
        kernel=self.fn.__name__,
        line=_definition_line(self),
        target=recording.target.name,
        config=config,
        config_index=index,
        **_arguments(self, args, kwargs),
    )
    if recording.on_start is not None:
        recording.on_start(record.kernel)
    began = time.monotonic()
    try:
        record.grids = [] if warmup else [_grid_of(self, grid, args, kwargs)]
        compiled = _run_jit(self, *args, grid=grid, warmup=True, **kwargs)
        record.seconds = time.monotonic() - began
        _read(compiled, record, recording.target)
        _check_resources(compiled, record, recording.target)
    except _FAILURES as error:
        recording.raised.append(error)
        record.seconds = time.monotonic() - began
        record.failure = record.failure or failure_of(error, self)
        _keep(recording, record)
        raise
    if warmup:
        # Launched later through the compiled object, or not at all.
        recording.warmed[record.kernel] = record
    else:
        _keep(recording, record)
    return compiled


def _launcher(source: Any, metadata: Any) -> Callable[..., None]:
    """Stands for a driver's launcher: a launch of a compiled object counts for its warm-up."""

    def launch(x: int, y: int, z: int, *_: Any) -> None:
        record = _recording and _recording.warmed.get(source.fn.fn.__name__)
        if _recording is not None and record:
            record.grids = [[int(x), int(y), int(z)]]
            _keep(_recording, record)

    return launch


def _keep(recording: _Recording, record: CompiledKernel) -> None:
    """One record per kernel, configuration and signature; a repeated launch adds its grid."""
    key = (
        record.kernel,
        record.config_index,
        str(record.constexprs),
        str([(a.get("dtype"), a.get("aligned"), a.get("value")) for a in record.args]),
    )
    known = recording.seen.get(key)
    if known is not None:
        known.grids.extend(record.grids)
        return
    recording.seen[key] = record
    recording.kernels.append(record)


def _arguments(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = [parameter.name for parameter in self.params]
    values = {**dict(zip(names, args, strict=False)), **kwargs}
    constexprs = {p.name for p in self.params if p.is_constexpr}
    return {
        "args": [
            describe(name, values[name])
            for name in names
            if name in values and name not in constexprs
        ],
        "constexprs": {
            name: plain(values[name]) for name in names if name in constexprs & set(values)
        },
    }


def _grid_of(self: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    if callable(grid):
        names = [parameter.name for parameter in self.params]
        defaults = {p.name: p.default for p in self.params if p.has_default}
        grid = grid({**defaults, **dict(zip(names, args, strict=False)), **kwargs})
    sizes = list(grid) if isinstance(grid, (tuple, list)) else [grid]
    whole = [int(size.__index__()) for size in sizes]
    for size, most, axis in zip(whole, (2**31 - 1, 65535, 65535), "xyz", strict=False):
        if not 0 <= size <= most:
            raise OutOfResources(size, most, f"grid dimension {axis}")
    return whole + [1] * (3 - len(whole))


def _compile_configs(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces `Autotuner.run`: compiles the configurations, goes on with the first that fits."""
    global _config
    recording = _recording
    if recording is None:
        return _run_first_config(self, args, kwargs)
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configs = list(self.prune_configs(kwargs)) if len(self.configs) > 1 else list(self.configs)
    result, failure, chosen = None, None, False
    for index, config in enumerate(configs[: recording.most_configs]):
        if chosen and time.monotonic() > recording.deadline:
            break
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        _config = index, config.all_kwargs()
        before = len(recording.kernels)
        try:
            compiled = self.fn.run(*args, **kwargs, **config.all_kwargs())
            for record in recording.kernels[before:]:
                record.is_chosen = not chosen
            if not chosen:
                result, chosen, self.best_config = compiled, True, config
        except TritonError as error:
            for record in recording.kernels[before:]:
                record.is_chosen = False
            failure = failure or error
            if not isinstance(error, (OutOfResources, *_SKIPPED_BY_AUTOTUNE)):
                raise
        finally:
            _config = None
    self.nargs = None
    if not chosen and failure is not None:
        raise failure
    return result


_SKIPPED_BY_AUTOTUNE = tuple(
    getattr(autotuner, name)
    for name in ("PTXASError", "CompileTimeAssertionFailure")
    if hasattr(autotuner, name)
)


def _run_first_config(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An autotuned launch outside `compile_call`, as in a constructor: nothing to benchmark on."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    config = (self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs)[0]
    self.best_config = config
    self.nargs = None
    return self.fn.run(*args, **kwargs, **config.all_kwargs())


# --------------------------------------------------------------------------------------------------------------------
# What came out


def _read(compiled: Any, record: CompiledKernel, target: Target) -> None:
    metadata = compiled.metadata
    record.num_warps = int(metadata.num_warps)
    record.num_stages = int(getattr(metadata, "num_stages", 0))
    record.num_ctas = int(getattr(metadata, "num_ctas", 1))
    record.shared_bytes = int(metadata.shared)
    record.dots = dots_of(str(compiled.asm["ttir"]))
    record.computes = kinds_of(str(compiled.asm["ttir"]))
    if target.backend == "cuda":
        ptx = str(compiled.asm["ptx"])
        record.uses_tensor_cores = bool(
            re.search(r"\b(mma|wgmma|tcgen05)\b[.\w:]*mma|\bmma\.sync|wgmma\.mma", ptx)
        )
        usage = usage_of(compiled.asm["cubin"])
        record.registers, record.spill_bytes = usage.registers, usage.spill_bytes
        record.spill_bytes_in_loops = usage.spill_bytes_in_loops
    else:
        text = str(compiled.asm["amdgcn"])
        record.uses_tensor_cores = "v_mfma" in text
        record.registers = _last_number(r"\.vgpr_count:\s*(\d+)", text)
        record.spill_bytes = 4 * _last_number(r"\.vgpr_spill_count:\s*(\d+)", text)
        record.spill_bytes_in_loops = record.spill_bytes  # not told apart there


def _last_number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


_DOT = re.compile(r"tt\.dot(?:_scaled)?\b(?P<rest>[^\n]*)")
_OPERAND = re.compile(r":\s*tensor<(?:\d+x)+(?P<dtype>\w+)")


_KINDS = {
    "float": re.compile(
        r"\barith\.(add|sub|mul|div|rem|neg|max\w*|min\w*)f\b|\bmath\.|\btt\.(clampf|precise_|extern_elementwise)"
    ),
    "math": re.compile(r"\bmath\.|\btt\.(extern_elementwise|elementwise_inline_asm|precise_sqrt)"),
    "reduce": re.compile(r"\btt\.reduce\b"),
    "dot": re.compile(r"\btt\.dot(_scaled)?\b"),
}


def kinds_of(ttir: str) -> list[str]:
    """Which kinds of computation a kernel's TTIR has; see `sessions.Launch.computes`."""
    return [kind for kind, pattern in _KINDS.items() if pattern.search(ttir)]


def dots_of(ttir: str) -> list[dict[str, str]]:
    """The matrix products in a kernel's TTIR: type of the operands, and input precision ("ieee" when not stated)."""
    found = []
    for match in _DOT.finditer(ttir):
        rest = match["rest"]
        operand = _OPERAND.search(rest)
        precision = re.search(r"inputPrecision\s*=\s*(\w+)", rest)
        found.append(
            {
                "dtype": operand["dtype"] if operand else "",
                "precision": precision[1].lower() if precision else "ieee",
            }
        )
    return found


def _load_binary(
    name: str, kernel: bytes, shared: int, device: int
) -> tuple[int, int, int, int, int]:
    """What a driver says when it loads a kernel: (module, function, registers, spills in words, most threads)."""
    assert _target is not None
    usage = usage_of(kernel) if _target.backend == "cuda" else Usage(64, 0, 0)
    return 1, 1, usage.registers, usage.spill_bytes // 4, _target.threads_per_block


def _check_resources(compiled: Any, record: CompiledKernel, target: Target) -> None:
    """Raise what a launch would: Triton checks these limits only when it loads the kernel.

    Raises:
        OutOfResources: with the need and the target's limit.
    """
    threads = record.num_warps * target.warp_size
    tensor_memory = int(getattr(compiled.metadata, "tmem_size", None) or 0)
    for needed, most, what in (
        (record.shared_bytes, target.shared_per_block, "shared memory"),
        (threads, target.threads_per_block, "threads"),
        (tensor_memory, _TENSOR_MEMORY_COLUMNS, "tensor memory"),
        (record.registers * threads, target.registers_per_sm, "registers"),
    ):
        if needed > most:
            raise OutOfResources(needed, most, what)


# --------------------------------------------------------------------------------------------------------------------
# What went wrong


def failure_of(error: BaseException, function: Any) -> dict[str, Any]:
    """An exception of a compilation as data: its kind, one line, the candidate's line."""
    if isinstance(error, OutOfResources):
        return {
            "kind": "resources",
            "message": (
                f"{function.fn.__name__} needs {error.required:,} {_unit(error.name)},"
                f" the target has {error.limit:,}"
            ),
            "resource": error.name,
            "required": error.required,
            "limit": error.limit,
            "line": _definition_line(function),
            "detail": str(error)[:2000],
        }
    if isinstance(error, CompilationError):
        inner = innermost(error)
        return {
            "kind": "frontend",
            "message": fact_of(inner)[:300],
            "line": _line_in_candidate(inner, function),
            "detail": str(inner)[:2000],
            "operands": operands_of(inner),
        }
    if isinstance(error, (TypeError, ValueError, KeyError, AssertionError)):
        return {
            "kind": "frontend",
            "message": f"{type(error).__name__}: {error}".split("\n")[0][:300],
            "line": candidate_line() or _definition_line(function),
            "detail": str(error)[:2000],
        }
    text = str(error)
    return {
        "kind": "backend",
        "message": _first_telling_line(text)[:300],
        "line": _definition_line(function),
        "detail": text[:2000],
    }


_REPR = re.compile(r"""^(\w+)\((['"])(.*)\2\)$""")
"""`ValueError('...')`, as Triton prints the exception beneath."""


def _unit(resource: str) -> str:
    return "bytes of shared memory" if resource == "shared memory" else resource


def innermost(error: CompilationError) -> CompilationError:
    """The compilation error at the bottom: in the device function where it happened."""
    while isinstance(error.__cause__, CompilationError):
        error = error.__cause__
    return error


def fact_of(error: CompilationError) -> str:
    """The one fact: the error's own message, else that of the Python exception beneath."""
    if error.error_message:
        first = error.error_message.strip().split("\n")[0]
        return _REPR.sub(r"\1: \3", first)
    if error.__cause__ is not None:
        return f"{type(error.__cause__).__name__}: {error.__cause__}".split("\n")[0]
    return f"{type(error).__name__} at {ast_name(error)}"


def operands_of(error: CompilationError) -> list[str]:
    """The blocks at hand where the compiler gave up, as it names them: "input 32x64 fp16"."""
    cause, trace = error.__cause__ or error, None
    while cause.__cause__ is not None:
        cause = cause.__cause__
    trace = cause.__traceback__
    found: list[str] = []
    while trace is not None:
        blocks = {
            name: value
            for name, value in trace.tb_frame.f_locals.items()
            if isinstance(value, tl.tensor) and value.type.is_block()
        }
        found = [f"{name} {_block_words(value)}" for name, value in blocks.items()] or found
        trace = trace.tb_next
    return found[:4]


def _block_words(block: Any) -> str:
    sizes = [str(getattr(size, "value", size)) for size in block.shape]
    return f"{'x'.join(sizes)} {block.dtype}"


def ast_name(error: CompilationError) -> str:
    return type(error.node).__name__ if error.node is not None else "an unknown place"


def _first_telling_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return (telling or lines or ["the backend failed without a message"])[0]


def _definition_line(function: Any) -> int | None:
    try:
        return int(get_jit_fn_file_line(function)[1])
    except (OSError, TypeError, AttributeError):
        return None


def _line_in_candidate(error: CompilationError, function: Any) -> int | None:
    """`node.lineno` counts from the `def` of the function it is in, which may be one that the kernel calls."""
    owner = _owner_of(error.src, function)
    start = _definition_line(owner)
    if start is None:
        return None
    line = getattr(error.node, "lineno", None)
    return start if line is None else start + line - 1


def _owner_of(source: str | None, function: Any) -> Any:
    name = re.match(r"\s*def\s+(\w+)", source or "")
    if name is None or name[1] == function.fn.__name__:
        return function
    other = function.fn.__globals__.get(name[1])
    return other if isinstance(other, JITFunction) else function
