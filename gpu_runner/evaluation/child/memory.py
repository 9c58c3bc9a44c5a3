"""Buffers that the judge lends to players by file descriptor; this file is the CPU's half.

`Memory` and `Lent` are the contract; `cuda_memory` keeps it with CUDA virtual memory. A lent buffer is
plain bytes: what lies where in it is told by `Placed` specs beside it. The judge lends and may seal; a
player adopts, read only unless told otherwise. Candidates never see lent memory as their inputs: the
player composes working inputs in private memory, so writing into an input hurts nobody else.
"""

import fcntl
import mmap
import os
import warnings
from collections.abc import Sequence
from typing import Protocol, Self

import torch

from gpu_runner.evaluation.protocol import Placed

ALIGNMENT = 256
_F_SEAL_FUTURE_WRITE = 0x0010  # Linux 5.1; Python names it from 3.13 on


class Lent(Protocol):
    """One allocation, mapped here. `fd` stays valid until `close`; sending it to a player duplicates it."""

    fd: int
    nbytes: int

    def tensor(self, spec: Placed) -> torch.Tensor:
        """The tensor of that dtype, shape and stride at `spec.offset`, over the lent bytes themselves."""

    def seal(self) -> None:
        """From now on nobody can map it writable; mappings that exist keep their rights."""

    def close(self) -> None:
        """Let go of the descriptor; memory goes with the last tensor over it, in whatever process."""


class Memory(Protocol):
    """Where lent buffers come from, one per device."""

    device: torch.device

    def lend(self, nbytes: int) -> Lent:
        """A new zeroed buffer of at least `nbytes`, writable here. Raises MemoryError when there is none."""

    def adopt(self, fd: int, nbytes: int, *, writable: bool) -> Lent:
        """Map a buffer that was lent to us; takes over `fd`. Not writable: a write is a fault, not an error."""

    def release_unused(self) -> None:
        """Give back what this process keeps for tensors to come; other processes may need it."""

    def free_share(self) -> float:
        """The part of the device's memory that no process holds, from 0 to 1; 1 of a host, which has limits of its own."""


def open_memory(device: str) -> Memory:
    """The memory of `cpu` or `cuda:N`; the latter needs cuda-bindings."""
    if torch.device(device).type == "cpu":
        return CpuMemory()
    from gpu_runner.evaluation.child import cuda_memory

    return cuda_memory.CudaMemory(device)


class CpuMemory:
    """Shared memory files without a name (memfd)."""

    device = torch.device("cpu")

    def lend(self, nbytes: int) -> "CpuLent":
        fd = os.memfd_create("buffer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, max(nbytes, mmap.PAGESIZE))
            return CpuLent(fd, nbytes, writable=True)
        except (OSError, ValueError) as error:
            os.close(fd)
            raise MemoryError(f"no shared memory of {nbytes} bytes: {error}") from error

    def release_unused(self) -> None:
        return

    def free_share(self) -> float:
        return 1.0

    def adopt(self, fd: int, nbytes: int, *, writable: bool) -> "CpuLent":
        held = os.fstat(fd).st_size
        if held < nbytes:
            os.close(fd)
            raise ValueError(f"buffer holds {held} bytes, expected {nbytes}")
        return CpuLent(fd, nbytes, writable=writable)


class CpuLent:
    def __init__(self, fd: int, nbytes: int, *, writable: bool) -> None:
        self.fd = fd
        self.nbytes = nbytes
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        length = max(nbytes, mmap.PAGESIZE)
        self._map = mmap.mmap(fd, length, mmap.MAP_SHARED, protection)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of read-only memory; it is meant
            self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def tensor(self, spec: Placed) -> torch.Tensor:
        return strided_view(self._bytes, spec)

    def seal(self) -> None:
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SHRINK)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def strided_view(flat: torch.Tensor, spec: Placed) -> torch.Tensor:
    """A tensor as `spec` describes it over `flat`, one-dimensional uint8, on any device."""
    dtype = dtype_named(spec.dtype)
    stride = contiguous_stride(spec.shape) if spec.stride is None else spec.stride
    nbytes = extent(spec.shape, stride) * dtype.itemsize
    part = flat[spec.offset : spec.offset + nbytes]
    if part.numel() != nbytes:
        raise ValueError(f"{spec} does not lie within {flat.numel()} bytes")
    return part.view(dtype).as_strided(spec.shape, stride)


def place(tensors: Sequence[torch.Tensor]) -> tuple[list[Placed], int]:
    """Where each tensor goes in one buffer that holds them all, and that buffer's size in bytes.

    Strides are kept, so that a transposed input is lent transposed.
    """
    places, offset = [], 0
    for tensor in tensors:
        stride = tuple(tensor.stride())
        places.append(
            Placed(
                shape=tuple(tensor.shape),
                dtype=dtype_name(tensor.dtype),
                stride=stride,
                offset=offset,
            )
        )
        nbytes = extent(tensor.shape, stride) * tensor.dtype.itemsize
        offset += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return places, offset


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements of storage from the first to the last element of a strided tensor."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    stride, step = [], 1
    for n in reversed(shape):
        stride.append(step)
        step *= max(n, 1)
    return tuple(reversed(stride))


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no dtype of torch")
    return dtype
