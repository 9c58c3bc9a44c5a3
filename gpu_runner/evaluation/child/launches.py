"""Every launch of a Triton kernel, in the interpreter and on a GPU; and which line of the submitted module runs."""

import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import triton
from triton.compiler import CompiledKernel
from triton.runtime.interpreter import GridExecutor, InterpretedFunction

from gpu_runner.evaluation.child.dispatch import LEAST_ADDRESS, Recorder, as_plain
from gpu_runner.evaluation.child.memory import dtype_name
from gpu_runner.evaluation.protocol import Launch


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
        CompiledKernel.run = property(self._wrap_started(CompiledKernel.run.fget))
        for owner in (InterpretedFunction, GridExecutor):
            owner.__call__ = self._inside_only(owner.__call__)

    def printed(self, tensor: torch.Tensor, elements: int, text: str) -> str:
        return text if self.recorder is None else self.recorder.printed(tensor, elements, text)

    def reset(self, recorder: Recorder | None, *, noop: bool) -> None:
        self.launches, self.count, self.recorder, self.noop = [], 0, recorder, noop

    def leave(self) -> None:
        """The call is over: what was seen of it stays, later launches are nobody's business."""
        self.recorder, self.noop = None, False

    def _wrap(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def tapped(kernel, *args, grid=None, warmup=False, **kwargs):
            def go(noting):
                return run(kernel, *args, grid=noting, warmup=False, **kwargs)

            if warmup:
                return run(kernel, *args, grid=grid, warmup=True, **kwargs)
            return self._launch(kernel, args, kwargs, grid, go)

        return tapped

    def _launch(self, kernel, args, kwargs, grid, go: Callable[[Callable[..., Any]], Any]) -> Any:
        """One launch, noted when its grid is asked for: hooks and the grid's own code have run by then, the kernel has not.

        Args:
            go: launches with the grid that it is given, a function as a launch may have one.
        """
        own = self.is_own_kernel(kernel)
        if own and self.noop:
            self._note(kernel, args, kwargs, grid, own)
            return None
        afters: list[Callable[[], None]] = []

        def noting(meta):
            sizes = grid(meta) if callable(grid) else grid
            afters.append(self._note(kernel, args, kwargs, sizes, own))
            return sizes

        self.depth += 1
        try:
            result = go(noting)
        finally:
            self.depth -= 1
        for after in afters:
            after()
        return result

    def _wrap_compiled(self, launcher_of: Callable[..., Any]) -> Callable[..., Any]:
        """What `warmup` answers with can be launched as well."""

        def tapped(compiled, grid):
            launcher, kernel = launcher_of(compiled, grid), getattr(compiled.src, "fn", compiled)

            def launch(*args, **kwargs):
                def go(noting):
                    noting({})
                    return launcher(*args, **kwargs)

                return self._launch(kernel, args, kwargs, grid, go)

            return launch

        return tapped

    def _wrap_started(self, start_of: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What every launch of a compiled kernel comes down to can be called by itself."""

        def tapped(compiled):
            start, kernel = start_of(compiled), getattr(compiled.src, "fn", compiled)

            def started(x, y, z, *rest):
                def go(noting):
                    noting({})
                    return start(x, y, z, *rest)

                if self.depth > 0:
                    return start(x, y, z, *rest)
                return self._launch(kernel, rest[_BEFORE:], {}, (x, y, z), go)

            return started

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


_BEFORE = 6
"""Arguments between the grid and the kernel's own: stream, function, metadata and hooks."""


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
        return [as_plain(value)]
    if isinstance(value, tuple | list):
        return [t for item in value for t in _launch_tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _launch_tensors(item)]
    base = getattr(value, "base", None)
    return [as_plain(base)] if isinstance(base, torch.Tensor) else []


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
