"""The numpy versions of libdevice against torch's own functions."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import triton

from gpu_runner.evaluation.child.libdevice import function_for

WRAPPERS = Path(triton.__file__).parent / "language" / "extra" / "cuda" / "libdevice.py"
X = torch.linspace(0.05, 0.95, 91, dtype=torch.float64)
UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "acos": torch.acos,
    "asinh": torch.asinh,
    "atanh": torch.atanh,
    "cbrt": lambda x: x ** (1 / 3),
    "cospi": lambda x: torch.cos(torch.pi * x),
    "cyl_bessel_i0": torch.special.i0,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfcinv": lambda x: torch.erfinv(1 - x),
    "erfcx": torch.special.erfcx,
    "exp10": lambda x: 10**x,
    "expm1": torch.expm1,
    "j1": torch.special.bessel_j1,
    "lgamma": torch.lgamma,
    "log1p": torch.log1p,
    "normcdf": torch.special.ndtr,
    "normcdfinv": torch.special.ndtri,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    "tgamma": lambda x: torch.exp(torch.lgamma(x)),
}


def called(symbol: str, *arrays: np.ndarray) -> np.ndarray:
    function = function_for(symbol)
    assert function is not None
    return np.asarray(function(*arrays))


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("width", ["", "f"])
def test_functions_agree_with_torch(name: str, width: str) -> None:
    x = X.numpy() if not width else X.numpy().astype(np.float32)
    got = called(f"__nv_{name}{width}", x)
    expected = UNARY[name](torch.from_numpy(x.astype(np.float64))).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-5 if width else 1e-8, atol=1e-6)


def test_every_symbol_of_tritons_wrappers_is_known() -> None:
    symbols = set(re.findall(r'"(__nv_\w+)"', WRAPPERS.read_text()))
    assert len(symbols) > 200
    assert [symbol for symbol in sorted(symbols) if function_for(symbol) is None] == []


def test_an_unknown_symbol_has_no_function() -> None:
    assert function_for("__nv_no_such_function") is None


@pytest.mark.parametrize(
    ("symbol", "arguments", "expected"),
    [
        ("__nv_clz", [1], 31),
        ("__nv_ffs", [8], 4),
        ("__nv_popc", [255], 8),
        ("__nv_brev", [1], -(2**31)),
        ("__nv_mulhi", [1 << 30, 8], 2),
        ("__nv_mul24", [3, 5], 15),
        ("__nv_hadd", [3, 6], 4),
        ("__nv_rhadd", [3, 6], 5),
        ("__nv_sad", [3, 9, 10], 16),
        ("__nv_byte_perm", [0x33221100, 0x77665544, 0x7531], 0x77553311),
    ],
)
def test_integer_functions(symbol: str, arguments: list[int], expected: int) -> None:
    arrays = [np.array([value], np.int32) for value in arguments]
    assert int(called(symbol, *arrays)[0]) == expected


@pytest.mark.parametrize(("direction", "expected"), [("rn", 2), ("rz", 2), ("rd", 2), ("ru", 3)])
def test_conversions_round_as_they_say(direction: str, expected: int) -> None:
    x = np.array([2.5, np.nan, 1e30], np.float32)
    got = called(f"__nv_float2int_{direction}", x)
    assert got.tolist() == [expected, 0, 2**31 - 1]


def test_directed_sums_enclose_the_exact_one() -> None:
    a, b = np.array([1.0], np.float32), np.array([2.0**-30], np.float32)
    down, up = called("__nv_fadd_rd", a, b), called("__nv_fadd_ru", a, b)
    assert down[0] == 1.0 < up[0] == np.nextafter(np.float32(1), np.float32(2))


def test_round_is_away_from_zero_and_rint_to_even() -> None:
    x = np.array([0.5, 1.5, -2.5], np.float32)
    assert called("__nv_roundf", x).tolist() == [1.0, 2.0, -3.0]
    assert called("__nv_rintf", x).tolist() == [0.0, 2.0, -2.0]
