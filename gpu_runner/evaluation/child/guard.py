"""What a submitted module may not reach for, watched from inside its process.

Two watchmen, set before the module is imported: an audit hook (it can never be removed) and a snapshot of
protected attributes that is compared afterwards. An event accuses only when the nearest frame that is
neither the standard library's nor a package's is the module's own; `_ALLOWED` is the one list of exceptions.
What was seen lives in closures, where only frames and gc could find it, and those are watched.
"""

import _thread
import gc
import os
import signal
import site
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from gpu_runner.evaluation.protocol import Accusation

MAX_ACCUSATIONS = 40

_HARNESS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def _package_folders() -> Iterator[str]:
    """Where installed packages lie, further folders of the import path with packages in them included."""
    yield from (
        *site.getsitepackages(),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
    )
    for folder in sys.path:
        if os.path.isdir(folder) and any(
            name.endswith(".dist-info") for name in os.listdir(folder)
        ):
            yield folder


_SITE = tuple({os.path.realpath(folder) + os.sep for folder in _package_folders()})
_STANDARD = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")
)

# Events by what they mean, in words for people. A name that ends in "." stands for all below it.
_EVENTS = {
    "sys._getframe": "reads the frames of its callers",
    "sys._current_frames": "reads the frames of all threads",
    "sys._current_exceptions": "reads the exceptions of all threads",
    "sys.settrace": "traces its callers",
    "sys.setprofile": "profiles its callers",
    "sys.addaudithook": "adds an audit hook",
    "sys.monitoring.register_callback": "monitors its callers",
    "gc.": "searches live objects through gc",
    "ctypes.": "reaches for memory through ctypes",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.exec": "replaces the process",
    "os.posix_spawn": "starts a process",
    "os.fork": "forks",
    "os.forkpty": "forks",
    "os.kill": "sends signals",
    "os.killpg": "sends signals",
    "signal.pthread_kill": "sends signals",
    "pty.spawn": "starts a process",
    "socket.": "opens a socket",
    "_thread.start_new_thread": "starts a thread",
    "_thread.start_joinable_thread": "starts a thread",
    "signal.signal": "sets a signal handler, which works whenever it likes",
    "os.remove": "removes files",
    "os.rename": "renames files",
    "os.rmdir": "removes folders",
    "os.mkdir": "makes folders",
    "os.link": "links files",
    "os.symlink": "links files",
    "os.chmod": "changes files",
    "os.truncate": "changes files",
    "shutil.": "changes files",
    "mmap.__new__": "maps memory",
    "code.__new__": "builds code objects",
    "object.__setattr__": "changes code objects or classes of the interpreter",
    "object.__getattr__": "reads frames off a traceback or generator",
    "open": "opens files for writing or reads the process's own memory",
    "compile": "compiles code under the name of a library file",
    "import": "imports the evaluator",
}

# Innocent uses: (event, package or file of one whose frame comes first below the event).
_ALLOWED = {
    ("subprocess.Popen", "triton"),  # ptxas, the launcher's C compiler
    ("os.posix_spawn", "triton"),
    ("os.fork", "triton"),
    ("os.mkdir", "triton"),
    ("os.rename", "triton"),
    ("os.remove", "triton"),
    ("os.rmdir", "triton"),
    ("os.chmod", "triton"),
    ("os.link", "triton"),
    ("shutil.", "triton"),
    ("compile", "triton"),  # the interpreter rewrites library functions under their own names
    ("open", "triton"),
    ("ctypes.", "triton"),
    ("ctypes.", "torch/cuda/__init__.py"),  # asks NVML how many devices there are
    ("ctypes.", "numpy"),
    ("_thread.start_new_thread", "triton"),
    ("_thread.start_joinable_thread", "triton"),
    ("gc.", "triton"),
}
# Files that no candidate calls by itself: what they build and load is C.
_NO_ENTRY = ("triton/runtime/build.py",)

# Attributes that their own package replaces when it is used in some way.
_ALLOWED_CHANGES = {("torch", "manual_seed")}  # by importing dynamo

_RESTRICTED_ATTRIBUTES = (
    *("tb_frame", "tb_next", "gi_frame", "cr_frame", "ag_frame", "f_back", "f_locals"),
)
_DEFAULTS = ("__defaults__", "__kwdefaults__")
_MEMORY_FILES = ("/proc/", "/dev/mem", "/dev/kmem")


@dataclass(frozen=True)
class Guard:
    """The watch over one process. All three functions answer with accusations found so far."""

    seen: Callable[[], tuple[Accusation, ...]]
    compare: Callable[[], tuple[Accusation, ...]]
    accuse: Callable[[Accusation], None]


def install(protected: Iterable[tuple[str, Any]], *, is_own: Callable[[str], bool]) -> Guard:
    """Start watching. Call it once per process, after everything of ours is imported.

    Args:
        protected: names and the modules or classes whose functions, classes and descriptors must stay.
        is_own: whether a file name is the submitted module's; unknown files count as its own too.
    """
    accusations: list[Accusation] = []
    busy: set[int] = set()

    def accuse(accusation: Accusation, *, most: int = MAX_ACCUSATIONS) -> None:
        if len(accusations) < most and accusation not in accusations:
            accusations.append(accusation)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        name = _WATCHED.get(event) or _group_of(event)
        if name is None or get_ident() in busy:
            return
        busy.add(get_ident())  # looking at frames and files is an event itself
        try:
            if not _is_suspicious(name, args):
                return
            culprit = _culprit(name, is_own)
            if culprit is not None:
                accuse(_accusation(event, name, args, culprit))
        finally:
            busy.discard(get_ident())

    def compare() -> tuple[Accusation, ...]:
        for accusation in (*_changes(before, is_own), *_new_callbacks(called_before, is_own)):
            accuse(accusation)
        return tuple(accusations)

    def watch_start(event: str, start: Callable[..., Any]) -> Callable[..., Any]:
        def started(*args: Any, **kwargs: Any) -> Any:
            busy.add(get_ident())
            try:
                culprit = _culprit(event, is_own)
            finally:
                busy.discard(get_ident())
            if culprit is not None:
                accuse(_accusation(event, event, (), culprit))
            return start(*args, **kwargs)

        return started

    for event, owner, name in _STARTERS:
        if hasattr(owner, name):
            setattr(owner, name, watch_start(event, getattr(owner, name)))
    before = list(_snapshot(protected))
    called_before = [list(place) for place, _ in _CALLBACKS]
    sys.addaudithook(hook)
    return Guard(seen=lambda: tuple(accusations), compare=compare, accuse=accuse)


_WATCHED = {event: event for event in _EVENTS if not event.endswith(".")}
_GROUPS = tuple(event for event in _EVENTS if event.endswith("."))


def _group_of(event: str) -> str | None:
    for group in _GROUPS:
        if event.startswith(group):
            return group
    return None


def _accusation(
    event: str, name: str, args: tuple[Any, ...], culprit: tuple[str, int]
) -> Accusation:
    detail = _EVENTS[name]
    if args and isinstance(args[0], str | bytes):
        detail += f": {args[0]!r:.160}"
    return Accusation(what=event[:100], kind="tampering", detail=detail, line=max(1, culprit[1]))


def _culprit(name: str, is_own: Callable[[str], bool]) -> tuple[str, int] | None:
    """File and line of the submitted module's frame that the event is to be laid to, or None."""
    frame: types.FrameType | None = sys._getframe(2)
    if name == "sys._getframe":
        return _asker(frame, is_own)
    if name.startswith("object."):
        return _direct(frame, is_own)
    nearest = entry = ""
    while frame is not None:
        filename = frame.f_code.co_filename
        kind = kind_of(filename, is_own)
        if kind == "harness":
            return None
        if kind == "own" or (kind == "generated" and not nearest):
            return None if _is_innocent(name, nearest, entry) else (filename, frame.f_lineno)
        if kind == "package":
            nearest, entry = nearest or filename, filename
        frame = frame.f_back
    return None


def _is_innocent(name: str, nearest: str, entry: str) -> bool:
    """Whether a library may do that by itself: `nearest` of its files caused the event, `entry` is the one that was called."""
    if not nearest:
        return False
    allowed = any((name, part) in _ALLOWED for part in _package_of(nearest))
    return allowed and _package_of(entry)[1] not in _NO_ENTRY


def _direct(frame: types.FrameType | None, is_own: Callable[[str], bool]) -> tuple[str, int] | None:
    """Who reads the frame or gets it from the standard library: printing a traceback is nobody's crime."""
    while frame is not None:
        filename = frame.f_code.co_filename
        kind = kind_of(filename, is_own)
        if kind in USERS:
            return filename, frame.f_lineno
        if kind != "standard" or _only_prints(filename, frame.f_code.co_name):
            return None
        frame = frame.f_back
    return None


def _only_prints(filename: str, function: str) -> bool:
    """Functions of the standard library that keep the frames of a traceback to themselves."""
    if os.path.basename(filename) == "traceback.py":
        return function not in ("walk_tb", "walk_stack")
    return filename.endswith("logging/__init__.py")


def _asker(frame: types.FrameType | None, is_own: Callable[[str], bool]) -> tuple[str, int] | None:
    """Who asked for a frame: its caller, or the caller of `inspect` and the like."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if kind_of(filename, is_own) in USERS:
            return filename, frame.f_lineno
        if not _hands_out_frames(filename, frame.f_code.co_name):
            return None
        frame = frame.f_back
    return None


def asker_of(frame: types.FrameType | None, is_own: Callable[[str], bool]) -> int | None:
    """The submitted module's line, if it asks by itself or by way of the standard library alone."""
    while frame is not None:
        kind = kind_of(frame.f_code.co_filename, is_own)
        if kind != "standard":
            return frame.f_lineno if kind in USERS else None
        frame = frame.f_back
    return None


def _hands_out_frames(filename: str, function: str) -> bool:
    """Functions of the standard library that give a frame to their caller."""
    if filename.endswith("logging/__init__.py"):
        return function in ("currentframe", "<lambda>")
    return os.path.basename(filename) == "inspect.py" or (
        os.path.basename(filename) == "traceback.py" and function == "walk_stack"
    )


def _is_suspicious(name: str, args: tuple[Any, ...]) -> bool:
    if name == "open":
        return _is_suspicious_open(args)
    if name == "compile":
        filename = args[1] if len(args) > 1 else None
        filename = os.fsdecode(filename) if isinstance(filename, bytes) else filename
        if not (isinstance(filename, str) and filename.startswith((*_SITE, *_STANDARD, _HARNESS))):
            return False
        return not _is_text_of(args[0], filename)
    if name == "import":
        return bool(args) and str(args[0]).split(".")[0] == "gpu_runner"
    if name in ("object.__getattr__", "object.__setattr__"):
        attribute = args[1] if len(args) > 1 else ""
        if name.endswith("__setattr__"):
            return attribute == "__code__" or (attribute in _DEFAULTS and _is_foreign(args[0]))
        return attribute in _RESTRICTED_ATTRIBUTES
    if name == "mmap.__new__":
        return bool(args) and args[0] != -1
    return True


def _is_text_of(source: Any, filename: str) -> bool:
    """Whether a library file is compiled as it lies there: an import does that where no bytecode was kept."""
    if isinstance(source, str):
        source = source.encode()
    try:
        with open(filename, "rb") as file:
            return bool(file.read() == source)
    except OSError:
        return False


def _is_foreign(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith((*_SITE, _HARNESS))


def _is_suspicious_open(args: tuple[Any, ...]) -> bool:
    path = args[0] if args else None
    mode, flags = (args[1] if len(args) > 1 else None), (args[2] if len(args) > 2 else 0)
    writes = any(c in (mode or "") for c in "wax+") or bool(
        isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    )
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if path == os.devnull:
        return False
    if isinstance(path, str) and path.startswith(_MEMORY_FILES):
        return writes or path.startswith("/dev/") or not _is_innocent_proc(path)
    return writes


def _is_innocent_proc(path: str) -> bool:
    return path in ("/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/proc/self/cgroup")


USERS = ("own", "generated")
"""What only the submitted module can be: no library's generated code does by itself what is watched."""
_kinds: dict[str, str] = {}


def kind_of(filename: str, is_own: Callable[[str], bool]) -> str:
    """`own`, `harness`, `package`, `standard`, or `generated`: code of no file, as `exec` and data classes make it."""
    if is_own(filename):
        return "own"
    kind = _kinds.get(filename)
    if kind is None:
        kind = _kinds[filename] = _classify(filename)
    return kind


def _classify(filename: str) -> str:
    if filename.startswith(("<frozen ", "<__array_function__")):
        return "standard"
    path = os.path.realpath(filename) if os.path.isabs(filename) else filename
    if path.startswith(_SITE):
        return "package"
    if path.startswith(_HARNESS):
        return "harness"
    if path.startswith(_STANDARD):
        return "standard"
    return "generated" if filename.startswith("<") else "own"


def _package_of(filename: str) -> tuple[str, str]:
    """The name of the package, and the file as it lies below the folder of packages."""
    path = os.path.realpath(filename)
    for root in _SITE:
        if path.startswith(root):
            below = path[len(root) :]
            return below.split(os.sep)[0], below
    return "", ""


# The snapshot

_KEPT_TYPES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
    staticmethod,
    classmethod,
    property,
    type,
)
_MISSING = object()
_THREAD, _SIGNAL = "_thread.start_new_thread", "signal.signal"
_THREAD_STARTERS = ("start_new_thread", "start_new", "start_joinable_thread")
_SIGNAL_OWNERS = (signal, sys.modules["_signal"])
_SIGNAL_SETTERS = ("signal", "setitimer", "alarm", "set_wakeup_fd")
_STARTERS = (
    # No audit event tells of threads before Python 3.12, and none of signals.
    *((_THREAD, _thread, name) for name in _THREAD_STARTERS),
    *((_THREAD, threading, f"_{name}") for name in _THREAD_STARTERS),
    *((_SIGNAL, owner, name) for owner in _SIGNAL_OWNERS for name in _SIGNAL_SETTERS),
)
_CALLBACKS: tuple[tuple[list[Any], str], ...] = (
    (gc.callbacks, "leaves a callback with the garbage collector"),
    (sys.meta_path, "puts a finder of modules before those that there are"),
    (sys.path_hooks, "changes how modules are found"),
)
"""Lists whose entries are called in the middle of other people's work."""


def _snapshot(protected: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any, str, Any]]:
    for label, owner in protected:
        for name, value in list(vars(owner).items()):
            is_constant = label.startswith("gpu_runner.") and name.strip("_").isupper()
            if is_constant or isinstance(value, _KEPT_TYPES):
                yield label, owner, name, value
                if isinstance(value, types.FunctionType):
                    yield label, value, "__code__", value.__code__


def _changes(
    before: Iterable[tuple[str, Any, str, Any]], is_own: Callable[[str], bool]
) -> Iterator[Accusation]:
    for label, owner, name, value in before:
        now = owner.__code__ if name == "__code__" else vars(owner).get(name, _MISSING)
        if now is value:
            continue
        shown = f"{label}.{getattr(owner, '__name__', '') if name == '__code__' else name}"
        place = _place_of(now)
        if (label, name) in _ALLOWED_CHANGES and place and _package_of(place[0])[0] == label:
            continue
        yield Accusation(
            what=shown[:300],
            kind="tampering",
            detail=f"replaces {shown}, which the evaluation relies on",
            line=place[1] if place is not None and is_own(place[0]) else None,
        )


def _new_callbacks(
    before: Iterable[list[Any]], is_own: Callable[[str], bool]
) -> Iterator[Accusation]:
    for (now, detail), then in zip(_CALLBACKS, before, strict=True):
        for entry in now:
            if not any(entry is known for known in then):
                place = _place_of(entry) or _place_of_type(entry)
                if place is None or kind_of(place[0], is_own) == "own":
                    line = place[1] if place is not None else None
                    yield Accusation(what="callbacks", kind="tampering", detail=detail, line=line)


def _place_of_type(value: Any) -> tuple[str, int] | None:
    """File and line of the first method of an object's class."""
    methods = vars(value if isinstance(value, type) else type(value)).values()
    return next(filter(None, map(_place_of, methods)), None)


def _place_of(value: Any) -> tuple[str, int] | None:
    """File and first line of the code behind a function, method, property or class."""
    value = getattr(value, "__func__", getattr(value, "fget", None) or value)
    code = value if isinstance(value, types.CodeType) else getattr(value, "__code__", None)
    if isinstance(code, types.CodeType):
        return code.co_filename, code.co_firstlineno
    return None
