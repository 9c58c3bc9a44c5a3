"""Memory as the interpreter follows it: who wrote which element, and which argument an address belongs to."""

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_runner.evaluation.child.counting import TensorTraffic
from gpu_runner.evaluation.child.distinct import View, sharing, view_of
from gpu_runner.evaluation.child.memory import extent

MOST_TRACKED_BYTES = 1 << 28
NOBODY, SEVERAL = -1, -2


class Allocations(TorchDispatchMode):  # type: ignore[misc]
    """Follows which elements of fresh, uninitialised memory were written, and fills it with poison.

    Storages are kept alive until the session ends, so that an address is never reused within it.
    """

    _FRESH = frozenset(
        "aten::empty aten::empty_like aten::empty_strided aten::empty_permuted aten::new_empty"
        " aten::new_empty_strided".split()
    )

    def __init__(self, poison: float | None) -> None:
        super().__init__()
        self.poison = poison
        self.shadows: dict[int, Shadow] = {}

    def __torch_dispatch__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func._schema.name in self._FRESH:
            self._track(out)
        elif self.shadows and func._schema.is_mutable:
            for tensor in _mutated(func._schema, args, kwargs):
                self.mark_written(tensor)
        return out

    def _track(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu" or tensor.numel() == 0:
            return
        storage = tensor.untyped_storage()
        if storage.nbytes() > MOST_TRACKED_BYTES:
            return
        if self.poison is not None:
            fill_with_poison(tensor, self.poison)
        self.shadows[storage.data_ptr()] = Shadow(storage, tensor.element_size())

    def follow_stale(self, storage: torch.UntypedStorage, itemsize: int) -> None:
        """Reads of what an earlier call left there are told of, but for its commonest value: that is mere initialising."""
        if storage.nbytes() > MOST_TRACKED_BYTES or storage.nbytes() < itemsize:
            return
        itemsize = min(itemsize, 8)
        shadow = Shadow(storage, itemsize, kind="stale")
        with unseen_by_torch():
            held = torch.empty(0, dtype=torch.uint8).set_(storage).clone().numpy()
        elements = held[: shadow.written.size * itemsize].view(f"u{itemsize}")
        kinds, counts = np.unique(elements, return_counts=True)
        shadow.written[:] = elements == kinds[counts.argmax()]
        self.shadows[storage.data_ptr()] = shadow

    def _shadow_of(self, tensor: torch.Tensor) -> "Shadow | None":
        is_followed = tensor.device.type == "cpu" and tensor.layout == torch.strided
        if not self.shadows or not is_followed:
            return None
        return self.shadows.get(tensor.untyped_storage().data_ptr())

    def mark_written(self, tensor: torch.Tensor) -> None:
        shadow = self._shadow_of(tensor)
        if shadow is not None:
            with unseen_by_torch():
                shadow.elements_of(tensor).fill_(True)

    def unwritten_share(self, tensor: torch.Tensor) -> float:
        shadow = self._shadow_of(tensor)
        if shadow is None or shadow.kind != "unwritten" or tensor.numel() == 0:
            return 0.0
        with unseen_by_torch():
            return 1.0 - float(shadow.elements_of(tensor).float().mean())


class Shadow:
    """One flag per element of an allocation: was it written? `kind` is what reading an unwritten one is."""

    def __init__(
        self, storage: torch.UntypedStorage, itemsize: int, kind: str = "unwritten"
    ) -> None:
        self.kind = kind
        self.storage = storage
        self.itemsize = itemsize
        self.written = np.zeros(max(1, storage.nbytes() // itemsize), bool)

    def elements_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The flags at the tensor's elements; all of them when the tensor has another element size."""
        flags = torch.from_numpy(self.written)
        if tensor.element_size() != self.itemsize:
            return flags
        return flags.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


@contextlib.contextmanager
def unseen_by_torch() -> Iterator[None]:
    """Torch calls of the harness inside are seen by no dispatch and no function mode."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        yield


def fill_with_poison(tensor: torch.Tensor, poison: float) -> None:
    """Fill with `poison`; integers take it as an integer, NaN as a large odd one."""
    with unseen_by_torch():
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            try:
                tensor.fill_(poison)
            except (RuntimeError, NotImplementedError):  # 8-bit floats without fill
                tensor.view(torch.uint8).fill_(0x7E)
        elif tensor.dtype is torch.bool:
            tensor.view(torch.uint8).fill_(1)
        else:
            number = 85 if poison != poison else int(poison)
            limits = torch.iinfo(tensor.dtype)
            tensor.fill_(max(limits.min, min(limits.max, number)))


def _mutated(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield tensor


class Region:
    """One storage reachable by a launch, and who touched which element of it."""

    def __init__(self, lo: int, hi: int, itemsize: int, shadow: Shadow | None) -> None:
        self.lo, self.hi = lo, hi
        self.itemsize = shadow.itemsize if shadow else itemsize
        self.shadow = shadow
        self.is_written = False
        self.has_unmarked_reads = False
        self.adders: np.ndarray | None = None
        """The number of the program that last touched each element by an atomic operation; None: none did."""
        self._marks: tuple[np.ndarray, np.ndarray] | None = None

    def contains(self, lo: int, hi: int) -> bool:
        return self.lo <= lo and hi <= self.hi

    def elements(self, addresses: np.ndarray) -> np.ndarray:
        return ((addresses - np.uint64(self.lo)) // np.uint64(self.itemsize)).astype(np.int64)

    @property
    def marks(self) -> tuple[np.ndarray, np.ndarray]:
        """(writer, reader): the number of the program that last wrote and read each element."""
        if self._marks is None:
            size = -(-(self.hi - self.lo) // self.itemsize)
            self._marks = np.full(size, NOBODY, np.int32), np.full(size, NOBODY, np.int32)
        return self._marks

    def note_atomic(self, elements: np.ndarray, number: int) -> None:
        if self.adders is None:
            self.adders = np.full(-(-(self.hi - self.lo) // self.itemsize), NOBODY, np.int32)
        before = self.adders[elements]
        alone = (before == NOBODY) | (before == number)
        self.adders[elements] = np.where(alone, number, SEVERAL)

    @property
    def read_elements(self) -> np.ndarray | None:
        """Which elements were read; None where that was not followed."""
        if self._marks is None or self.has_unmarked_reads:
            return None
        return self._marks[1] != NOBODY

    @property
    def is_small_enough(self) -> bool:
        return self.hi - self.lo <= MOST_TRACKED_BYTES


@dataclass
class Pointer:
    """A tensor argument: where it starts and ends, and in which region, which is larger where it is a view.

    `view` is the memory that it stands for: the whole region once an access by it was seen outside the tensor.
    """

    name: str
    address: int
    end: int
    itemsize: int
    region: Region
    view: View

    def note_access(self, addresses: np.ndarray, lo: int, hi: int) -> None:
        if lo < self.address or hi > self.end or not self.view.holds(addresses):
            self.view = View(self.region.lo, self.region.lo, self.region.hi - self.region.lo)


class Memory:
    """All regions of a launch, and the search for the one that an address belongs to."""

    def __init__(self) -> None:
        self.pointers: dict[str, Pointer] = {}
        self._regions: dict[int, Region] = {}
        self._has_integers: list[torch.Tensor | int] = []
        self._followed = False

    def add(self, name: str, tensor: torch.Tensor, shadows: dict[int, Shadow]) -> Pointer:
        storage = tensor.untyped_storage()
        lo = storage.data_ptr()
        region = self._regions.get(lo)
        if region is None:
            region = Region(lo, lo + storage.nbytes(), tensor.element_size(), shadows.get(lo))
            self._regions[lo] = region
        address, itemsize = tensor.data_ptr(), tensor.element_size()
        end = address + extent(tensor.shape, tensor.stride()) * itemsize
        view = view_of(tensor) or View(lo, address, 0)
        pointer = Pointer(name, address, end, itemsize, region, view.in_sectors())
        self.pointers[name] = pointer
        if tensor.dtype in (torch.int64, torch.uint64) and tensor.numel() <= 1 << 16:
            self._has_integers.append(tensor)
        return pointer

    def note_sharing(self, tensors: dict[str, TensorTraffic]) -> None:
        """Once a launch has ended: which arguments' memory is the same, and how much each stands for."""
        shared = sharing({name: self.pointers[name].view for name in tensors})
        for name, (memory, nbytes) in shared.items():
            tensors[name].memory, tensors[name].memory_bytes = memory, nbytes

    def read_addresses(self, tensors: dict[str, TensorTraffic]) -> frozenset[int]:
        """Once a launch has ended: where the storages begin that it read, by loads or by atomic operations."""
        loaded = {self.pointers[name].region.lo for name, t in tensors.items() if t.loaded}
        return frozenset(loaded | {r.lo for r in self.regions if r.adders is not None})

    def add_integer(self, value: int) -> None:
        if value > 1 << 32:
            self._has_integers.append(value)

    @property
    def regions(self) -> list[Region]:
        return list(self._regions.values())

    def find(self, address: int) -> Pointer | None:
        """The argument whose region holds the address, else what an integer argument points to, else None."""
        for pointer in self.pointers.values():
            if pointer.region.lo <= address < pointer.region.hi:
                return pointer
        if self._has_integers and not self._followed:
            self._followed = True
            self._follow_integers()
            return self.find(address)
        return None

    def nearest(self, address: int) -> Pointer | None:
        def distance(pointer: Pointer) -> int:
            return min(abs(address - pointer.region.lo), abs(address - pointer.region.hi))

        return min(self.pointers.values(), key=distance, default=None)

    def _follow_integers(self) -> None:
        """Integer arguments may hold addresses (a table of pointers): add the live tensors that these are in."""
        with unseen_by_torch():
            values = np.concatenate(
                [
                    np.asarray([v], np.uint64)
                    if isinstance(v, int)
                    else v.reshape(-1).numpy().astype(np.uint64)
                    for v in self._has_integers
                ]
            )
            for tensor in [t for t in gc.get_objects() if type(t) is torch.Tensor]:
                if tensor.layout is not torch.strided or tensor.device.type != "cpu":
                    continue
                lo = tensor.untyped_storage().data_ptr()
                hi = lo + tensor.untyped_storage().nbytes()
                if lo not in self._regions and ((values >= lo) & (values < hi)).any():
                    self.add(f"memory pointed to, {len(self.pointers)}", tensor, {})
