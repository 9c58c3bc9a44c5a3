"""How many different bytes tensors occupy together: views of one storage may share them, or lie between one another."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import torch

from gpu_runner.evaluation.child.counting import SECTOR_BYTES

_MOST_GRAINS = 1 << 25
"""Beyond this, views that cannot be told apart by their ends count as if they shared nothing."""


@dataclass(frozen=True)
class View:
    """The bytes of a tensor: runs of `run` bytes, repeated by each (times, step in bytes), from the largest step down."""

    storage: int
    address: int
    run: int
    repeats: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        return self.address + self.run + sum((n - 1) * step for n, step in self.repeats)

    @property
    def nbytes(self) -> int:
        """As if no two repeats met."""
        return self.run * math.prod(n for n, _ in self.repeats)

    def holds(self, addresses: np.ndarray) -> bool:
        """Whether all addresses (uint64), which lie between its ends, are in it; said of views that do not meet themselves."""
        if not self.repeats:
            return True
        left = (addresses - np.uint64(self.address)).astype(np.int64)
        for n, step in self.repeats:
            left -= np.minimum(left // step, n - 1) * step
        return bool((left < self.run).all())

    def in_sectors(self) -> "View":
        """Grown to whole sectors, as memory serves them; a step that is no multiple of a sector stays as it is."""
        first, repeats, run = self.address // SECTOR_BYTES * SECTOR_BYTES, [*self.repeats], self.run
        run += self.address - first
        while repeats and repeats[-1][1] <= -(-run // SECTOR_BYTES) * SECTOR_BYTES:
            n, step = repeats.pop()
            run += (n - 1) * step
        return View(self.storage, first, -(-run // SECTOR_BYTES) * SECTOR_BYTES, tuple(repeats))

    @property
    def meets_itself(self) -> bool:
        inner = self.run
        for n, step in reversed(self.repeats):
            if step < inner:
                return True
            inner += (n - 1) * step
        return False


def view_of(tensor: torch.Tensor) -> View | None:
    """None for an empty tensor."""
    if not tensor.numel():
        return None
    itemsize = tensor.element_size()
    if tensor.layout != torch.strided:
        return View(id(tensor), 0, tensor.numel() * itemsize)
    run = itemsize
    repeats: list[tuple[int, int]] = []
    for step, n in sorted(
        (step * itemsize, n)
        for n, step in zip(tensor.size(), tensor.stride(), strict=True)
        if n > 1 and step
    ):
        if not repeats and step == run:
            run *= n
        elif repeats and step == math.prod(repeats[-1]):
            repeats[-1] = (repeats[-1][0] * n, repeats[-1][1])
        else:
            repeats.append((n, step))
    address = tensor.data_ptr()
    return View(tensor.untyped_storage().data_ptr(), address, run, tuple(reversed(repeats)))


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return distinct_bytes(view for tensor in tensors if (view := view_of(tensor)))


def distinct_bytes(views: Iterable[View]) -> int:
    ordered = sorted(set(views), key=lambda view: (view.storage, view.address))
    return sum(_of_one_storage(list(group)) for _, group in groupby(ordered, lambda v: v.storage))


def _of_one_storage(views: Sequence[View]) -> int:
    """Of different views, in the order of their addresses."""
    apart = all(one.end <= other.address for one, other in pairwise(views))
    if apart and not any(view.meets_itself for view in views):
        return sum(view.nbytes for view in views)
    first, last = views[0].address, max(view.end for view in views)
    steps = [step for view in views for _, step in view.repeats]
    grain = math.gcd(*(v.run for v in views), *(v.address - first for v in views), *steps)
    if (last - first) // grain > _MOST_GRAINS:
        return min(last - first, sum(view.nbytes for view in views))
    touched = np.zeros((last - first) // grain, bool)
    for view in views:
        shape = [*(n for n, _ in view.repeats), view.run // grain]
        strides = [*(step // grain for _, step in view.repeats), 1]
        start = touched[(view.address - first) // grain :]
        np.lib.stride_tricks.as_strided(start, shape, strides)[...] = True
    return int(touched.sum()) * grain


def sharing(views: dict[str, View]) -> dict[str, tuple[str, int]]:
    """For each name the first name with which its view shares bytes, and how many different bytes all those have."""
    groups: list[dict[str, View]] = []
    for name, view in views.items():
        met = [group for group in groups if _meet(group, view)]
        groups = [group for group in groups if group not in met]
        groups.append({n: v for group in met for n, v in group.items()} | {name: view})
    return {
        name: (next(iter(group)), distinct_bytes(group.values()))
        for group in groups
        for name in group
    }


def _meet(group: dict[str, View], view: View) -> bool:
    others = [v for v in group.values() if v.storage == view.storage]
    if not others:
        return False
    return distinct_bytes([*others, view]) < distinct_bytes(others) + distinct_bytes([view])
