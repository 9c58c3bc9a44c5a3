"""A warm process from which children are forked, each isolated before it runs anything of a user.

`python -m gpu_runner.evaluation.child.zygote KIND FD MODE NICENESS` imports what its kind needs, reports on
the control socket FD, and forks one child per request. It runs no submitted code itself, holds no
secret, and never touches a device.

A child is two processes: a *keeper*, process 1 of a new pid namespace, and the *worker* that runs
the entry. The keeper is ours to the end: it captures the output, enforces the limits, ends every
descendant and reports how the worker ended. The worker can neither see the keeper's memory nor
signal it, and knows no process outside.

Both need no capability once the namespaces stand, so the keeper gives all of them up before it
forks. The user of a child may be the host's root by number; therefore /proc/sys and the like are
covered read only, as their files ask for the number alone.
"""

import base64
import contextlib
import ctypes
import gc
import importlib
import os
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.child import seccomp
from gpu_runner.evaluation.child.keeper import Keeper
from gpu_runner.evaluation.errors import ChildCrashed, TimedOut

CHILD = "gpu_runner.evaluation.child"
TRITON = ("torch", "triton", "triton.language")
IMPORTS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "interpreter": TRITON,
    "compile": TRITON,
    "cuda": TRITON,
}
PRELOADED: dict[str, tuple[str, ...]] = {
    "plain": (),
    "interpreter": (f"{CHILD}.judge", f"{CHILD}.player", f"{CHILD}.interpreter"),
    "compile": (f"{CHILD}.player", f"{CHILD}.compiling", "libcst", "libcst.metadata"),
    "cuda": (f"{CHILD}.judge", f"{CHILD}.player"),
}
"""What children import first anyway; a tenth of a second saved per fork, none of it needed here."""

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x8000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_INERT = MS_NOSUID | MS_NODEV | MS_NOEXEC
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
CAPABILITY_VERSION_3 = 0x20080522

# Threads of all children of a zygote together; the kernel counts neither finer nor, for root, at all.
TASKS_LIMIT = 4096
PIDS_LIMIT = 1024
PROC_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "pressure", "mtrr", "asound")
PROC_HIDDEN = tuple(
    "kcore keys latency_stats timer_list sched_debug slabinfo vmallocinfo pagetypeinfo"
    " kpagecount kpageflags kpagecgroup".split()
)
CACHES = {
    "HOME": ".",
    "TMPDIR": ".",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
}

libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Job:
    """What a worker has to do once it is isolated."""

    entry: str
    channel: Channel
    fds: list[int]


def main() -> None:
    kind, fd, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    runner = socket.socket(fileno=fd)
    control = Channel(runner)
    os.nice(int(sys.argv[4]))
    be_as_nice_in_session()
    gc.disable()
    for module in IMPORTS[kind]:
        end_if_deserted(runner)
        importlib.import_module(module)
    for module in PRELOADED[kind]:
        end_if_deserted(runner)
        # The child that needs it will say what is wrong with it.
        with contextlib.suppress(ImportError, SyntaxError):
            importlib.import_module(module)
    if kind == "cuda":
        build_driver()
    gc.collect()
    gc.freeze()
    gc.enable()
    # Keepers become our children when their parents end; the kernel forgets them once they do.
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become the reaper")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Process 1 of a namespace is immune to what it does not handle, and Python handles this one.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threads = len(os.listdir("/proc/self/task"))
    control.send({"ready": kind, "pid": os.getpid(), "threads": threads})
    job = serve(control, isolated=mode == "bwrap")
    if job:
        work(job)
    os._exit(0)


def end_if_deserted(runner: socket.socket) -> None:
    """Nobody ends us with the runner if it was killed before bubblewrap had asked for that."""
    with contextlib.suppress(BlockingIOError):
        if not runner.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            os._exit(0)


def be_as_nice_in_session() -> None:
    """Where the kernel shares the processors by sessions, a process's niceness holds among its own session alone.

    It lets this be said ten times a second, by all processes together.
    """
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    for _ in range(5 if niceness else 0):
        try:
            Path("/proc/self/autogroup").write_text(str(niceness))
        except BlockingIOError:
            time.sleep(0.1)
        except OSError:
            return
        else:
            return


def build_driver() -> None:
    """Triton's binding to the driver, which every child would have a C compiler make at its first launch.

    It loads the driver's library and does not start it. A child that needs it will say what is wrong with it.
    """
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        from triton.backends.nvidia.driver import CudaUtils

        CudaUtils()


def serve(control: Channel, *, isolated: bool) -> Job | None:
    """Fork a child per request; returns in each worker, and in the zygote when its owner is gone."""
    while True:
        try:
            request, fds = control.receive(1e6)
        except TimedOut:
            continue
        except ChildCrashed:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            return become_keeper(request, fds, isolated=isolated)
        for fd in fds:
            os.close(fd)


def become_keeper(request: dict[str, Any], fds: list[int], *, isolated: bool) -> Job:
    """Leave the zygote's namespaces; returns in the worker only."""
    channel, status = (Channel(socket.socket(fileno=fd)) for fd in fds[:2])
    lent, limits = fds[2:], request["limits"]
    try:
        if isolated:
            flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC
            check(libc.unshare(flags), "unshare")
        if os.fork():
            os._exit(0)
        if isolated:
            isolate(limits)
            lower(resource.RLIMIT_NPROC, TASKS_LIMIT)
        else:
            check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become the reaper")
        folder = write_files(request["files"])
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        lower(resource.RLIMIT_NOFILE, limits["open_files"])
        report_start(status)
    except OSError as error:
        status.send({"error": f"a child could not be isolated: {error}"})
        os._exit(1)
    read_end, write_end = os.pipe()
    worker = os.fork()
    if worker:
        channel.close()
        for fd in (write_end, *lent):
            os.close(fd)
        keep(Keeper(worker, status, read_end, limits, isolated=isolated), folder)
    status.close()
    settle(limits, write_end, kept={channel.fileno(), *lent})
    settle_in(folder)
    return Job(request["entry"], channel, lent)


def report_start(status: Channel) -> None:
    pidfd = os.pidfd_open(os.getpid())
    status.send({"started": True}, [pidfd])
    os.close(pidfd)


def keep(keeper: Keeper, folder: Path) -> NoReturn:
    try:
        keeper.watch()
        if not keeper.isolated:
            shutil.rmtree(folder, ignore_errors=True)
        keeper.report()
    finally:
        os._exit(0)


def isolate(limits: dict[str, Any]) -> None:
    """A private view of files and processes, then no capability to change it."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    size = f"size={limits['scratch_bytes']}"
    for folder in ("/tmp", "/dev/shm"):
        kept = [(point, os.open(point, os.O_PATH)) for point in mounts_below(folder)]
        mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, f"{size},mode=1777")
        for point, original in kept:
            bind_again(point, original)
    mount("tmpfs", "/dev/pts", "tmpfs", MS_RDONLY, "size=4k")
    mount("proc", "/proc", "proc", MS_INERT)
    limit_pids()
    for path in existing(PROC_READ_ONLY):
        mount(path, path, None, MS_BIND | MS_REC)
        mount(None, path, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_INERT)
    for path in existing(PROC_HIDDEN):
        mount("/dev/null", path, None, MS_BIND)
    drop_privileges()


def existing(names: tuple[str, ...]) -> list[str]:
    return [path for name in names if os.path.exists(path := f"/proc/{name}")]


def mounts_below(folder: str) -> list[str]:
    """What bubblewrap bound below a folder that is about to be covered: an environment or a checkout that lies there."""
    fields = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    points = [unescaped(field[4]) for field in fields]
    return sorted(point for point in points if point.startswith(f"{folder}/"))


def unescaped(point: str) -> str:
    """A path as /proc/self/mountinfo writes it: blanks and backslashes are octal there."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point)


def bind_again(point: str, original: int) -> None:
    """Show at its own place, read only as before, what a new file system has covered."""
    if os.path.isdir(f"/proc/self/fd/{original}"):
        os.makedirs(point, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(point), exist_ok=True)
        Path(point).touch()
    mount(f"/proc/self/fd/{original}", point, None, MS_BIND | MS_REC)
    os.close(original)


def limit_pids() -> None:
    """Since Linux 6.14 every pid namespace has a bound of its own, threads included."""
    if linux_version() >= (6, 14):
        Path("/proc/sys/kernel/pid_max").write_text(str(PIDS_LIMIT))


def linux_version() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def drop_privileges() -> None:
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs")
    check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "become non-dumpable")
    check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "clear ambient")
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        check(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "drop the bounding set")
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    check(libc.capset(header, (ctypes.c_uint32 * 6)()), "drop capabilities")
    seccomp.install()


def lower(kind: int, value: int) -> None:
    """Set a limit, hard and soft, never above the one in force."""
    hard = resource.getrlimit(kind)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def settle(limits: dict[str, Any], output: int, kept: set[int]) -> None:
    """In the worker: its streams, descriptors and the limits that are its own."""
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "end with the keeper")
    os.setsid()
    be_as_nice_in_session()
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    close_all_but({0, 1, 2, *kept})
    Path("/proc/self/oom_score_adj").write_text("1000")
    if limits["file_bytes"] is not None:
        lower(resource.RLIMIT_FSIZE, limits["file_bytes"])
    if limits["address_bytes"] is not None:
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        lower(resource.RLIMIT_AS, in_use + limits["address_bytes"])


def settle_in(folder: Path) -> None:
    os.chdir(folder)
    os.environ.update({name: str(folder / path) for name, path in CACHES.items()})
    tempfile.tempdir = None


def close_all_but(kept: set[int]) -> None:
    edges = sorted(kept)
    for low, high in zip(edges, [*edges[1:], 1 << 20], strict=True):
        os.closerange(low + 1, high)


def write_files(files: dict[str, str]) -> Path:
    """A new folder with the work files, where the worker starts; private to an isolated child."""
    folder = Path(tempfile.mkdtemp(prefix="foundry-", dir="/tmp"))
    for name, text in files.items():
        (folder / name).write_bytes(base64.b64decode(text))
    return folder


def work(job: Job) -> NoReturn:
    """Run the entry and end, without the interpreter's clean-up, which the entry may have changed."""
    code = 1
    try:
        entry(job.entry)(job.channel, job.fds)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - the child's main
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code & 0xFF)


def entry(name: str) -> Callable[[Channel, list[int]], None]:
    module, _, function = name.partition(":")
    found: Callable[[Channel, list[int]], None] = getattr(importlib.import_module(module), function)
    return found


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    names = [None if name is None else os.fsencode(name) for name in (source, target, kind)]
    check(libc.mount(*names, flags, os.fsencode(options) or None), f"mount {target}")


def check(result: int, what: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


if __name__ == "__main__":
    main()
