"""Answers about the GPU that is not there, so that honest host code runs on a machine without one.

`StandInDriver` is a Triton driver that knows its target but launches nothing. `answer_for(target)` makes
`torch.cuda`'s queries answer for the target, and `acting_as_gpu()` lets the candidate's own frames see their
tensors as CUDA tensors (`x.is_cuda`, `x.device`, `device="cuda"`), while torch itself still sees the CPU.
"""

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget

from gpu_runner.core.targets import Target
from gpu_runner.evaluation.child.sessions import Unevaluable

_HERE = str(Path(__file__).resolve().parents[2])
_OURS = (
    _HERE,
    *(
        str(Path(module.__file__).resolve().parent)
        for module in (torch, triton, numpy, contextlib)
        if module.__file__
    ),
)


def is_candidate_file(filename: str) -> bool:
    """Whether code of that file is the candidate's: not of torch, triton, the standard library or this project."""
    return not filename.startswith(_OURS) and not filename.startswith("<frozen")


def candidate_line(frame: types.FrameType | None = None) -> int | None:
    """The line of the nearest frame that is the candidate's."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if is_candidate_file(frame.f_code.co_filename):
            return frame.f_lineno
        frame = frame.f_back
    return None


def device_properties(target: Target) -> dict[str, Any]:
    """What Triton's driver utilities report for a device: sizes in bytes, clocks in kHz."""
    return {
        "max_shared_mem": target.shared_per_block,
        "max_num_regs": target.registers_per_sm,
        "multiprocessor_count": target.sms,
        "warpSize": target.warp_size,
        "sm_clock_rate": int(target.clock_hz / 1000),
        "mem_clock_rate": int(target.bandwidth / (2 * 640) / 1000),
        "mem_bus_width": 5120,
        "arch": str(target.arch),
    }


class StandInUtils:
    """The part of a driver's utilities that host code asks."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def get_device_properties(self, device: int = 0) -> dict[str, Any]:
        return device_properties(self._target)

    def load_binary(
        self, name: str, kernel: bytes, shared: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """(module, function, registers, spills, most threads): a plausible answer; compiling.py gives real ones."""
        return 1, 1, 32, 0, self._target.threads_per_block

    def set_printf_fifo_size(self, size: int) -> None:
        return


class StandInDriver:
    """A Triton driver for a target that is not present: compiles can be asked for, launches do nothing."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.utils = StandInUtils(target)

    def launcher_cls(self, source: object, metadata: object) -> Callable[..., None]:
        return lambda *args, **kwargs: None

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget(self.target.backend, self.target.arch, self.target.warp_size)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        return self.target.capability

    def get_current_stream(self, device: object = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1)

    def clear_cache(self, cache: torch.Tensor) -> None:
        return

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return run_once_and_claim_a_millisecond

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty


def run_once_and_claim_a_millisecond(
    kernel_call: Callable[[], object], quantiles: object = None, **_: object
) -> list[float]:
    """Stands for a benchmark: every configuration looks the same."""
    kernel_call()
    return [1.0, 1.0, 1.0]


class StandInEvent:
    """An event that has always happened already."""

    cuda_event = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        return

    def record(self, stream: object = None) -> None:
        return

    def wait(self, stream: object = None) -> None:
        return

    def synchronize(self) -> None:
        return

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: object) -> float:
        """Milliseconds; so many that a benchmark which repeats for a while does so once."""
        return 1000.0


class StandInStream:
    """A stream on which nothing waits."""

    cuda_stream = 0
    stream_id = 0
    priority = 0
    device_index = 0
    device_type = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = _CUDA

    def synchronize(self) -> None:
        return

    def wait_stream(self, other: object) -> None:
        return

    def wait_event(self, event: object) -> None:
        return

    def record_event(self, event: object = None) -> object:
        return StandInEvent() if event is None else event

    def query(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StandInStream)

    def __hash__(self) -> int:
        return 0

    def __enter__(self) -> "StandInStream":
        return self

    def __exit__(self, *exc: object) -> None:
        return


_CPU = torch.device("cpu")
_CUDA = torch.device("cuda", 0)

_acting = 0
"""How many `acting_as_gpu` are active: a reference is never shown a GPU that is not there."""


def _for_the_candidate_only(real: Callable[..., Any], answer: Any) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        return answer if _acting and is_candidate_file(caller) else real(*args, **kwargs)

    return asked


def answer_for(target: Target) -> None:
    """Install the driver and make `torch.cuda` answer for the target; once per process, before the candidate."""
    triton.runtime.driver.set_active(StandInDriver(target))
    properties = types.SimpleNamespace(
        name=target.title,
        major=target.capability[0],
        minor=target.capability[1],
        multi_processor_count=target.sms,
        total_memory=target.memory_bytes,
        warp_size=target.warp_size,
        L2_cache_size=target.l2_bytes,
        max_threads_per_multi_processor=target.warps_per_sm * target.warp_size,
        max_threads_per_block=target.threads_per_block,
        regs_per_multiprocessor=target.registers_per_sm,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=target.shared_per_block,
        shared_memory_per_multiprocessor=target.shared_per_sm,
        gcnArchName=str(target.arch),
    )
    cuda: Any = torch.cuda
    cuda.is_available = _for_the_candidate_only(cuda.is_available, True)
    cuda.is_initialized = _for_the_candidate_only(cuda.is_initialized, True)
    cuda.device_count = _for_the_candidate_only(cuda.device_count, 1)
    cuda.get_device_properties = lambda device=None: properties
    cuda.get_device_capability = lambda device=None: target.capability
    cuda.get_device_name = lambda device=None: target.title
    cuda.mem_get_info = lambda device=None: (target.memory_bytes, target.memory_bytes)
    cuda.current_device = lambda: 0
    cuda.current_stream = lambda device=None: StandInStream()
    cuda.default_stream = lambda device=None: StandInStream()
    cuda.Stream = cuda.ExternalStream = StandInStream
    cuda.Event = StandInEvent
    cuda.is_bf16_supported = lambda *args, **kwargs: True
    cuda.is_current_stream_capturing = lambda: False
    cuda.initial_seed = torch.initial_seed
    cuda.get_rng_state = lambda device=None: torch.get_rng_state()
    cuda.set_rng_state = lambda state, device=None: torch.set_rng_state(state)
    for name in _MEMORY_QUERIES:
        setattr(cuda, name, lambda device=None: 0)
    for name in _WITHOUT_EFFECT:
        setattr(cuda, name, _do_nothing)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(cuda.nvtx, name, _do_nothing)
    for name in ("stream", "device", "device_of"):
        setattr(cuda, name, lambda *_: contextlib.nullcontext())
    for name in ("CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle"):
        setattr(cuda, name, _no_graphs)
    torch.Tensor.record_stream = _do_nothing
    _answer_as_accelerator()


def _answer_as_accelerator() -> None:
    """The same questions in the words that name no vendor."""
    accelerator: Any = torch.accelerator
    accelerator.is_available = _for_the_candidate_only(accelerator.is_available, True)
    accelerator.device_count = _for_the_candidate_only(accelerator.device_count, 1)
    accelerator.current_accelerator = _for_the_candidate_only(
        accelerator.current_accelerator, torch.device("cuda")
    )
    accelerator.current_device_index = lambda: 0
    accelerator.current_stream = lambda device=None: StandInStream()
    accelerator.synchronize = _do_nothing


_MEMORY_QUERIES = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
)
_WITHOUT_EFFECT = (
    "init",
    "set_device",
    "set_stream",
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
)


def _do_nothing(*args: object, **kwargs: object) -> None:
    return


def _no_graphs(*args: object, **kwargs: object) -> None:
    raise Unevaluable("CUDA graphs")


def _asking() -> str:
    """The file whose code reads a tensor's attribute; what other modes pass on was asked by their caller."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name == "__torch_function__":
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None else ""


def _on_the_host(value: Any) -> Any:
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return _CPU
    return value


class _ActingAsGpu(TorchFunctionMode):  # type: ignore[misc]
    """Redirects CUDA devices to the host and shows the candidate's frames CUDA tensors."""

    def __torch_function__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SHOWN:
            answer = func(*args)
            return _SHOWN[func](answer) if is_candidate_file(_asking()) else answer
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.pin_memory:
            return args[0]
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _on_the_host(kwargs["device"])}
        if func is torch.Tensor.to:
            args = tuple(_on_the_host(arg) for arg in args)
        return func(*args, **kwargs)


_SHOWN: dict[Any, Callable[[Any], Any]] = {
    torch.Tensor.is_cuda.__get__: lambda answer: True,
    torch.Tensor.is_cpu.__get__: lambda answer: False,
    torch.Tensor.device.__get__: lambda answer: _CUDA if answer.type == "cpu" else answer,
    torch.Tensor.get_device: lambda answer: 0,
}


@contextlib.contextmanager
def acting_as_gpu() -> Iterator[None]:
    """While active, the candidate's host code meets a GPU: use it around construct, load and call of a candidate."""
    global _acting
    _acting += 1
    try:
        with _ActingAsGpu():
            yield
    finally:
        _acting -= 1
