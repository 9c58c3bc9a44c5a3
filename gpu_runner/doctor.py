"""Checks whether this machine can evaluate candidates, and says what to do where it cannot."""

import contextlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from gpu_runner.evaluation.devices import all_gpus, package_version
from gpu_runner.evaluation.errors import ChildFailed, RunnerError
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.sandbox import Sandbox
from gpu_runner.evaluation.selftest import self_test
from gpu_runner.evaluation.settings import EvaluationSettings

CHECKS_ENTRY: Final = "gpu_runner.evaluation.child.checks"
PACKAGES: Final = {"torch": (2, 11), "triton": (3, 6), "libcst": (1, 4)}
FREE_DISK_BYTES: Final = 2 << 30
MEMORY_BYTES: Final = 4 << 30
INSTALL: Final = "run `make setup`, or pip install -c constraints.txt -e ."


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; `advice` says what to do and is empty where nothing is."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


def report() -> list[Check]:
    """All checks, cheap ones first. Takes some seconds: children start and compile a kernel."""
    checks = [_python(), *map(_package, PACKAGES), _bubblewrap(), _user_namespaces()]
    checks += [_sandbox(), _gpu(), _disk(), _memory()]
    if all(check.ok for check in checks if check.name in ("torch", "triton", "sandbox")):
        checks += _kernels()
    return checks


def _python() -> Check:
    ok = sys.version_info >= (3, 11)
    return Check("python", ok, platform.python_version(), "" if ok else "use Python 3.11 or newer")


def _package(name: str) -> Check:
    found, least = package_version(name), PACKAGES[name]
    wanted = ".".join(map(str, least))
    if found is None:
        return Check(name, False, "not installed", INSTALL)
    ok = _numbers(found) >= least
    return Check(name, ok, found, "" if ok else f"needs {wanted} or newer; {INSTALL}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())


def _bubblewrap() -> Check:
    path = shutil.which("bwrap")
    advice = "apt-get install bubblewrap (Debian, Ubuntu) or dnf install bubblewrap (Fedora)"
    return Check("bubblewrap", bool(path), path or "not installed", "" if path else advice)


def _user_namespaces() -> Check:
    """The switches of distributions that forbid them to ordinary users; root needs none."""
    switches: dict[str, Callable[[int], bool]] = {
        "/proc/sys/user/max_user_namespaces": lambda value: value > 0,
        "/proc/sys/kernel/unprivileged_userns_clone": lambda value: value == 1 or not os.getuid(),
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
            lambda value: value == 0 or not os.getuid()
        ),
    }
    for path, allows in switches.items():
        with contextlib.suppress(OSError, ValueError):
            if not allows(int(Path(path).read_text())):
                name = path.removeprefix("/proc/sys/").replace("/", ".")
                advice = f"an administrator can allow them: sysctl {name}, or a profile for bwrap"
                return Check("user namespaces", False, f"forbidden by {name}", advice)
    return Check("user namespaces", True, "allowed")


def _sandbox() -> Check:
    try:
        escapes = self_test(Sandbox("bwrap"))
    except RunnerError as error:
        return Check("sandbox", False, str(error), "mend what is named above this line first")
    if escapes:
        advice = "run nothing of a stranger here; report this with the version of your kernel"
        return Check("sandbox", False, "; ".join(escapes), advice)
    return Check("sandbox", True, "every escape that was tried failed")


def _gpu() -> Check:
    gpus = all_gpus()
    if not gpus:
        return Check("gpu", True, "none: kernels are interpreted, compiled, and speed is modelled")
    torch = package_version("torch") or ""
    names = ", ".join(gpu.name for gpu in gpus)
    if torch.endswith("+cpu"):
        return Check("gpu", False, names, f"torch {torch} has no CUDA; install a CUDA build")
    return Check("gpu", True, f"{names}, driver {gpus[0].driver or 'unknown'}")


def _disk() -> Check:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    ok = free >= FREE_DISK_BYTES
    advice = f"free at least {FREE_DISK_BYTES >> 30} GB in {tempfile.gettempdir()}"
    return Check("disk", ok, f"{free / 1e9:.1f} GB free", "" if ok else advice)


def _memory() -> Check:
    available = psutil.virtual_memory().available
    ok = available >= MEMORY_BYTES
    advice = f"close something: judge and players want {MEMORY_BYTES >> 30} GB"
    return Check("memory", ok, f"{available / 1e9:.1f} GB available", "" if ok else advice)


def _kernels() -> Iterator[Check]:
    """A Triton vector addition, three ways, each in the sandbox."""
    has_gpu = bool(all_gpus()) and not (package_version("torch") or "").endswith("+cpu")
    device = "cuda" if has_gpu else "cpu"
    try:
        with open_pool(EvaluationSettings(device=device)) as pool:
            yield _kernel(pool, "triton interpreter", "add_interpreted", "interpreter")
            yield _kernel(pool, "triton compiler for sm_90", "add_compiled", "compile")
            if has_gpu:
                yield _kernel(pool, "triton on the gpu", "add_on_gpu", "cuda")
    except RunnerError as error:
        yield Check("triton", False, str(error), "mend what is named above this line first")


def _kernel(pool: LocalPool, name: str, function: str, nursery: str) -> Check:
    try:
        answer = pool.call(f"{CHECKS_ENTRY}:{function}", {}, nursery=nursery, timeout_s=120)
    except ChildFailed as error:
        return Check(name, False, error.detail, INSTALL)
    return Check(name, True, str(answer["detail"]))
