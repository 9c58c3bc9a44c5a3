"""Doors that no kernel needs and that lead to the evaluation itself: they stay open and tell who went through.

Torch's stack of modes, its switches for dispatch and for the profiler, kernels for torch's own operators, the
evaluator's modules in `sys.modules`, and what its functions hold. Torch and Triton use them too; only the submitted
module is accused.
"""

import ctypes
import gc
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._python_dispatch as modes
import triton

from gpu_runner.evaluation.child import immutable, ours_alone
from gpu_runner.evaluation.child.below import torchs_namespaces
from gpu_runner.evaluation.child.guard import USERS, asker_of, kind_of
from gpu_runner.evaluation.child.host_reads import replace_everywhere

PACKAGE = "gpu_runner"
STAND_IN = "gpu_runner.evaluation.child.stand_in"
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep

_DOORS: dict[Any, list[str]] = {
    torch._C: (
        "_len_torch_dispatch_stack _get_dispatch_stack_at _pop_torch_dispatch_stack _DisableTorchDispatch"
        " _get_dispatch_mode _unset_dispatch_mode _set_dispatch_mode DisableTorchFunction"
        " _len_torch_function_stack _get_function_stack_at _pop_torch_function_stack"
        " _is_torch_function_mode_enabled _is_torch_function_enabled _ExcludeDispatchKeyGuard"
        " _ForceDispatchKeyGuard _IncludeDispatchKeyGuard _dispatch_tls_is_dispatch_key_excluded"
        " _dispatch_tls_set_dispatch_key_excluded _dispatch_tls_is_dispatch_key_included"
        " _dispatch_tls_local_include_set _dispatch_tls_local_exclude_set"
    ).split(),
    torch._C._autograd: (
        "_disable_profiler_legacy _disable_profiler _enable_record_function _profiler_enabled"
        " _profiler_type _set_empty_test_observer"
    ).split(),
    modes: (
        "_get_current_dispatch_mode _get_current_dispatch_mode_stack _pop_mode _pop_mode_temporarily"
        " _disable_current_modes is_in_torch_dispatch_mode is_in_any_mode_without_ignore_compile_internals"
    ).split(),
    torch.overrides: (
        "_get_current_function_mode _get_current_function_mode_stack _pop_mode _pop_mode_temporarily"
    ).split(),
}
_GLOBALS: Any = types.FunctionType.__dict__["__globals__"]

Accuse = Callable[[str, str, int | None], None]


def install(accuse: Accuse, is_own: Callable[[str], bool]) -> None:
    """Once per process, before the guard's snapshot and the submitted module.

    Args:
        accuse: takes what was used, words for people, and the submitted module's line.
        is_own: whether a file name is the submitted module's.
    """
    for owner, names in _DOORS.items():
        for name in names:
            real = getattr(owner, name, None)
            if real is not None:
                detail = f"uses {name}, which shows or stops what watches it"
                replace_everywhere(real, _telling(real, name, detail, accuse, is_own))
    library = torch._C._dispatch_library
    replace_everywhere(library, _library(library, accuse, is_own))
    if triton.knobs.runtime.interpret:
        _hide_interpretation(is_own)
        _tell_reaches(accuse, is_own)
    for name in ("__globals__", "__closure__"):
        _watch_insides(name, accuse, is_own)
    immutable.freeze(_classes())
    _seal(accuse, is_own)


def _classes() -> Iterator[type]:
    """Of the evaluator's modules; not those whose metaclass wants to change them later, and not what stands in for torch's.

    Whoever replaces a method of torch's events is to succeed, and to be accused of it.
    """
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == PACKAGE and module is not None and name != STAND_IN:
            yield from (
                v for v in vars(module).values() if type(v) is type and v.__module__ == name
            )


def user_line(frame: types.FrameType | None, is_own: Callable[[str], bool]) -> int | None:
    """The line, if the frame is of the submitted module or of code that it generated; else None."""
    if frame is None or kind_of(frame.f_code.co_filename, is_own) not in USERS:
        return None
    return frame.f_lineno


def _telling(
    real: Any, name: str, detail: str, accuse: Accuse, is_own: Callable[[str], bool]
) -> Callable[..., Any]:
    def told(*args: Any, **kwargs: Any) -> Any:
        line = user_line(sys._getframe(1), is_own)
        if line is not None:
            accuse(f"torch.{name}", detail, line)
        return real(*args, **kwargs)

    return told


def _library(real: Any, accuse: Accuse, is_own: Callable[[str], bool]) -> Callable[..., Any]:
    """Operators of one's own are welcome; torch's keep their meaning."""

    def told(kind: Any, namespace: str, *args: Any, **kwargs: Any) -> Any:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == torch.library.__file__:
            frame = frame.f_back
        line = user_line(frame, is_own)
        if line is not None and namespace in torchs_namespaces():
            accuse(
                "torch.library", f"replaces kernels of torch's own operators ({namespace})", line
            )
        return real(kind, namespace, *args, **kwargs)

    return told


def _hide_interpretation(is_own: Callable[[str], bool]) -> None:
    """The submitted module is told that its kernels are compiled, as they will be."""
    real = triton.knobs.runtime_knobs.__dict__["interpret"]
    triton.knobs.runtime.interpret = triton.knobs.runtime.interpret
    value = triton.knobs.runtime.interpret
    os.environ.pop("TRITON_INTERPRET", None)

    class Interpret(type(real)):  # type: ignore[misc]
        def __get__(self, obj: Any, cls: Any = None) -> Any:
            if user_line(sys._getframe(1), is_own) is not None:
                return False
            return value

    hiding = Interpret.__new__(Interpret)
    hiding.__dict__.update(vars(real))
    triton.knobs.runtime_knobs.interpret = hiding


def _tell_reaches(accuse: Accuse, is_own: Callable[[str], bool]) -> None:
    def told(name: str, frame: types.FrameType) -> None:
        line = asker_of(frame, is_own)
        if line is not None:
            accuse("interpreter", f"reaches into the interpreter for its {name}", line)

    ours_alone.tell(told)


# The evaluator's own functions and modules


def _watch_insides(name: str, accuse: Accuse, is_own: Callable[[str], bool]) -> None:
    """Tell who reads this attribute of a function of ours, in whatever way: no audit event does.

    The attribute's own descriptor is replaced in the type, which Python code can reach through gc alone.
    """
    (attributes,) = gc.get_referents(types.FunctionType.__dict__)
    real = attributes[name]

    class Told:
        def __get__(self, function: Any, owner: Any = None) -> Any:
            if function is None:
                return self
            if _is_ours(function):
                line = asker_of(sys._getframe(1), is_own)
                if line is not None:
                    detail = f"reads {name} of a function that watches it"
                    accuse(name, detail, line)
            return real.__get__(function, owner)

        def __set__(self, function: Any, value: Any) -> None:
            raise AttributeError("readonly attribute")

    def _is_ours(function: types.FunctionType) -> bool:
        """Those too that a data class of ours was given, which are of no file."""
        filename = function.__code__.co_filename
        if not filename.startswith("<"):
            return filename.startswith(_HERE)
        return str(_GLOBALS.__get__(function).get("__name__", "")).startswith(f"{PACKAGE}.")

    attributes[name] = Told()
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(types.FunctionType))


def _seal(accuse: Accuse, is_own: Callable[[str], bool]) -> None:
    """Put in place of each module of ours one that answers everybody but the submitted module."""
    inside: dict[int, types.ModuleType] = {}

    def told(name: str, frame: types.FrameType | None) -> None:
        line = _reaches(frame, name, is_own)
        if line is not None:
            accuse("sys.modules", f"reaches into the evaluator's modules for {name:.80}", line)
            raise AttributeError(name)

    class Sealed(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            if name != "__class__":
                told(name, sys._getframe(1))
            return getattr(inside[id(self)], name)

        def __setattr__(self, name: str, value: Any) -> None:
            told(name, sys._getframe(1))
            setattr(inside[id(self)], name, value)

    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == PACKAGE and type(module) is types.ModuleType:
            sealed = Sealed(name)
            inside[id(sealed)] = module
            sys.modules[name] = sealed


def _reaches(frame: types.FrameType | None, name: str, is_own: Callable[[str], bool]) -> int | None:
    """The submitted module's line, if an access comes from it, by way of libraries or not.

    Libraries that look through all modules, for the one that an object is from, read nothing but names such as `__file__`.
    """
    is_naming = name.startswith("__") and name != "__dict__"
    while frame is not None:
        kind = kind_of(frame.f_code.co_filename, is_own)
        if kind in USERS:
            return frame.f_lineno
        if kind == "harness" or is_naming:
            return None
        frame = frame.f_back
    return None
