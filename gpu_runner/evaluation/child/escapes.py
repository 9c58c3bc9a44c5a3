"""Tries to get out of the sandbox, as submitted code might; used by `selftest` only.

Each attempt is a function that returns what it reached, or nothing. They open, list and ask, and
change nothing outside even where they succeed, as long as the mount namespace is a new one.
"""

import contextlib
import ctypes
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_runner.evaluation.channel import Channel

MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 0x1000
CLONE_NEWUSER = 0x10000000
PTRACE_ATTACH = 16
AF_VSOCK = 40
MARK = "left-behind-by-an-earlier-child"
PRIVATE = ("/tmp", "/dev/shm")
PIDS_TRIED = 400
KERNEL_MEMORY = ("/proc/kcore", "/proc/kpageflags", "/proc/slabinfo", "/proc/keys")

libc = ctypes.CDLL(None, use_errno=True)


def main(channel: Channel, fds: list[int]) -> None:
    """Answers one request with the escapes that succeeded; leaves marks for the next child."""
    request, _ = channel.receive(30)
    attempts = {
        "keeps capabilities": capabilities,
        "can gain privileges": privileges,
        "changed mounts": mounts,
        "made a user namespace": user_namespace,
        "reads host files": lambda: host_files(request["visible"]),
        "reaches the network": lambda: network(request["port"], request["abstract"]),
        "sees other processes": processes,
        "signals other processes": signals,
        "reads another process's memory": memory,
        "writes outside its private folders": writable,
        "changes kernel settings": kernel_settings,
        "inherits variables": lambda: variables(request["variables"]),
        "inherits descriptors": lambda: descriptors(channel),
        "finds files of an earlier child": left_behind,
    }
    reached = {name: list(map(str, attempt() or [])) for name, attempt in attempts.items()}
    leave_marks()
    channel.send({"reached": {name: found[:20] for name, found in reached.items() if found}})


def status_lines() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def capabilities() -> list[str]:
    held = {name: value for name, value in status_lines().items() if name.startswith("Cap")}
    return [name for name, value in held.items() if int(value, 16)]


def privileges() -> list[str]:
    return [] if status_lines()["NoNewPrivs"] == "1" else ["no_new_privs is not set"]


def mounts() -> Iterator[str]:
    if not libc.mount(None, b"/", None, MS_REMOUNT | MS_BIND, None):
        libc.mount(None, b"/", None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)
        yield "/ is writable now"
    if not libc.mount(b"tmpfs", b"/usr", b"tmpfs", 0, None):
        yield "/usr is covered"
    for folder in (b"/proc/sys", b"/tmp"):
        if not libc.umount2(folder, 0):
            yield f"{folder.decode()} is uncovered"


def user_namespace() -> list[str]:
    return [] if libc.unshare(CLONE_NEWUSER) else ["with all capabilities in it"]


def host_files(visible: list[str]) -> Iterator[str]:
    """Whatever is not bound on purpose: `visible` are the folders and files that are."""
    for path in ("/etc/shadow", "/etc/passwd", "/proc/1/environ", *KERNEL_MEMORY):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if file.read(1):
                yield path
    for folder in ("/root", "/home", "/var", "/run", "/etc", "/mnt", "/opt", "/srv", "/work"):
        yield from beyond(folder, visible)


def beyond(folder: str, visible: list[str]) -> Iterator[str]:
    """What lies in a folder and is neither bound nor on the way to something bound."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            if path in visible:
                continue
            if any(bound.startswith(path + "/") for bound in visible):
                yield from beyond(path, visible)
            else:
                yield path


def network(port: int, abstract: str) -> Iterator[str]:
    """An address outside (nothing is sent: a datagram socket only looks for a route), and ours."""
    if connects(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9)):
        yield "a route to the outside"
    if connects(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)):
        yield "the host's loopback"
    if connects(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract):
        yield "an abstract socket of the host"
    with contextlib.suppress(OSError):
        socket.socket(AF_VSOCK, socket.SOCK_STREAM).close()
        yield "sockets to the hypervisor"


def connects(family: int, kind: int, address: Any) -> bool:
    try:
        with socket.socket(family, kind) as sock:
            sock.settimeout(1)
            sock.connect(address)
            return True
    except OSError:
        return False


def processes() -> list[str]:
    allowed = {"1", str(os.getpid())}
    return [name for name in os.listdir("/proc") if name.isdigit() and name not in allowed]


def signals() -> Iterator[str]:
    """Asks only (signal 0) whether it might; process 1 is our keeper and immune to what we send."""
    for pid in range(2, PIDS_TRIED):
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            if pid != os.getpid():
                yield f"process {pid}"


def memory() -> Iterator[str]:
    with contextlib.suppress(OSError), open("/proc/1/mem", "rb"):
        yield "/proc/1/mem"
    if not libc.ptrace(PTRACE_ATTACH, 1, 0, 0):
        yield "traces process 1"
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    if libc.process_vm_readv(1, vector, 1, vector, 1, 0) == 8:
        yield "process_vm_readv of process 1"


def writable() -> Iterator[str]:
    """Every mounted folder that is not read only, apart from the private ones and /proc."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        folder, options = line.split()[4:6]
        is_writable = "rw" in options.split(",") and os.access(folder, os.W_OK)
        if is_writable and os.path.isdir(folder) and folder not in (*PRIVATE, "/proc"):
            yield folder


def kernel_settings() -> Iterator[str]:
    """The kernel asks for the user's number alone here, so these need a read-only mount."""
    paths = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory")
    for path in (*paths, "/proc/sysrq-trigger", "/sys/kernel/mm/transparent_hugepage/enabled"):
        try:
            os.close(os.open(path, os.O_WRONLY))
            yield path
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT):
                yield f"{path}: {error}"


def variables(allowed: list[str]) -> list[str]:
    # Names only: a value might be a secret, and this answer may be printed.
    return [name for name in os.environ if name not in allowed]


def descriptors(channel: Channel) -> list[str]:
    """Descriptors beside the streams and the channel; the listing itself takes one for a moment."""
    allowed = {0, 1, 2, channel.fileno()}
    fds = {int(name) for name in os.listdir("/proc/self/fd")}
    return [f"{fd}" for fd in fds - allowed if os.path.exists(f"/proc/self/fd/{fd}")]


def places() -> Iterator[Path]:
    for folder in (*PRIVATE, "/", "/dev", "/run", "/var/tmp", "/foundry", str(Path.cwd())):
        yield Path(folder) / MARK


def left_behind() -> list[str]:
    return [str(path) for path in places() if path.exists()]


def leave_marks() -> None:
    for path in places():
        with contextlib.suppress(OSError):
            path.write_text("")
