"""What stems from what within one call: storages, what happened to them in order, and what reaches the outputs."""

import bisect
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

HOST_READ_ELEMENTS = 64
"""Reading more floating-point values than this to the host in a call counts as computing there."""
HOST_READ_INTEGERS = 1_024
"""The same for integers that kernels made from floating-point inputs: routing tables are read, tensors are not."""

UNSEEN = "a write out of sight"
"""What is noted as an operation where memory holds something else than what was last written to it."""


@dataclass
class Event:
    """One step of a call with the storages it read and wrote, as their implementations' addresses."""

    name: str
    group: str
    reads: frozenset[int]
    writes: frozenset[int]
    from_inputs: bool
    line: int | None = None
    elements: int = 0
    nbytes: int = 0
    sinks: bool = False
    reaches: bool = False
    hidden: bool = False
    by_host: bool = False
    is_flag: bool = False
    is_heavy: bool = False
    is_stale: bool = False
    keeps_bits: bool = False
    """Whether bits of floating-point numbers among what it reads are in what it writes."""


@dataclass
class Flow:
    """Storages of one call: which stem from inputs, which are weights, and what happened to them in order."""

    tainted: set[int] = field(default_factory=set)
    stale: frozenset[int] = frozenset()
    """Storages that an earlier call filled from its inputs, and whose contents outlived it."""
    written: set[int] = field(default_factory=set)
    derived: set[int] = field(default_factory=set)
    """Storages that hold something which was seen to be made of an input; of a launch it is known what was read."""
    blank: set[int] = field(default_factory=set)
    """Fresh storages into which nothing was written."""
    floats: set[int] = field(default_factory=set)
    """Storages that hold floating-point values, whatever type they are looked at through."""
    from_floats: set[int] = field(default_factory=set)
    """Storages whose contents stem from floating-point inputs."""
    weights: frozenset[int] = frozenset()
    is_real: bool = True
    events: list[Event] = field(default_factory=list)
    kept: list[torch.Tensor] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    shared: dict[int, torch.Tensor] = field(default_factory=dict)
    """Tensors whose memory the host may read by other ways."""
    _spans: list[tuple[int, int]] = field(default_factory=list)
    """Where the storages begin, in order."""
    _owners: dict[int, torch.Tensor] = field(default_factory=dict)

    def key(self, tensor: torch.Tensor) -> int:
        self.kept.append(tensor)  # so that no address is used twice within the call
        key = storage_key(tensor)
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            self.floats.add(key)
        if key not in self.seen:
            self.seen.add(key)
            if self.is_real and is_shared_with_host(tensor):
                self.shared[key] = tensor
            if self.is_real:
                self._see_alias(key, tensor)
        return key

    def _see_alias(self, key: int, tensor: torch.Tensor) -> None:
        """A second storage over memory that another one is known to hold has its contents."""
        first, last = span_of(tensor)
        if first == last:
            return
        place = bisect.bisect_left(self._spans, (last,))
        if place:
            other = self._spans[place - 1][1]
            begin, end = span_of(self._owners[other])
            if begin < last and first < end and self._spans[place - 1][0] == begin:
                reads, writes = frozenset({other}), frozenset({key})
                is_known = other in self.tainted
                self.add(Event("memory of another storage", "view", reads, writes, is_known))
                if other in self.floats:
                    self.floats.add(key)
                return
        self._spans.insert(place, (first, key))
        self._owners[key] = tensor

    def begin(self, inputs: Sequence[torch.Tensor]) -> None:
        self.tainted = {self.key(t) for t in inputs}
        self.derived = {*self.tainted}
        self.from_floats = self.tainted & self.floats

    def add(self, event: Event) -> None:
        self.events.append(event)
        self.written |= event.writes
        if event.group == "allocation" and "empty" in event.name:
            self.blank |= event.writes
        else:
            self.blank -= event.writes
        if event.group not in ("launch", "allocation") and event.reads & self.derived:
            self.derived |= event.writes
        if not event.from_inputs:
            return
        self.tainted |= event.writes
        if event.reads & self.from_floats:
            self.from_floats |= event.writes
            if event.keeps_bits and event.reads & self.floats:
                self.floats |= event.writes

    def launched(self, reads: frozenset[int], writes: frozenset[int]) -> None:
        """A launch has ended, which read and may have written these."""
        if reads & self.derived:
            self.derived |= writes

    def settled(self, keys: frozenset[int]) -> frozenset[int]:
        """Those that hold something which stems from no input: a launch that leaves them as they are has only read them."""
        return keys - self.tainted - self.blank - self.stale

    def at_addresses(self, addresses: Sequence[int]) -> list[torch.Tensor]:
        """Tensors of this call into whose storages the addresses point."""
        found: dict[int, torch.Tensor] = {}
        for tensor in self.kept if addresses else ():
            first, last = span_of(tensor)
            if any(first <= a < last for a in addresses):
                found.setdefault(storage_key(tensor), tensor)
        return list(found.values())

    def count_host_reads(self) -> None:
        """Many small reads are one large one: mark all of a call when their sum is too large."""
        self._see_shared_memory()
        reads = [e for e in self.events if e.group == "host" and e.reads & self.from_floats]
        flags = [e for e in reads if e.is_flag]
        floats = [e for e in reads if e.reads & self.floats and not e.is_flag]
        integers = [e for e in reads if not e.reads & self.floats and not e.is_flag]
        limits = (
            (flags, HOST_READ_ELEMENTS),
            (floats, HOST_READ_ELEMENTS),
            (integers, HOST_READ_INTEGERS),
        )
        for some, limit in limits:
            if sum(e.elements for e in some) > limit:
                for e in some:
                    e.from_inputs = e.sinks = e.is_heavy = True
                    if not e.name.startswith("Tensor."):
                        e.name = "Tensor.item"

    def _see_shared_memory(self) -> None:
        """What a kernel or a copy leaves in memory that the host shares is read there, for all that anybody knows."""
        for key, tensor in self.shared.items():
            if key in self.written & self.from_floats:
                size = tensor.numel(), tensor.numel() * tensor.dtype.itemsize
                reads = frozenset({key})
                self.add(Event("Tensor.numpy", "host", reads, frozenset(), False, None, *size))

    def is_from_floats(self, tensor: torch.Tensor) -> bool:
        return storage_key(tensor) in self.from_floats

    def see_stale(self, outputs: Sequence[torch.Tensor]) -> None:
        """An output that an earlier call made and this one did not write."""
        for tensor in outputs:
            key = storage_key(tensor)
            if key in self.stale - self.written:
                keys = frozenset({key})
                size = tensor.numel(), tensor.numel() * tensor.dtype.itemsize
                event = Event("an earlier result", "copy", keys, keys, False, None, *size)
                event.is_stale = True
                self.events.append(event)

    def survivors(self) -> list["Survivor"]:
        """Storages that this call filled from its inputs, for whoever asks later which of them still exist."""
        found: dict[int, Survivor] = {}
        for tensor in self.kept:
            key = storage_key(tensor)
            if key in self.written & self.tainted and key not in found:
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    reference = StorageWeakRef(tensor.untyped_storage())
                    found[key] = Survivor(reference, tensor.dtype.itemsize)
        return list(found.values())

    def trace_back(self, outputs: Sequence[torch.Tensor]) -> None:
        """Mark the events on which the outputs depend; first those that do so by more than a number that the host reads."""
        ends = {storage_key(t) for t in outputs}
        for by_host in (False, True):
            live = set(ends)
            for event in reversed(self.events):
                is_end = event.sinks and (by_host or event.is_heavy)
                if is_end or event.hidden or event.writes & live:
                    event.by_host = not event.reaches and by_host
                    event.reaches = True
                    live |= event.reads


class Survivor(NamedTuple):
    """A storage that an earlier call filled from its inputs; its key stays its own while the reference exists."""

    storage: StorageWeakRef
    itemsize: int

    @property
    def key(self) -> int:
        return int(self.storage.cdata)


def storage_key(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # sparse and other tensors without storage
        return id(tensor)


def filled_storages(tensors: Sequence[torch.Tensor]) -> set[int]:
    """The storages of tensors that leave no room in them for anything else."""
    nbytes: dict[int, int] = {}
    for tensor in {id(t): t for t in tensors}.values():
        key = storage_key(tensor)
        nbytes[key] = nbytes.get(key, 0) + tensor.numel() * tensor.dtype.itemsize
    sizes = {storage_key(t): last - first for t in tensors for first, last in (span_of(t),)}
    return {key for key, held in nbytes.items() if held >= sizes[key]}


def is_shared_with_host(tensor: torch.Tensor) -> bool:
    """Whether other code may look at its memory: a numpy array, a buffer, a file."""
    try:
        storage = tensor.untyped_storage()
        if storage.device.type != "cpu" or storage.nbytes() == 0:
            return False
        return not storage.resizable() or storage.is_shared()
    except (RuntimeError, NotImplementedError):
        return False


def span_of(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last address of its storage."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    except (RuntimeError, NotImplementedError):
        return 0, 0
