"""What wrong numbers look like beside the right ones: transposed, scaled, shifted, normalised along another axis.

Each pattern is tested on the values themselves; a pattern is named only where it explains nearly all of the output.
"""

import torch

from gpu_runner.core.findings import Evidence

EXPLAINED = 0.02
"""A pattern explains the output if what it leaves of the error is below this share of the output's rms."""

MOST_ELEMENTS = 1 << 22
_FEW = 8


def patterns_of(got: torch.Tensor, truth: torch.Tensor, wrong: torch.Tensor) -> Evidence:
    """`pattern` and its number `pattern_value`; empty where nothing fits.

    Args:
        got, truth: float64 of one shape.
        wrong: marks the elements that are out of tolerance.
    """
    if truth.numel() < _FEW or truth.numel() > MOST_ELEMENTS or truth.dtype.is_complex:
        return {}
    if not bool(torch.isfinite(got).all() and torch.isfinite(truth).all()):
        return {}
    if float(wrong.float().mean()) < 0.5:
        return _of_magnitudes(truth, wrong)
    if _explains(got, truth):
        return {}  # of the size of rounding
    return (
        _transposed(got, truth)
        or _scaled(got, truth)
        or _shifted(got, truth)
        or _normalised_elsewhere(got, truth)
        or {}
    )


def _of_magnitudes(truth: torch.Tensor, wrong: torch.Tensor) -> Evidence:
    """The wrong elements are the largest."""
    size = truth.abs()
    threshold = float(size[wrong].min())
    if int(wrong.sum()) > 1 and threshold >= 0.98 * float(size[~wrong].max()) > 0:
        return {"pattern": "large_magnitudes", "pattern_value": threshold}
    return {}


def _explains(found: torch.Tensor, truth: torch.Tensor) -> bool:
    rms = float(truth.square().mean().sqrt())
    return rms > 0 and float((found - truth).abs().max()) < EXPLAINED * rms


def _transposed(got: torch.Tensor, truth: torch.Tensor) -> Evidence:
    if truth.dim() < 2 or truth.shape[-1] != truth.shape[-2]:
        return {}
    return {"pattern": "transposed"} if _explains(got.mT, truth) else {}


def _scaled(got: torch.Tensor, truth: torch.Tensor) -> Evidence:
    power = float((truth * truth).sum())
    factor = float((got * truth).sum()) / power if power else 0.0
    if abs(factor) < 1e-6:
        return {}
    if _explains(got / factor, truth):
        return {"pattern": "scaled", "pattern_value": factor}
    offset = float((got - truth).mean())
    if _explains(got - offset, truth):
        return {"pattern": "offset", "pattern_value": offset}
    return {}


def _shifted(got: torch.Tensor, truth: torch.Tensor) -> Evidence:
    """The values of other elements, a fixed number of elements away in memory order."""
    flat_got, flat = got.flatten(), truth.flatten()
    size = flat.numel()
    tiles = [1 << k for k in range(14) if 1 << k < size // 2]
    for distance in [d for tile in tiles for d in (tile, -tile)]:
        here = flat_got[max(0, -distance) : size - max(0, distance)]
        there = flat[max(0, distance) : size - max(0, -distance)]
        agree = float(torch.isclose(here, there, rtol=1e-3, atol=1e-6).double().mean())
        if agree > 0.7:
            return {"pattern": "shifted", "pattern_value": distance}
    return {}


def _normalised_elsewhere(got: torch.Tensor, truth: torch.Tensor) -> Evidence:
    """Sums that are alike along one axis of the truth are alike along another one of the output, as a softmax's are."""
    expected, found = _even_axes(truth), _even_axes(got)
    if len(expected) == 1 and len(found) == 1 and expected != found:
        return {"pattern": "normalised_elsewhere", "pattern_value": found[0]}
    return {}


def _even_axes(values: torch.Tensor) -> list[int]:
    """The axes along which all sums are the same, and the values are not."""
    even = []
    for axis in range(values.dim()):
        sums = values.sum(dim=axis)
        spread = float(sums.max() - sums.min()) if sums.numel() > 1 else float("inf")
        scale = float(values.abs().sum(dim=axis).mean())
        if spread < 1e-3 * scale:
            even.append(axis)
    return even
