"""Where the marked elements of a tensor lie, in words."""

from itertools import pairwise

import torch


def region_of(wrong: torch.Tensor) -> str:
    """Everywhere, the interior, a tail, a block, a row, a stride, scattered."""
    if wrong.dim() == 0 or wrong.numel() == 1:
        return "the only value"
    share = float(wrong.float().mean())
    if share == 1.0:
        return "everywhere"
    if interior := _interior(wrong):
        return interior
    if share > 0.9:
        return "everywhere"
    parts = [part for axis in range(wrong.dim()) if (part := _along(wrong, axis)) is not None]
    if parts:
        return " and ".join(parts[:3])
    return "most of it" if share > 0.5 else "scattered"


def _hit(wrong: torch.Tensor, axis: int) -> list[int]:
    """The indices along one axis at which anything is marked."""
    flat = wrong if wrong.dim() == 1 else torch.movedim(wrong, axis, 0).flatten(1).any(dim=1)
    return [int(i) for i in flat.nonzero().flatten().tolist()]


def _interior(wrong: torch.Tensor) -> str:
    """All but the borders along two axes or more."""
    inner = []
    for axis, size in enumerate(wrong.shape):
        where = _hit(wrong, axis)
        is_inner = where[0] > 0 and where[-1] < size - 1 and len(where) > 0.5 * size
        if is_inner and where[-1] - where[0] + 1 == len(where):
            inner.append(f"{where[0]} to {where[-1]} of axis {axis}")
    return f"the interior: {' and '.join(inner)}" if len(inner) > 1 else ""


def _along(wrong: torch.Tensor, axis: int) -> str | None:
    """What singles out the marked elements along one axis; None if they spread over all of it."""
    size, where = wrong.shape[axis], _hit(wrong, axis)
    if not where or len(where) == size:
        return None
    first, last = where[0], where[-1]
    if len(where) == 1:
        return f"index {first} of axis {axis}" + (" (the last)" if first == size - 1 else "")
    if last - first + 1 == len(where):
        if last == size - 1:
            return f"the tail of axis {axis}: {first} to {last} of {size}"
        return f"{_block(wrong.dim(), axis)} of axis {axis}: {first} to {last} of {size}"
    steps = {b - a for a, b in pairwise(where)}
    if len(steps) == 1:
        return f"every {steps.pop()}th of axis {axis} from {first}"
    return None if len(where) > 0.5 * size else f"{len(where)} of {size} along axis {axis}"


def _block(dims: int, axis: int) -> str:
    if dims < 2 or axis < dims - 2:
        return "a block"
    return "a block row" if axis == dims - 2 else "a block column"
