"""Right, wrong, and where: tolerances in units of the output, and errors named by their place."""

import math
from collections.abc import Callable

import pytest
import torch

from gpu_runner.evaluation.child import compare
from gpu_runner.evaluation.child.compare import Tolerance, default_tolerance, expect, mismatch

N = 1000


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def expected(native: torch.Tensor, tolerance: float = 1e-4, **options: object) -> compare.Expected:
    limits = Tolerance(tolerance, tolerance)
    return expect(native, native.double(), limits, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "tf32", "value"),
    [
        (torch.float32, False, 1e-4),
        (torch.float32, True, 1e-2),
        (torch.float16, False, 1e-2),
        (torch.bfloat16, True, 2e-2),
        (torch.float64, False, 1e-6),
    ],
)
def test_defaults_depend_on_dtype_and_policy(dtype: torch.dtype, tf32: bool, value: float) -> None:
    assert default_tolerance(dtype, tf32=tf32) == Tolerance(value, value)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_same_relative_error_is_judged_alike_at_every_scale(scale: float) -> None:
    native = normal(N) * scale

    assert mismatch(native + scale * 1e-5, expected(native)) is None
    assert mismatch(native + scale * 1e-3, expected(native)) is not None


def test_zeros_do_not_pass_for_tiny_outputs() -> None:
    native = torch.softmax(torch.rand(2, 30_000), dim=1)

    found = mismatch(torch.zeros_like(native), expected(native))

    assert found is not None
    assert found.kind == "trivial_answer"


def test_where_the_mean_would_pass_the_references_own_error_is_the_tolerance() -> None:
    native = 1.0 + 1e-6 * normal(N)

    wanted = expected(native)

    assert wanted.was_replaced
    assert wanted.tolerance.atol_rms <= 1e-6
    assert mismatch(native, wanted) is None
    assert mismatch(torch.full_like(native, float(native.mean())), wanted) is not None


def test_where_an_input_would_pass_it_does_not() -> None:
    given = normal(N)
    native = given + 1e-5

    assert mismatch(given, expected(native)) is None
    assert mismatch(given, expected(native, trivial=[given])) is not None


def test_the_references_own_error_widens_the_tolerance_up_to_a_bound() -> None:
    truth = normal(N).double()
    off = truth + 1e-3
    widened = expect(off.float(), truth, Tolerance(1e-4, 1e-4))
    bounded = expect((truth + 10.0).float(), truth, Tolerance(1e-4, 1e-4))

    assert widened.tolerance.atol_rms == pytest.approx(4e-3, rel=0.1)
    assert bounded.tolerance.atol_rms == compare.OWN_ERROR_LIMIT


@pytest.mark.parametrize(("own", "is_ill"), [(0.0, False), (0.01, False), (0.08, True)])
def test_where_the_reference_is_far_off_itself_a_failure_would_mean_nothing(
    own: float, is_ill: bool
) -> None:
    truth = normal(N).double()
    native = (truth + own * compare.rms_of(truth) * torch.eye(1, N)[0]).float()

    assert expect(native, truth, Tolerance(1e-4, 1e-4)).is_ill_conditioned is is_ill


def test_a_declared_tolerance_is_not_widened() -> None:
    truth = normal(N).double()
    declared = compare.declared_tolerance({"rtol": 1e-5, "atol": 1e-5})
    assert declared is not None

    assert expect((truth + 1e-3).float(), truth, declared).tolerance == declared


@pytest.mark.parametrize(
    "value", ["tight", [1.0], {"rtol": -1.0}, {"other": 1}, float("nan"), True]
)
def test_an_unreadable_tolerance_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        compare.declared_tolerance(value)


@pytest.mark.parametrize(("wrong", "is_accepted"), [(0, True), (1, True), (2, True), (3, False)])
def test_one_in_a_hundred_thousand_may_be_slightly_outside(wrong: int, is_accepted: bool) -> None:
    native = normal(200_000)
    got = native.clone()
    got[:wrong] += 5e-4

    assert (mismatch(got, expected(native)) is None) is is_accepted


def test_none_may_be_far_outside() -> None:
    native = normal(200_000)
    got = native.clone()
    got[7] += 1.0

    found = mismatch(got, expected(native))

    assert found is not None
    assert found.evidence["at"] == [7]


@pytest.mark.parametrize(
    ("truth", "got", "kind"),
    [
        (1.0, math.nan, "nan"),
        (1.0, math.inf, "nan"),
        (math.nan, 1.0, "nan"),
        (math.inf, -math.inf, "nan"),
        (math.nan, math.nan, None),
        (-math.inf, -math.inf, None),
    ],
)
def test_nan_and_infinity_are_compared_by_name(truth: float, got: float, kind: str | None) -> None:
    native, output = normal(N), normal(N)
    native[3], output[3] = truth, got

    found = mismatch(output, expected(native))

    assert (found.kind if found else None) == kind


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_integers_are_compared_exactly(dtype: torch.dtype) -> None:
    native = (torch.arange(64) % 2).to(dtype)
    wanted = expect(native, None, Tolerance(1.0, 1.0))
    got = native.clone()
    got[5] = 0

    assert mismatch(native, wanted) is None
    found = mismatch(got, wanted)
    assert found is not None
    assert found.evidence["wrong"] == 1


def test_complex_outputs_are_compared() -> None:
    native = torch.complex(normal(N), normal(N, seed=1))
    wanted = expect(native, native.to(torch.complex128), Tolerance(1e-4, 1e-4))

    assert mismatch(native, wanted) is None
    assert mismatch(native.conj().resolve_conj(), wanted) is not None


@pytest.mark.parametrize("shape", [(0,), (), (3, 0, 2)])
def test_empty_and_scalar_outputs_are_compared(shape: tuple[int, ...]) -> None:
    native = torch.ones(shape)

    assert mismatch(native.clone(), expected(native)) is None


@pytest.mark.parametrize(
    ("where", "region"),
    [
        ((slice(None), slice(None)), "everywhere"),
        ((slice(None), slice(48, None)), "the tail of axis 1: 48 to 52 of 53"),
        ((slice(16, 20), slice(None)), "a block row of axis 0: 16 to 19 of 37"),
        ((slice(None), slice(16, 20)), "a block column of axis 1: 16 to 19 of 53"),
        ((slice(1, -1), slice(1, -1)), "the interior: 1 to 35 of axis 0 and 1 to 51 of axis 1"),
        ((36, slice(None)), "index 36 of axis 0 (the last)"),
        ((slice(None), slice(3, None, 4)), "every 4th of axis 1 from 3"),
        ((5, 6), "index 5 of axis 0 and index 6 of axis 1"),
    ],
)
def test_errors_are_named_by_their_place(where: tuple[object, ...], region: str) -> None:
    wrong = torch.zeros(37, 53, dtype=torch.bool)
    wrong[where] = True

    assert compare.region_of(wrong) == region


def _clamped(truth: torch.Tensor) -> torch.Tensor:
    return truth.clamp(-2.0, 2.0)


def _softmax_over_rows(truth: torch.Tensor) -> torch.Tensor:
    return torch.softmax(truth.log(), 0)


@pytest.mark.parametrize(
    ("made", "pattern", "value"),
    [
        (lambda truth: truth.mT, "transposed", None),
        (lambda truth: truth * 0.25, "scaled", 0.25),
        (lambda truth: truth + 3.0, "offset", 3.0),
        (lambda truth: truth.flatten().roll(-16).reshape(truth.shape), "shifted", 16),
        (lambda truth: truth.flatten().roll(1).reshape(truth.shape), "shifted", -1),
        (_clamped, "large_magnitudes", None),
        (lambda truth: torch.flip(truth, (0,)), None, None),
    ],
)
def test_wrong_values_are_recognised_by_what_they_look_like(
    made: Callable[[torch.Tensor], torch.Tensor], pattern: str | None, value: float | None
) -> None:
    native = normal(48, 48)

    found = mismatch(made(native).contiguous(), expected(native))

    assert found is not None
    assert found.evidence.get("pattern") == pattern
    if value is not None:
        assert found.evidence["pattern_value"] == pytest.approx(value)
    assert found.region.startswith("large magnitudes only") == (pattern == "large_magnitudes")


def test_a_softmax_along_the_other_axis_is_recognised() -> None:
    native = torch.softmax(normal(40, 48), 1)

    found = mismatch(_softmax_over_rows(native), expected(native))

    assert found is not None
    assert (found.evidence["pattern"], found.evidence["pattern_value"]) == (
        "normalised_elsewhere",
        0,
    )


def test_a_finding_carries_a_coarse_map() -> None:
    native = normal(48, 48)
    got = native.clone()
    got[24:] += 1.0

    found = mismatch(got, expected(native))

    assert found is not None
    assert found.evidence["error_map_shape"] == [12, 12]
    assert found.evidence["error_map"] == [0.0] * 72 + [1.0] * 72
