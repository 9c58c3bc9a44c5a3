"""Device memory that the judge lends to a player as a file descriptor, through CUDA's virtual memory management.

One allocation is one physical handle. The judge maps it for reading and writing; a player maps what it imports for reading
only, unless it is an output, so that a candidate that writes to its inputs dies of an illegal access and the judge's copy
stays intact. It works across user, pid, ipc and mount namespaces, which legacy CUDA IPC does not.
"""

import os
from dataclasses import dataclass
from typing import Any, Final, Self

import torch
from cuda.bindings import driver

from gpu_runner.evaluation.child.memory import strided_view
from gpu_runner.evaluation.protocol import Placed

GRANULARITY: Final = 2 << 20


class CudaError(RuntimeError):
    """A call of the CUDA driver failed; its first argument is the name of the result."""


def checked(answer: tuple[Any, ...]) -> Any:
    """The values of a cuda-bindings answer without its result, or `CudaError`."""
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(result.name)
    return values[0] if len(values) == 1 else tuple(values)


class _Mapped:
    """What torch needs to see a mapped address as a tensor of bytes that it does not own."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


@dataclass
class CudaLent:
    """A mapped allocation. The tensors made from it are valid until `close`."""

    fd: int
    nbytes: int
    address: int
    size: int
    handle: Any
    device: torch.device

    def tensor(self, spec: Placed) -> torch.Tensor:
        """See `memory.Lent`; unlike there it dies with `close`."""
        flat = torch.as_tensor(_Mapped(self.address, self.size), device=self.device)
        return strided_view(flat, spec)

    def seal(self) -> None:
        """Nothing to do: who adopts it read only cannot write to it, and has the descriptor closed."""

    def close(self) -> None:
        torch.cuda.synchronize(self.device)
        checked(driver.cuMemUnmap(self.address, self.size))
        checked(driver.cuMemAddressFree(self.address, self.size))
        checked(driver.cuMemRelease(self.handle))
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CudaMemory:
    """Lends and adopts memory of one device; the first use starts CUDA in this process."""

    def __init__(self, device: str) -> None:
        self.device = torch.device("cuda", torch.device(device).index or 0)
        torch.zeros(1, device=self.device)

    def lend(self, nbytes: int) -> CudaLent:
        """Allocate at least `nbytes`; raises MemoryError where the device is full."""
        size = _rounded(nbytes)
        try:
            handle = checked(driver.cuMemCreate(size, self._properties(), 0))
        except CudaError as error:
            raise MemoryError(f"no device memory of {size} bytes: {error}") from error
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        fd = int(checked(driver.cuMemExportToShareableHandle(handle, kind, 0)))
        return CudaLent(
            fd, nbytes, self._map(handle, size, writable=True), size, handle, self.device
        )

    def adopt(self, fd: int, nbytes: int, *, writable: bool) -> CudaLent:
        """Map what another process lent and close the descriptor."""
        size = _rounded(nbytes)
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        handle = checked(driver.cuMemImportFromShareableHandle(fd, kind))
        os.close(fd)
        return CudaLent(
            -1, nbytes, self._map(handle, size, writable=writable), size, handle, self.device
        )

    def release_unused(self) -> None:
        torch.cuda.empty_cache()

    def free_share(self) -> float:
        free, total = torch.cuda.mem_get_info(self.device)
        return float(free / total)

    def _properties(self) -> Any:
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.requestedHandleTypes = (
            driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        )
        properties.location = self._location()
        return properties

    def _location(self) -> Any:
        location = driver.CUmemLocation()
        location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = self.device.index
        return location

    def _map(self, handle: Any, size: int, *, writable: bool) -> int:
        address = checked(driver.cuMemAddressReserve(size, 0, 0, 0))
        checked(driver.cuMemMap(address, size, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location = self._location()
        flags = driver.CUmemAccess_flags
        access.flags = (
            flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            if writable
            else flags.CU_MEM_ACCESS_FLAGS_PROT_READ
        )
        checked(driver.cuMemSetAccess(address, size, [access], 1))
        return int(address)


class Gate:
    """A word of lent memory that holds a stream back; both sides map it, the judge alone opens it."""

    def __init__(self, lent: CudaLent) -> None:
        self._address = lent.address

    def hold(self, ticket: int) -> None:
        """Let the current stream wait until the gate was opened for this ticket; tickets grow."""
        flags = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        checked(driver.cuStreamWaitValue32(self._stream(), self._address, ticket, flags))

    def open(self, ticket: int) -> None:
        flags = driver.CUstreamWriteValue_flags.CU_STREAM_WRITE_VALUE_DEFAULT
        checked(driver.cuStreamWriteValue32(self._stream(), self._address, ticket, flags))
        torch.cuda.current_stream().synchronize()

    def _stream(self) -> Any:
        return driver.CUstream(torch.cuda.current_stream().cuda_stream)


def _rounded(nbytes: int) -> int:
    return max(1, -(-nbytes // GRANULARITY)) * GRANULARITY
