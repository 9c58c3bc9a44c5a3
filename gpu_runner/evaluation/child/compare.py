"""Is an output right, and if not, where is it wrong?

Truth is the reference in float64 where it runs so. A tolerance is relative plus absolute, the absolute part in units of
the output's root mean square, so that small outputs are not right by being small. Where a trivial answer (zeros, the mean, an
input) would pass, the tolerance gives way to the reference's own error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from gpu_runner.core.findings import Evidence
from gpu_runner.evaluation.child.patterns import patterns_of
from gpu_runner.evaluation.child.regions import region_of

OWN_ERROR_FACTOR: Final = 4.0
OWN_ERROR_LIMIT: Final = 0.05
REPLACED_FLOOR: Final = 1e-6
OUTSIDE_SHARE: Final = 1e-5
OUTSIDE_FACTOR: Final = 10.0
MAP_SIDE: Final = 12


@dataclass(frozen=True)
class Tolerance:
    """An element may be off by `rtol * |truth| + atol_rms * rms + atol`."""

    rtol: float
    atol_rms: float = 0.0
    atol: float = 0.0
    is_declared: bool = False


_BY_DTYPE: Final = {
    torch.float64: 1e-6,
    torch.complex128: 1e-6,
    torch.float16: 1e-2,
    torch.bfloat16: 2e-2,
}


def default_tolerance(dtype: torch.dtype, *, tf32: bool) -> Tolerance:
    """For an output of that dtype; `tf32` when a matmul or convolution before it may use TF32."""
    value = _BY_DTYPE.get(dtype, 1e-2 if tf32 else 1e-4)
    if dtype.itemsize == 1 and dtype.is_floating_point:
        value = 0.13
    return Tolerance(rtol=value, atol_rms=value)


def coarser(a: torch.dtype, b: torch.dtype | None) -> torch.dtype:
    """Of two floating-point types that with the wider default tolerance; `a` where only that is one."""
    if b is None or not a.is_floating_point or not b.is_floating_point:
        return a
    return max(a, b, key=lambda dtype: default_tolerance(dtype, tf32=False).rtol)


def declared_tolerance(value: Any) -> Tolerance | None:
    """What a task's TOLERANCE says: one number (relative, and in units of the rms), or rtol and atol as `allclose` has them.

    Raises ValueError when it is neither.
    """
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        parts = (float(value), float(value), 0.0)
    elif isinstance(value, dict) and set(value) <= {"rtol", "atol"}:
        parts = (float(value.get("rtol", 0.0)), 0.0, float(value.get("atol", 0.0)))
    elif isinstance(value, list | tuple) and len(value) == 2:
        parts = (float(value[0]), 0.0, float(value[1]))
    else:
        raise ValueError(f"TOLERANCE is a number, (rtol, atol) or a dict of them, not {value!r}")
    if not all(math.isfinite(part) and part >= 0 for part in parts):
        raise ValueError(f"TOLERANCE must be finite and not negative, not {value!r}")
    return Tolerance(*parts, is_declared=True)


@dataclass(frozen=True)
class Expected:
    """One output of the reference: as it came, its truth in float64 if there is one, and how far it may be off."""

    native: torch.Tensor
    truth: torch.Tensor
    tolerance: Tolerance
    own_error_rms: float | None
    was_replaced: bool = False

    @property
    def is_ill_conditioned(self) -> bool:
        """Whether the reference itself is so far from float64 that a candidate as good as it could fail."""
        own = self.own_error_rms
        return own is not None and OWN_ERROR_FACTOR * own > OWN_ERROR_LIMIT

    @property
    def is_floating(self) -> bool:
        return self.native.dtype.is_floating_point or self.native.dtype.is_complex


@dataclass(frozen=True)
class Mismatch:
    """How an output differs. `kind` is values, nan or trivial_answer; `wrong` marks the elements."""

    kind: str
    title: str
    evidence: Evidence
    region: str


def expect(
    native: torch.Tensor,
    truth: torch.Tensor | None,
    tolerance: Tolerance,
    trivial: Sequence[torch.Tensor] = (),
) -> Expected:
    """Fix the tolerance of one output.

    Args:
        truth: the same output in float64, None where the reference does not run so.
        trivial: tensors that would be trivial answers where they have the output's shape; zeros and mean are added.
    """
    if not (native.dtype.is_floating_point or native.dtype.is_complex):
        return Expected(native, native, Tolerance(0.0), None)
    exact = native if truth is None or truth.shape != native.shape else truth
    exact = wide(exact)
    rms = rms_of(exact)
    own = None
    if truth is not None:
        own = max_error(wide(native), exact) / rms if rms else 0.0
    widened = _widened(tolerance, own, native.dtype)
    expected = Expected(native, exact, widened, own)
    answers = [torch.zeros_like(exact)]
    if exact.numel() > 1:
        answers.append(torch.full_like(exact, _mean(exact)))
    answers += [wide(t) for t in trivial if t.shape == native.shape]
    if rms and any(_passes(answer, expected) for answer in answers):
        narrow = Tolerance(rtol=0.0, atol_rms=_narrowest(own, native.dtype))
        return Expected(native, exact, narrow, own, was_replaced=True)
    return expected


def mismatch(candidate: torch.Tensor, expected: Expected) -> Mismatch | None:
    """What is wrong with an output of the right shape and dtype, or None."""
    if not expected.is_floating:
        return _mismatch_exact(candidate, expected)
    got, truth = wide(candidate), expected.truth
    unlike = _unlike_nonfinite(got, wide(expected.native), truth)
    error = _error(got, truth)
    limit = _limit(expected)
    wrong = (error > limit) & torch.isfinite(truth) | unlike
    count = int(wrong.sum())
    if not count:
        return None
    allowed = int(truth.numel() * OUTSIDE_SHARE)
    beyond = bool((error > OUTSIDE_FACTOR * limit)[wrong].any()) or bool(unlike.any())
    if count <= allowed and not beyond:
        return None
    return _describe(got, expected, error, wrong, unlike)


def identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same shape and the same values; any NaN is like any other."""
    if a.shape != b.shape:
        return False
    a, b = _comparable(a), _comparable(b)
    same = a == b
    if a.dtype.is_floating_point and b.dtype.is_floating_point:
        same |= torch.isnan(a) & torch.isnan(b)
    return bool(same.all())


def max_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest finite difference between two tensors of one shape; 0 if there is none."""
    return max_error(wide(a), wide(b))


def is_constant(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 1 and bool((tensor == tensor.flatten()[0]).all())


def rms_of(tensor: torch.Tensor) -> float:
    """Root mean square of the finite elements; 0 if there are none."""
    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().double().square().mean().sqrt()) if finite.numel() else 0.0


def max_error(a: torch.Tensor, b: torch.Tensor) -> float:
    error = (a - b).abs()
    error = error[torch.isfinite(error)]
    return float(error.max()) if error.numel() else 0.0


def _widened(tolerance: Tolerance, own: float | None, dtype: torch.dtype) -> Tolerance:
    if tolerance.is_declared or own is None:
        return tolerance
    counted = min(OWN_ERROR_FACTOR * own, OWN_ERROR_LIMIT)
    return Tolerance(tolerance.rtol, max(tolerance.atol_rms, counted))


def _narrowest(own: float | None, dtype: torch.dtype) -> float:
    """In units of the rms: the reference's own error, or what rounding alone explains where that is unknown."""
    rounding = 8 * torch.finfo(dtype).eps
    counted = min(OWN_ERROR_FACTOR * own, OWN_ERROR_LIMIT) if own is not None else rounding
    return max(counted, REPLACED_FLOOR)


def _limit(expected: Expected) -> torch.Tensor:
    t, truth = expected.tolerance, expected.truth
    limit = t.rtol * truth.abs() + (t.atol + t.atol_rms * rms_of(truth))
    return torch.where(torch.isfinite(limit), limit, torch.zeros_like(limit))


def _passes(answer: torch.Tensor, expected: Expected) -> bool:
    truth = expected.truth
    outside = (_error(answer, truth) > _limit(expected)) & torch.isfinite(truth)
    return int(outside.sum()) <= int(truth.numel() * OUTSIDE_SHARE)


def _error(got: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Absolute error; infinite where the output is NaN."""
    error = (got - truth).abs()
    return torch.where(torch.isnan(error), torch.full_like(error, math.inf), error)


def _unlike_nonfinite(got: torch.Tensor, native: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Where NaN or an infinity of one has no counterpart in the other."""
    named = ~torch.isfinite(native) | ~torch.isfinite(truth)
    same = (torch.isnan(got) & torch.isnan(native)) | (got == native) | (got == truth)
    spurious = ~torch.isfinite(got) & ~named
    return (named & ~same) | spurious


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs, and types that torch cannot compare as one that it can."""
    if tensor.dtype.is_complex:
        return torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        return tensor.float()
    return tensor


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """In float64 or complex128, whatever it holds."""
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)


def _mean(tensor: torch.Tensor) -> Any:
    finite = tensor[torch.isfinite(tensor)]
    return finite.mean().item() if finite.numel() else 0.0


def _mismatch_exact(candidate: torch.Tensor, expected: Expected) -> Mismatch | None:
    wrong = candidate != expected.native
    count, total = int(wrong.sum()), wrong.numel()
    if count <= int(total * OUTSIDE_SHARE):
        return None
    index = _first_index(wrong)
    evidence: Evidence = {
        "wrong": count,
        "elements": total,
        "wrong_share": count / total,
        "at": list(index),
        "expected": expected.native[index].item(),
        "got": candidate[index].item(),
        **_map_of(wrong),
    }
    region = region_of(wrong)
    title = f"{count:,} of {total:,} values differ from the reference ({region})"
    return Mismatch("values", title, evidence, region)


def _describe(
    got: torch.Tensor,
    expected: Expected,
    error: torch.Tensor,
    wrong: torch.Tensor,
    unlike: torch.Tensor,
) -> Mismatch:
    truth, total, count = expected.truth, wrong.numel(), int(wrong.sum())
    rms = rms_of(truth)
    finite_error = torch.where(wrong & torch.isfinite(error), error, torch.zeros_like(error))
    worst = unlike if bool(unlike.any()) else finite_error
    index = _index_of(int(worst.flatten().to(torch.float64).argmax()), worst.shape)
    region = region_of(wrong)
    pattern = patterns_of(got, truth, wrong)
    if pattern.get("pattern") == "large_magnitudes":
        region = f"large magnitudes only: from {pattern['pattern_value']:.3g} on"
    nans = int((torch.isnan(got) & ~torch.isnan(wide(expected.native))).sum())
    evidence: Evidence = {
        "wrong": count,
        "elements": total,
        "wrong_share": count / total,
        "nans": nans,
        "max_error": float(finite_error.max()),
        "max_error_rms": float(finite_error.max()) / rms if rms else None,
        "error_rms": rms_of(finite_error) / rms if rms else None,
        "rms": rms,
        "rtol": expected.tolerance.rtol,
        "atol": expected.tolerance.atol + expected.tolerance.atol_rms * rms,
        "own_error_rms": expected.own_error_rms,
        "at": list(index),
        "expected": _number(truth[index]),
        "got": _number(got[index]),
        "shape": list(wrong.shape),
        **pattern,
        **_map_of(wrong),
    }
    if is_constant(got) and not is_constant(truth):
        value = _number(got.flatten()[0])
        title = f"every value of the output is {value}; the reference's differ"
        return Mismatch("trivial_answer", title, evidence, region)
    if bool(unlike.any()):
        title = f"{int(unlike.sum()):,} of {total:,} values are NaN or infinite on one side only ({region})"
        return Mismatch("nan", title, evidence, region)
    title = f"{count:,} of {total:,} values are wrong ({region})"
    return Mismatch("values", title, evidence, region)


def _number(value: torch.Tensor) -> float | str:
    """A number that JSON can carry."""
    plain = value.item()
    if isinstance(plain, complex) or not math.isfinite(plain):
        return str(plain)
    return float(plain)


def _first_index(wrong: torch.Tensor) -> tuple[int, ...]:
    return _index_of(int(wrong.flatten().to(torch.uint8).argmax()), wrong.shape)


def _index_of(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, at = divmod(flat, max(size, 1))
        index.append(at)
    return tuple(reversed(index))


# Where


def _map_of(wrong: torch.Tensor) -> Evidence:
    """Share of wrong elements on a coarse grid over the last axis and all others flattened; for a picture."""
    if wrong.dim() == 0 or not wrong.numel():
        return {}
    flat = wrong.reshape(-1, wrong.shape[-1]) if wrong.dim() > 1 else wrong.reshape(1, -1)
    rows, columns = min(MAP_SIDE, flat.shape[0]), min(MAP_SIDE, flat.shape[1])
    pooled = torch.nn.functional.adaptive_avg_pool2d(flat[None, None].float(), (rows, columns))
    return {
        "error_map": [round(v, 4) for v in pooled.flatten().tolist()],
        "error_map_shape": [rows, columns],
    }
