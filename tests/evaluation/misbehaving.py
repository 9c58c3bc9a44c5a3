"""Entries for children that do what submitted code might; each gets `(channel, fds)`."""

import contextlib
import ctypes
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

FOREVER_S = 600


def hello(channel, fds):
    print("hello from the child")
    message, _ = channel.receive(30)
    channel.send({"echo": message, "files": sorted(os.listdir(".")), "folder": os.getcwd()})


def environment(channel, fds):
    channel.send({"variables": dict(os.environ), "stdin": os.read(0, 10).decode()})


def niceness(channel, fds):
    sessions = None
    with contextlib.suppress(OSError), open("/proc/self/autogroup") as file:
        sessions = int(file.read().split()[-1])
    channel.send({"own": os.getpriority(os.PRIO_PROCESS, 0), "of its session": sessions})


def read_fd(channel, fds):
    channel.send({"read": [os.read(fd, 100).decode() for fd in fds]})


def hang_ignoring_signals(channel, fds):
    for number in range(1, 65):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    channel.send({"hanging": True})
    while True:
        time.sleep(FOREVER_S)


def crash(channel, fds):
    ctypes.string_at(0)


def abort(channel, fds):
    os.abort()


def kill_itself(channel, fds):
    os.kill(os.getpid(), signal.SIGKILL)


def exit_with_7(channel, fds):
    os._exit(7)


def raise_an_error(channel, fds):
    raise ValueError("what the child says")


def fork_bomb(channel, fds):
    channel.send({"bombing": True})
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def daemonise(channel, fds):
    """A grandchild that has left session, process group and parent."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(1, 65):
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_IGN)
            channel.send({"pid": os.getpid()})
            time.sleep(FOREVER_S)
        os._exit(0)
    os.wait()
    channel.receive(FOREVER_S)


def attack_keeper(channel, fds):
    """Whatever signal: process 1 must outlive it and still report how we end."""
    if os.getppid() == 1 and os.getpid() < 10:
        for number in range(1, 65):
            with contextlib.suppress(OSError):
                os.kill(1, number)
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGSTOP)
    channel.send({"survived": True})


def allocate_a_terabyte(channel, fds):
    try:
        mmap.mmap(-1, 1 << 40)
    except OSError as error:
        channel.send({"refused": str(error)})


def fill_memory(channel, fds):
    channel.send({"filling": True})
    chunks = []
    while True:
        chunks.append(b"x" * (16 << 20))


def fill_shared_memory(channel, fds):
    channel.send({"filling": True})
    area = mmap.mmap(-1, 4 << 30)
    while True:
        area.write(b"x" * (16 << 20))


def fill_tmp(channel, fds):
    channel.send({"filling": True})
    with contextlib.suppress(OSError):
        for number in range(10_000):
            with open(f"/tmp/{number}", "wb") as file:
                file.write(b"x" * (8 << 20))
    time.sleep(FOREVER_S)


def write_a_large_file(channel, fds):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with open("/tmp/large", "wb") as file:
            for _ in range(64):
                file.write(b"x" * (1 << 20))
    except OSError as error:
        channel.send({"refused": error.strerror})


def flood_stdout(channel, fds):
    channel.send({"flooding": True})
    line = b"flood " * 10_000
    while True:
        os.write(1, line)


def print_much_and_end(channel, fds):
    for number in range(20_000):
        print("line", number)
    print("the last line")


def flood_channel(channel, fds):
    while True:
        channel.send({"text": "x" * 100_000})


def answer_garbage(channel, fds):
    os.write(channel.fileno(), struct.pack("!I", 12) + b"not json at ")
    time.sleep(FOREVER_S)


def announce_a_huge_message(channel, fds):
    os.write(channel.fileno(), struct.pack("!I", 0xFFFFFFF0) + b"x" * 1000)
    time.sleep(FOREVER_S)


def send_descriptors_without_end(channel, fds):
    sock = socket.socket(fileno=os.dup(channel.fileno()))
    body = struct.pack("!I", 2) + b"{}"
    while True:
        with contextlib.suppress(OSError):  # the kernel bounds how many are under way
            socket.send_fds(sock, [body], [0] * 200)


def delete_everything(channel, fds):
    subprocess.run(["rm", "-rf", *sys.path[1:], "/usr/bin", "/foundry", "/dev/null"], check=False)
    alive = [path for path in ("/usr/bin/env", "/foundry", "/dev/null") if os.path.exists(path)]
    channel.send({"alive": alive})


def use_the_network(channel, fds):
    (port,) = json.loads(os.read(fds[0], 100))
    failures = []
    for address in (("127.0.0.1", port), ("192.0.2.1", 9)):
        try:
            socket.create_connection(address, timeout=2)
        except OSError as error:
            failures.append(type(error).__name__)
    channel.send({"failures": failures})


def forbidden_calls(channel, fds):
    libc = ctypes.CDLL(None, use_errno=True)
    outcomes = {}
    for name, arguments in {
        "unshare": (0x10000000,),
        "setns": (0, 0),
        "mount": (b"none", b"/tmp", b"tmpfs", 0, None),
        "ptrace": (0, 0, 0, 0),
    }.items():
        ctypes.set_errno(0)
        result = getattr(libc, name)(*arguments)
        outcomes[name] = ctypes.get_errno() if result else 0
    outcomes["clone"] = clone_with_a_user_namespace(libc)
    channel.send({"outcomes": outcomes, "threads": start_a_thread(), "spawned": spawn()})


def clone_with_a_user_namespace(libc):
    ctypes.set_errno(0)
    result = libc.syscall(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    return ctypes.get_errno() if result < 0 else 0


def start_a_thread():
    """Threads and programs must go on working beside the refusals."""
    done = []
    thread = threading.Thread(target=done.append, args=(1,))
    thread.start()
    thread.join()
    return len(done)


def spawn():
    return subprocess.run(["/bin/echo", "spawned"], capture_output=True, text=True).stdout.strip()


def import_torch_and_add(channel, fds):
    import torch

    total = (torch.ones(1000) + torch.ones(1000)).sum().item()
    interpret = os.environ.get("TRITON_INTERPRET")
    channel.send({"total": total, "interpret": interpret, "cuda": torch.cuda.is_initialized()})
