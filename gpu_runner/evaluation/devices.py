"""Which devices there are, what is recorded about them, and their lock; all without torch."""

import contextlib
import fcntl
import os
import platform
import re
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

from gpu_runner.core.evaluation import EVALUATOR_VERSION
from gpu_runner.evaluation.errors import DeviceLost

_SHARED_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU of this machine; `minor` is the number of its device node."""

    minor: int
    name: str
    uuid: str = ""
    driver: str = ""
    memory: str = ""


@dataclass(frozen=True)
class DeviceInfo:
    """The device of a pool.

    Args:
        inside: its name in a child, which sees this device alone: "cpu" or "cuda:0".
        lock_name: None where nothing is measured.
        fingerprint: results are comparable while this is equal; see `fingerprint`.
    """

    kind: Literal["cpu", "cuda"]
    name: str
    inside: str = "cpu"
    nodes: tuple[str, ...] = ()
    lock_name: str | None = None
    fingerprint: dict[str, Any] = field(default_factory=dict, compare=False)


def find_device(wanted: str, *, sandbox: str) -> DeviceInfo:
    """The device called `auto`, `cpu`, `cuda` or `cuda:N`, N counted as CUDA_VISIBLE_DEVICES has it.

    Raises:
        DeviceLost: there is no such device; the message lists what exists.
    """
    gpus = visible_gpus()
    if wanted == "cpu" or (wanted == "auto" and not (gpus and _torch_has_cuda())):
        return DeviceInfo("cpu", "cpu", fingerprint=fingerprint(None, sandbox))
    index = int(wanted.partition(":")[2] or 0)
    if wanted != "auto" and (index >= len(gpus) or not _torch_has_cuda()):
        raise DeviceLost(_why_not(wanted, gpus))
    gpu = gpus[index]
    nodes = (f"/dev/nvidia{gpu.minor}", *filter(os.path.exists, _SHARED_NODES))
    return DeviceInfo(
        "cuda",
        gpu.name,
        "cuda:0",
        nodes,
        f"cuda-{gpu.uuid or gpu.minor}",
        fingerprint(gpu, sandbox),
    )


def fingerprint(gpu: Gpu | None, sandbox: str) -> dict[str, Any]:
    """What a verdict or a time may depend on, as recorded with every evaluation."""
    common = {
        "evaluator": EVALUATOR_VERSION,
        "python": platform.python_version(),
        "torch": package_version("torch"),
        "triton": package_version("triton"),
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "sandbox": sandbox,
    }
    if gpu is None:
        return common | {"gpu": None, "driver": None}
    return common | {"gpu": gpu.name, "gpu_memory": gpu.memory, "driver": gpu.driver}


def package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def visible_gpus() -> list[Gpu]:
    """The GPUs in CUDA's order, restricted by CUDA_VISIBLE_DEVICES as CUDA does."""
    gpus = all_gpus()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(gpus)
    visible = []
    for name in filter(None, (part.strip() for part in chosen.split(","))):
        gpu = _named(name, gpus)
        if gpu is None:
            break
        visible.append(gpu)
    return visible


def _named(name: str, gpus: tuple[Gpu, ...]) -> Gpu | None:
    if name.isdigit():
        return gpus[int(name)] if int(name) < len(gpus) else None
    return next((gpu for gpu in gpus if gpu.uuid.startswith(name)), None)


@cache
def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU with a device node; costs up to a second where there are some, once."""
    minors = [int(node.name[6:]) for node in Path("/dev").glob("nvidia[0-9]*")]
    if not minors:
        return ()
    known = _described_gpus()
    if known:
        return tuple(gpu for gpu in known if gpu.minor in minors)
    return tuple(Gpu(minor, "NVIDIA GPU") for minor in sorted(minors))


def _described_gpus() -> list[Gpu]:
    """What the driver's own tool says, in the order of the bus; without it, what the driver says."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "-q", "-x"], capture_output=True, timeout=30, check=True
        )
        return gpus_in(answer.stdout)
    except (OSError, subprocess.SubprocessError, ElementTree.ParseError):
        files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        return [gpu_in(file.read_text()) for file in files]


def gpu_in(information: str) -> Gpu:
    """One GPU from the driver's text, in which each line is a name, a colon and a value."""
    lines = (line.partition(":") for line in information.splitlines())
    told = {name.strip(): value.strip() for name, _, value in lines}
    minor = int(told.get("Device Minor", "0"))
    return Gpu(minor, told.get("Model", "NVIDIA GPU"), told.get("GPU UUID", ""))


def gpus_in(xml: bytes) -> list[Gpu]:
    root = ElementTree.fromstring(xml)
    driver = root.findtext("driver_version", "")
    return [
        Gpu(
            minor=int(gpu.findtext("minor_number", "0")),
            name=gpu.findtext("product_name", "NVIDIA GPU"),
            uuid=gpu.findtext("uuid", ""),
            driver=driver,
            memory=gpu.findtext("fb_memory_usage/total", ""),
        )
        for gpu in root.iter("gpu")
    ]


def _torch_has_cuda() -> bool:
    torch = package_version("torch")
    return torch is not None and not torch.endswith("+cpu")


def _why_not(wanted: str, gpus: list[Gpu]) -> str:
    if gpus and not _torch_has_cuda():
        return f"device {wanted}: torch {package_version('torch')} is built without CUDA; use cpu"
    names = ["cpu", *(f"cuda:{n} ({gpu.name})" for n, gpu in enumerate(gpus))]
    return f"there is no device {wanted}; this machine has: {', '.join(names)}"


class DeviceLock:
    """Keeps others, in this process or another, off a device while its speed is measured.

    Whoever works on the device holds it shared, whoever times exclusive, and neither while it works on the host alone. Going
    from one to the other lets go in between, so that two holders who both want to time cannot block each other. Whoever
    wants to time has priority: others start to work when nobody waits to time, so timings follow each other in a row
    instead of each waiting for somebody's work to end.

    Args:
        name: of the device; None locks nothing.

    Attributes:
        held_s: how long it was held exclusive, all times together, the present one not counted yet.
    """

    def __init__(self, name: str | None) -> None:
        self.held_s = 0.0
        self._exclusive_since: float | None = None
        self._device = None if name is None else _lock_file(name)
        self._timings = None if name is None else _lock_file(f"{name}-timings")

    def to_shared(self) -> None:
        """Wait until nobody times on this device, or waits to."""
        if self._device is not None and self._timings is not None:
            self.release()
            fcntl.flock(self._timings, fcntl.LOCK_EX)
            fcntl.flock(self._device, fcntl.LOCK_SH)
            fcntl.flock(self._timings, fcntl.LOCK_UN)

    def to_exclusive(self) -> None:
        """Wait until nobody else works or times on this device."""
        if self._device is not None and self._timings is not None:
            self.release()
            fcntl.flock(self._timings, fcntl.LOCK_SH)
            fcntl.flock(self._device, fcntl.LOCK_EX)
            self._exclusive_since = time.monotonic()

    def release(self) -> None:
        """Harmless where nothing is held."""
        if self._exclusive_since is not None:
            self.held_s += time.monotonic() - self._exclusive_since
            self._exclusive_since = None
        for fd in (self._device, self._timings):
            if fd is not None:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def close(self) -> None:
        for fd in (self._device, self._timings):
            if fd is not None:
                os.close(fd)


def _lock_file(name: str) -> int:
    """A descriptor of the file that stands for a device, in a folder of this user's own."""
    folder = Path(tempfile.gettempdir()) / f"kernel-foundry-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    safe = re.sub(r"[^A-Za-z0-9-]", "_", name)
    return os.open(folder / f"{safe}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
