"""Working inputs: put together from the task's input sets, so that no call sees the contents of another.

The reference's `get_inputs` makes a few sets; every call's inputs are row slabs of them at the same
positions, chosen by the judge. Tensors whose rows depend on one another (sorted offsets, symmetric
matrices, a distribution over the rows) are taken whole from one set, which keeps their domain.
"""

import math
import random
from collections.abc import Sequence

import torch

from gpu_runner.evaluation.child.memory import contiguous_stride, extent
from gpu_runner.evaluation.protocol import Composition, Slabs

MAX_SLABS = 12
_SYMMETRIC_CHECK_LIMIT = 4_096


class Mixer:
    """Chooses compositions of the given sets; never the same tensors twice while there are others."""

    def __init__(self, sets: Sequence[Sequence[torch.Tensor]], rng: random.Random) -> None:
        self._sets = sets
        self._rng = rng
        self._seen: set[tuple[Slabs, ...]] = set()
        self._whole = [is_whole([s[i] for s in sets]) for i in range(len(sets[0]))]
        self.bounds = [observed_range([s[i] for s in sets]) for i in range(len(sets[0]))]

    def next(self) -> Composition:
        for _ in range(50):
            composition = self._draw()
            if composition.slabs not in self._seen:
                break
        self._seen.add(composition.slabs)
        return composition

    def structured(self, kind: str) -> Composition | None:
        """A composition whose floating-point values are ties or extremes of the observed range.

        None where that would leave the domain: a tensor whose rows depend on one another, or no floats.
        """
        drawn = self._draw()
        slabs = [
            s.model_copy(update={"shape_values": kind, "low": b[0], "high": b[1]}) if b else s
            for s, b in zip(drawn.slabs, self.bounds, strict=True)
        ]
        floats = [b is not None for b in self.bounds]
        if not any(floats) or any(w and f for w, f in zip(self._whole, floats, strict=True)):
            return None
        return drawn.model_copy(update={"slabs": tuple(slabs)})

    def _draw(self) -> Composition:
        count = len(self._sets)
        base = self._rng.randrange(count)
        by_rows: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        slabs = []
        for tensor, whole in zip(self._sets[base], self._whole, strict=True):
            axis = slab_axis(tensor.shape)
            rows = tensor.shape[axis] if tensor.dim() else 1
            if whole or rows < 2:
                slabs.append(Slabs(axis=0, cuts=(0, max(rows, 1)), sets=(base,)))
                continue
            if rows not in by_rows:  # inputs with as many rows belong together row by row
                by_rows[rows] = self._cut(rows)
            cuts, sets = by_rows[rows]
            slabs.append(Slabs(axis=axis, cuts=cuts, sets=sets))
        return Composition(base=base, slabs=tuple(slabs))

    def _cut(self, rows: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        pieces = min(rows, self._rng.randint(2, MAX_SLABS))
        inner = sorted(self._rng.sample(range(1, rows), pieces - 1))
        sets = [self._rng.randrange(len(self._sets))]
        while len(sets) < pieces:  # neighbours differ, so that equal contents mean equal choices
            step = self._rng.randrange(1, max(2, len(self._sets)))
            sets.append((sets[-1] + step) % len(self._sets))
        return (0, *inner, rows), tuple(sets)


def slab_axis(shape: Sequence[int]) -> int:
    """The first axis with more than one row."""
    return next((axis for axis, n in enumerate(shape) if n > 1), 0)


def is_whole(tensors: Sequence[torch.Tensor]) -> bool:
    """True if rows of one set must not be mixed with rows of another."""
    first = tensors[0]
    if first.dim() == 0 or any(t.shape != first.shape for t in tensors):
        return True
    if has_overlap(first):
        return True
    if first.dtype.is_complex or not first.numel():
        return True
    if first.dim() == 1:
        belong_together = all(_is_sorted(t) for t in tensors) or _sums_agree(tensors)
    else:
        belong_together = all(_is_symmetric(t) for t in tensors)
    return belong_together or all(_is_permutation_like(t) for t in tensors)


def has_overlap(tensor: torch.Tensor) -> bool:
    """True if two elements share memory (expanded tensors)."""
    return tensor.numel() > 1 and any(
        s == 0 and n > 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True)
    )


def observed_range(tensors: Sequence[torch.Tensor]) -> tuple[float, float] | None:
    """Smallest and largest finite value over the sets; None unless floating point and not constant."""
    if not tensors[0].dtype.is_floating_point or not tensors[0].numel():
        return None
    low, high = math.inf, -math.inf
    for tensor in tensors:
        finite = tensor[torch.isfinite(tensor)]
        if not finite.numel():
            return None
        finite = finite.float() if finite.element_size() == 1 else finite
        low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low < high else None


def empty_like_spec(tensor: torch.Tensor) -> torch.Tensor:
    """Private memory with the strides of `tensor`."""
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    """In float64 or complex128; what holds no floating-point numbers as it is."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.dtype.is_floating_point else tensor


def compose(
    target: Sequence[torch.Tensor],
    sets: Sequence[Sequence[torch.Tensor]],
    composition: Composition,
) -> None:
    """Write one composition into `target`, whose tensors have the sets' shapes and strides."""
    for i, (out, slabs) in enumerate(zip(target, composition.slabs, strict=True)):
        if out.dim() == 0 or len(slabs.sets) == 1:
            _copy_whole(out, sets[slabs.sets[0]][i])
        else:
            for start, stop, chosen in zip(slabs.cuts, slabs.cuts[1:], slabs.sets, strict=False):
                rows = stop - start
                out.narrow(slabs.axis, start, rows).copy_(
                    sets[chosen][i].narrow(slabs.axis, start, rows)
                )
        if slabs.shape_values:
            _reshape_values(out, slabs)


def _copy_whole(out: torch.Tensor, source: torch.Tensor) -> None:
    if has_overlap(out):
        _storage_run(out).copy_(_storage_run(source))
    else:
        out.copy_(source)


def _storage_run(tensor: torch.Tensor) -> torch.Tensor:
    """All elements of storage that a strided tensor spans, as one dimension."""
    return tensor.as_strided((extent(tensor.shape, tensor.stride()),), (1,))


def _reshape_values(out: torch.Tensor, slabs: Slabs) -> None:
    if slabs.shape_values == "extremes":
        middle = (slabs.low + slabs.high) / 2
        out.copy_(torch.where(out.double() >= middle, slabs.high, slabs.low))
    elif slabs.shape_values == "ties":
        step = (slabs.high - slabs.low) / 4
        out.copy_(slabs.low + torch.round((out.double() - slabs.low) / step) * step)


def _is_sorted(tensor: torch.Tensor) -> bool:
    if tensor.dtype == torch.bool or tensor.numel() < 2:
        return False
    return bool((tensor[1:] >= tensor[:-1]).all()) and bool((tensor[1:] != tensor[:-1]).any())


def _sums_agree(tensors: Sequence[torch.Tensor]) -> bool:
    """A distribution over the rows, or a permutation: every set has the same sum but not the same values."""
    if tensors[0].dtype == torch.bool or tensors[0].numel() < 2:
        return False
    sums = [float(t.double().sum()) for t in tensors]
    same_sum = max(sums) - min(sums) <= 1e-4 * max(1e-12, max(abs(s) for s in sums))
    return same_sum and any(not torch.equal(t, tensors[0]) for t in tensors)


def _is_symmetric(tensor: torch.Tensor) -> bool:
    rows, columns = tensor.shape[-2:]
    if rows != columns or rows < 2 or rows > _SYMMETRIC_CHECK_LIMIT:
        return False
    return torch.equal(tensor, tensor.mT)


def _is_permutation_like(tensor: torch.Tensor) -> bool:
    """Integers that are sorted, or all different, along the first axis."""
    if tensor.dtype.is_floating_point or tensor.dtype == torch.bool or tensor.shape[0] < 3:
        return False
    ordered = tensor.sort(dim=0).values
    return bool((ordered[1:] != ordered[:-1]).all())


__all__ = [
    "Mixer",
    "compose",
    "contiguous_stride",
    "empty_like_spec",
    "has_overlap",
    "is_whole",
    "observed_range",
    "slab_axis",
]
