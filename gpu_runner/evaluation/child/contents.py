"""What lies in the tensors of a call, as checksums: whether somebody wrote there whom nobody saw.

Engines of torch that dispatch nothing, other libraries and foreign code write like that. Memory that the host shares by
numpy and the like is left out: there, honest code makes its tables.
"""

import ctypes
import zlib
from collections.abc import Iterable

import torch

from gpu_runner.evaluation.child.flow import is_shared_with_host, storage_key

MOST_BYTES = 1 << 20
"""Larger storages are not followed; a checksum of this many takes a millisecond."""


class Contents:
    """Checksums of storages on the host, by storage; tensors are kept alive by whoever follows the call."""

    def __init__(self, *, is_followed: bool = True) -> None:
        self._is_followed = is_followed
        self._sums: dict[int, tuple[int, int]] = {}
        self._left_out: set[int] = set()

    def note(self, tensors: Iterable[torch.Tensor]) -> None:
        """They may have been written just now, by somebody who was seen."""
        for tensor in tensors if self._is_followed else ():
            found = self._look(tensor)
            if found is not None:
                self._sums[storage_key(tensor)] = found

    def changed(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Those that hold something else than when they were last noted."""
        return [
            tensor
            for tensor in tensors
            if (before := self._sums.get(storage_key(tensor))) is not None
            and (now := self._look(tensor)) is not None
            and now != before
        ]

    def leave_out(self, tensor: torch.Tensor) -> None:
        """The host may write to it from now on."""
        key = storage_key(tensor)
        self._left_out.add(key)
        self._sums.pop(key, None)

    def _look(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """Address and checksum; read past torch, for which whatever numpy has seen is shared with the host."""
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return None
        if storage_key(tensor) in self._left_out or is_shared_with_host(tensor):
            return None
        storage = tensor.untyped_storage()
        if not 0 < storage.nbytes() <= MOST_BYTES:
            return None
        held = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
        return storage.data_ptr(), zlib.crc32(held)
