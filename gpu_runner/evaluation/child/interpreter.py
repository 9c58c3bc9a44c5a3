"""Triton's interpreter, instrumented: what a kernel does to memory, who raced with whom, and how much it did.

How to call it, in a process started with TRITON_INTERPRET=1, in this order:

    interpreter.install(target)                # once, before the candidate is imported
    with interpreter.session(noop_kernels=frozenset({"scale"}), poison=math.nan) as seen:
        outputs = model(*inputs)               # every launch runs instrumented on CPU tensors
    seen.launches                              # [Launch]: kernel, grid, arguments, counts; `.as_json()`
    seen.findings                              # [dict]: see `Session.findings`
    seen.errors                                # [dict]: exceptions inside kernels, with the candidate's line
    seen.unevaluable                           # str | None: why the interpreter cannot judge this candidate
    seen.unwritten_share(outputs)              # share of a tensor's elements that nobody wrote; 0 if not allocated here

`Unevaluable` is raised where the interpreter cannot go on (inline assembly, a program that waits for a later one). The
candidate may swallow it, hence `seen.unevaluable`. Launches outside a session run with the same protection, unrecorded.

Besides observing, it mends what differs from a GPU: bfloat16 arithmetic (rounded to nearest even), TF32 operands of
`tl.dot` (rounded to ten bits), float arguments as float32 tensors, generic reductions and scans at array speed, libdevice.
An access outside the memory it was derived from is masked off (loads give `other`), so that the process survives.

Source: pointers reach `create_masked_load/store` of triton 3.6 and 3.7 as arrays of addresses, one per element.
"""

import ast
import copy
import inspect
import sys
import time
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
import triton.runtime.interpreter as base
from triton.runtime.errors import InterpreterError, OutOfResources

from gpu_runner.core.targets import TARGETS, Target
from gpu_runner.evaluation.child import autotune, block_shapes, builder, libdevice, stand_in
from gpu_runner.evaluation.child.builder import Builder, kernel_range
from gpu_runner.evaluation.child.counting import Counts
from gpu_runner.evaluation.child.sessions import (
    Launch,
    OutOfTime,
    Program,
    Sampling,
    Session,
    Unevaluable,
    active,
    describe,
    session,
)
from gpu_runner.evaluation.child.stand_in import candidate_line, is_candidate_file
from gpu_runner.evaluation.child.traced_memory import Memory, Shadow

__all__ = ["Launch", "Sampling", "Session", "Unevaluable", "active", "install", "session"]


class _KernelTransformer(base.ASTTransformer):  # type: ignore[misc]
    """Triton's rewriting of assignments, and loops through `kernel_range`."""

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        call = node.iter
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "range"
        ):
            call.func = ast.Name(id="__kernel_range__", ctx=ast.Load())
        return node


class _Rewriter(base.FunctionRewriter):  # type: ignore[misc]
    """Adds nothing to the candidate's namespace but two names, and sees what a closure captured."""

    ast_transformer = _KernelTransformer()

    def _compile_and_exec(self, transformed: ast.Module) -> Callable[..., Any]:
        code = compile(transformed, filename=self.filename, mode="exec", dont_inherit=True)
        names = self.fn.__globals__
        captured = inspect.getclosurevars(self.fn).nonlocals
        if captured:
            names = {**names, **captured}
        names.setdefault("interpreter_semantic", base.interpreter_semantic)
        names.setdefault("__kernel_range__", kernel_range)
        local: dict[str, Any] = dict(self.kwargs)
        exec(code, names, local)
        return local[self.fn.__name__]


@dataclass
class _Signature:
    names: list[str]
    constexprs: frozenset[str]
    line: int | None
    call: inspect.Signature


_signatures: dict[Callable[..., Any], _Signature] = {}


def _signature_of(fn: Callable[..., Any]) -> _Signature:
    if fn not in _signatures:
        call = inspect.signature(fn)
        constexprs = frozenset(
            name
            for name, parameter in call.parameters.items()
            if "constexpr" in str(getattr(parameter.annotation, "__name__", parameter.annotation))
        )
        _signatures[fn] = _Signature(list(call.parameters), constexprs, _def_line(fn), call)
    return _signatures[fn]


def _def_line(fn: Callable[..., Any]) -> int | None:
    """The line of `def`, below the decorators."""
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        return None
    below = (i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
    return first + next(below, 0)


def _rewritten(self: Any) -> Callable[..., Any]:
    if self.fn not in self.rewritten_fn:
        self.rewritten_fn[self.fn] = _Rewriter(self.fn, **self.kwargs).rewrite_ast()
    return self.rewritten_fn[self.fn]


def _call_device_function(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.rewrite()(*args, **kwargs)


def _run_kernel(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    """Replaces `InterpretedFunction.run`: one launch, observed."""
    if warmup:
        return WarmedKernel(self, kwargs)
    seen = active()
    signature = _signature_of(self.fn)
    options = {name: value for name, value in kwargs.items() if name not in signature.names}
    kwargs = {name: value for name, value in kwargs.items() if name in signature.names}
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    bound = signature.call.bind(*args, **kwargs)
    bound.apply_defaults()
    launch = Launch(
        kernel=self.fn.__name__,
        line=signature.line,
        grid=_grid_of(grid, bound.arguments),
        args=[
            describe(name, value)
            for name, value in bound.arguments.items()
            if name not in signature.constexprs
        ],
        constexprs={
            name: value for name, value in bound.arguments.items() if name in signature.constexprs
        },
        options=options,
        config=autotune.take_config(),
        is_noop=self.fn.__name__ in seen.noop_kernels,
    )
    seen.record(launch)
    _check_grid(launch)
    if not launch.is_noop and launch.programs:
        with _attributed(launch):
            _run_programs(self.rewrite(), launch, signature, dict(bound.arguments))
    return None


def _grid_of(grid: Any, arguments: dict[str, Any]) -> Program:
    sizes = grid(arguments) if callable(grid) else grid
    sizes = sizes if isinstance(sizes, (tuple, list)) else (sizes,)
    if len(sizes) > 3:
        raise ValueError(f"a grid has at most three dimensions, this one {len(sizes)}")
    whole = [_grid_size(size) for size in sizes] + [1] * (3 - len(sizes))
    return whole[0], whole[1], whole[2]


def _grid_size(size: Any) -> int:
    if isinstance(size, torch.Tensor):
        return int(size.item())
    if not hasattr(size, "__index__"):
        raise TypeError(f"grid sizes must be integers, got {type(size).__name__}")
    return size.__index__()


def _check_grid(launch: Launch) -> None:
    """Refuse a grid as the driver does, before anything runs.

    Raises:
        OutOfResources: a dimension is negative or beyond what any GPU launches.
    """
    for size, most, axis in zip(launch.grid, (2**31 - 1, 65535, 65535), "xyz", strict=True):
        if 0 <= size <= most:
            continue
        detail = f"grid dimension {axis} is {size}, at most {most} are possible"
        active().report(
            size,
            kind="launch",
            access="grid",
            kernel=launch.kernel,
            line=candidate_line(sys._getframe(1)),
            tensor=None,
            index=size,
            extent=most,
            program=[0, 0, 0],
            certain=True,
            detail=detail,
        )
        raise OutOfResources(size, most, f"grid dimension {axis}")


class _attributed:
    """Records what goes wrong inside a kernel with the candidate's line, then lets it rise as Triton does."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.session = active()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or not isinstance(error, Exception):
            return
        if isinstance(error, NotImplementedError):
            error = Unevaluable(f"{type(error).__name__}: {error}")
        if isinstance(error, Unevaluable):
            self.session.unevaluable = self.session.unevaluable or error.reason
            raise error
        self.session.errors.append(
            {
                "kernel": self.launch.kernel,
                "line": line_of(trace),
                "type": type(error).__name__,
                "message": str(error)[:2000],
                "program": list(getattr(base.interpreter_builder, "grid_idx", None) or (0, 0, 0)),
            }
        )
        raise InterpreterError(repr(error)[:2000]) from error


def line_of(trace: types.TracebackType | None) -> int | None:
    """The line of the innermost frame of a traceback that is the candidate's."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(trace) if is_candidate_file(frame.filename)
    ]
    return lines[-1] if lines else None


def _run_programs(
    fn: Callable[..., Any], launch: Launch, signature: _Signature, values: dict[str, Any]
) -> None:
    machine: Builder = base.interpreter_builder
    memory = Memory()
    machine.enter_launch(launch, memory, active())
    machine.set_grid_dim(*launch.grid)
    shadows = active().allocations.shadows
    args = {
        name: _constexpr(value)
        if name in signature.constexprs
        else _as_argument(name, value, memory, shadows)
        for name, value in values.items()
    }
    with np.errstate(all="ignore"):
        sampling = active().sampling
        if sampling is None:
            _run_all(fn, args, launch, machine)
        else:
            _run_sample(fn, args, launch, machine, sampling)
    memory.note_sharing(launch.counts.tensors)
    active().read_addresses = memory.read_addresses(launch.counts.tensors)


def _run_all(
    fn: Callable[..., Any], args: dict[str, Any], launch: Launch, machine: Builder
) -> None:
    nx, ny, nz = launch.grid
    total = nx * ny * nz
    numbers = range(total - 1, -1, -1) if active().reverse else range(total)
    for done, number in enumerate(numbers):
        program = number % nx, number // nx % ny, number // (nx * ny)
        machine.enter_program(program, number, counts_sectors=done < 2)
        fn(**args)
    launch.counts.programs = total
    active().touched.note_reads(machine.memory.regions)


def _run_sample(
    fn: Callable[..., Any],
    args: dict[str, Any],
    launch: Launch,
    machine: Builder,
    sampling: Sampling,
) -> None:
    """Interpret a sample, scale its counts by the grid; then the corners, for findings only."""
    sample = programs_of(launch.grid, sampling.programs)
    machine.deadline = time.thread_time() + sampling.seconds
    done = 0
    try:
        for program in sample:
            machine.enter_program(program, _number_of(program, launch.grid), counts_sectors=True)
            machine.weight = 1.0
            before = copy.deepcopy(launch.counts)
            fn(**args)
            done += 1
    except OutOfTime:
        launch.is_complete = False
        if done:
            launch.counts = before
    launch.counts.programs = max(1, done)
    counted = launch.counts.scaled(launch.programs / max(1, done))
    machine.counts = Counts()
    try:
        for program in corners_of(launch.grid) if launch.is_complete else ():
            if program not in sample:
                machine.enter_program(program, _number_of(program, launch.grid), False)
                machine.weight = 1.0
                fn(**args)
    except OutOfTime:
        pass
    launch.counts = counted


def _number_of(program: Program, grid: Program) -> int:
    return program[0] + grid[0] * (program[1] + grid[1] * program[2])


_STEPS = (0.8191725134, 0.6710436067, 0.5497004779)
"""Inverse powers of 1.2207...: a low-discrepancy sequence in three dimensions. Source: Roberts (2018), "R-sequences"."""


def programs_of(grid: Program, count: int) -> list[Program]:
    """All programs of a small grid, else `count` of them spread evenly over every dimension."""
    total = grid[0] * grid[1] * grid[2]
    if total <= count:
        return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    spread = [
        tuple(
            int(size * ((0.5 + step * (i + 1)) % 1.0))
            for size, step in zip(grid, _STEPS, strict=True)
        )
        for i in range(count)
    ]
    return list(dict.fromkeys(spread))  # type: ignore[arg-type]


def corners_of(grid: Program) -> list[Program]:
    ends = [sorted({0, size - 1}) for size in grid]
    return [(x, y, z) for z in ends[2] for y in ends[1] for x in ends[0]]


def _constexpr(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _as_argument(name: str, value: Any, memory: Memory, shadows: dict[int, Shadow]) -> Any:
    """A host value as the tensor that the kernel gets for it."""
    if isinstance(value, tl.constexpr):
        return value.value
    if isinstance(value, bool):
        return _scalar(np.array([value], bool), tl.int1)
    if isinstance(value, float):
        return _scalar(np.array([value], np.float32), tl.float32)
    if isinstance(value, int):
        memory.add_integer(value)
        return base._implicit_cvt(value)
    if hasattr(value, "data_ptr"):
        out = base._implicit_cvt(value)
        tensor = getattr(value, "base", value)
        if not isinstance(tensor, torch.Tensor):
            memory.add_integer(value.data_ptr())  # all that a launcher asks of it
            return out
        if tensor.device.type != "cpu":
            raise ValueError(f"{name} is on {tensor.device}; the interpreter runs on the CPU")
        memory.add(name, tensor, shadows)
        out.handle.attr["argument"] = name
        return out
    if isinstance(value, tuple):
        parts = [_as_argument(f"{name}[{i}]", v, memory, shadows) for i, v in enumerate(value)]
        return base._tuple_create(value, parts)
    if isinstance(value, base.TensorDescriptor):
        memory.add(name, value.base, shadows)
        out = base._implicit_cvt(value)
        out.handle.base.attr["argument"] = name
        return out
    if isinstance(value, np.generic):
        return _as_argument(name, value.item(), memory, shadows)
    return value


def _scalar(array: np.ndarray, kind: Any) -> Any:
    return tl.core.tensor(base.TensorHandle(array, kind), kind)


class WarmedKernel:
    """What `kernel.warmup(...)` returns here: enough for host code that derives its grid from registers and so on."""

    n_regs = 32
    n_spills = 0
    n_max_threads = 1024

    def __init__(self, function: Any, given: dict[str, Any]) -> None:
        self._function, self._given = function, given
        self.name = function.fn.__name__
        self.metadata = types.SimpleNamespace(
            name=self.name,
            shared=0,
            num_warps=given.get("num_warps", 4),
            num_stages=given.get("num_stages", 3),
            num_ctas=1,
            warp_size=32,
        )
        self.asm: dict[str, str] = {}

    def _init_handles(self) -> None:
        return

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """A launch with the constants of the warm-up, as of a compiled kernel."""

        def launch(*args: Any, **kwargs: Any) -> Any:
            positional = _signature_of(self._function.fn).names[: len(args)]
            given = {name: v for name, v in self._given.items() if name not in positional}
            return self._function.run(*args, grid=grid, warmup=False, **{**given, **kwargs})

        return launch


_installed = False


def install(target: Target = TARGETS["h200"]) -> None:
    """Instrument the interpreter for this process; call it once, before the candidate is imported.

    Raises:
        RuntimeError: Triton was imported without TRITON_INTERPRET=1, so kernels would be compiled.
    """
    global _installed
    if not triton.knobs.runtime.interpret:
        raise RuntimeError("set TRITON_INTERPRET=1 before triton is imported")
    if _installed:
        return
    _installed = True
    stand_in.answer_for(target)
    builder.install()
    block_shapes.install()
    _patch_language_once()
    base.InterpretedFunction.run = _run_kernel
    base.InterpretedFunction.rewrite = _rewritten
    base.InterpretedFunction.__call__ = _call_device_function
    libdevice.install(_patch_module)
    autotune.install()


def _patch_language_once() -> None:
    """Give `triton.language` the interpreter's semantic for good, instead of at each launch and device function."""
    names = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    base._patch_lang(names)
    base._patch_lang = lambda fn: _NothingToRestore()
    # Triton 3.6 converts arrays of one element with int(), which numpy 2.4 refuses.
    tl.tensor.__index__ = lambda self: int(self.handle.data.reshape(-1)[0])
    for module in (tl, tl.core):
        module.range = kernel_range
        module.static_range = kernel_range
        module.static_print = lambda *args, **kwargs: None


class _NothingToRestore:
    def restore(self) -> None:
        return


def _patch_module(module: Any) -> None:
    scope = base._LangPatchScope()
    base._patch_builtin(module, base.interpreter_builder, scope)
