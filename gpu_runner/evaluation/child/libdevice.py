"""The functions of CUDA's libdevice on numpy arrays, for the interpreter, which has none of its own.

Triton's wrappers choose a symbol by argument types ("__nv_tanhf"); `function_for(symbol)` gives its numpy version.
`install(patch)` makes the vendor-neutral and AMD modules use the same ones. Directed roundings (`_rz`, `_rd`, `_ru`) are
computed in double precision and then moved to the neighbouring float where they differ.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Function = Callable[..., np.ndarray]


def by_torch(function: Callable[..., torch.Tensor]) -> Function:
    """A torch function on numpy arrays, unseen by dispatch and function modes and by the profiler.

    The interpreter computes here on behalf of a kernel; what watches the candidate's own operations must not see it.
    """

    def on_arrays(*arrays: np.ndarray) -> np.ndarray:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            torch.autograd._enable_record_function(False)
            try:
                tensors = [torch.from_numpy(np.array(a, copy=True)) for a in arrays]
                return function(*tensors).numpy()
            finally:
                torch.autograd._enable_record_function(True)

    return on_arrays


def _wide(function: Function) -> Function:
    """Compute in double precision; the caller casts to the result's type."""
    return lambda *arrays: function(*(np.asarray(a, np.float64) for a in arrays))


def _each(function: Callable[..., float]) -> Function:
    return np.vectorize(function, otypes=[np.float64])


def _rounded(exact: Function, direction: str) -> Function:
    """`exact` in double precision, rounded to the operand's type towards zero, down, up or to nearest."""

    def apply(*arrays: np.ndarray) -> np.ndarray:
        kind = arrays[0].dtype
        value = np.asarray(exact(*(np.asarray(a, np.float64) for a in arrays)))
        nearest = value.astype(kind)
        if direction == "n" or kind == np.float64:
            return nearest
        too_high, too_low = nearest > value, nearest < value
        if direction == "z":
            too_high, too_low = too_high & (value > 0), too_low & (value < 0)
        elif direction == "d":
            too_low = np.zeros_like(too_low)
        else:
            too_high = np.zeros_like(too_high)
        lower = np.nextafter(nearest, np.array(-np.inf, kind))
        upper = np.nextafter(nearest, np.array(np.inf, kind))
        return np.where(too_high, lower, np.where(too_low, upper, nearest))

    return apply


_ROUND: dict[str, Function] = {"n": np.rint, "z": np.trunc, "d": np.floor, "u": np.ceil}


def _to_integer(direction: str, kind: type[np.generic]) -> Function:
    """Convert to an integer type, saturating, with NaN as 0, as the hardware does."""
    limits = np.iinfo(kind)  # type: ignore[type-var]

    def apply(x: np.ndarray) -> np.ndarray:
        value = np.nan_to_num(_ROUND[direction](np.asarray(x, np.float64)), nan=0.0)
        clipped = np.clip(value, float(limits.min), float(limits.max))
        out = np.where(clipped >= float(limits.max), limits.max, 0).astype(kind)
        inside = clipped < float(limits.max)
        out[inside] = clipped[inside].astype(kind)
        return out

    return lambda x: apply(np.atleast_1d(x)).reshape(np.shape(x))


def _bit_count(x: np.ndarray) -> np.ndarray:
    unsigned = x.view(f"u{x.dtype.itemsize}")
    as_bytes = np.ascontiguousarray(unsigned).view(np.uint8).reshape((*x.shape, x.dtype.itemsize))
    return np.unpackbits(as_bytes, axis=-1).sum(axis=-1).astype(np.int32)


def _bits(x: np.ndarray) -> np.ndarray:
    """Bits of each element, most significant first, as a last axis."""
    big = np.ascontiguousarray(x).astype(x.dtype.newbyteorder(">"))
    return np.unpackbits(big.view(np.uint8).reshape((*x.shape, x.dtype.itemsize)), axis=-1)


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    bits = _bits(x)
    return np.where(bits.any(axis=-1), bits.argmax(axis=-1), bits.shape[-1]).astype(np.int32)


def _first_set(x: np.ndarray) -> np.ndarray:
    bits = _bits(x)[..., ::-1]
    return np.where(bits.any(axis=-1), bits.argmax(axis=-1) + 1, 0).astype(np.int32)


def _reversed_bits(x: np.ndarray) -> np.ndarray:
    packed = np.packbits(_bits(x)[..., ::-1], axis=-1)
    return packed.view(x.dtype.newbyteorder(">")).reshape(x.shape).astype(x.dtype)


def _byte_perm(x: np.ndarray, y: np.ndarray, selector: np.ndarray) -> np.ndarray:
    both = x.astype(np.uint32).astype(np.uint64) | (y.astype(np.uint32).astype(np.uint64) << 32)
    out = np.zeros_like(both)
    for i in range(4):
        nibble = (selector.astype(np.uint64) >> (4 * i)) & 0x7
        out |= ((both >> (8 * nibble)) & 0xFF) << (8 * i)
    return out.astype(np.uint32).astype(np.int32)


def _mulhi(bits: int, signed: bool) -> Function:
    def high(a: Any, b: Any) -> int:
        return (int(a) * int(b)) >> bits

    each = np.vectorize(high, otypes=[f"{'i' if signed else 'u'}{bits // 8}"])
    return lambda a, b: each(a, b)


def _low24(x: np.ndarray, signed: bool) -> np.ndarray:
    low = x.astype(np.int64) & 0xFFFFFF
    return np.where(low >= 1 << 23, low - (1 << 24), low) if signed else low


def _mul24(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (_low24(a, True) * _low24(b, True)).astype(np.int32)


def _umul24(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (_low24(a, False) * _low24(b, False)).astype(np.uint32)


def _half_away(x: np.ndarray) -> np.ndarray:
    return np.trunc(x + np.copysign(0.5, x))


def _yn(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _by_recurrence(
        n, x, by_torch(torch.special.bessel_y0), by_torch(torch.special.bessel_y1)
    )


def _jn(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _by_recurrence(
        n, x, by_torch(torch.special.bessel_j0), by_torch(torch.special.bessel_j1)
    )


def _by_recurrence(n: np.ndarray, x: np.ndarray, zeroth: Function, first: Function) -> np.ndarray:
    """Bessel functions of integer order by the forward recurrence."""
    x = np.asarray(x, np.float64)
    before, now = zeroth(x), first(x)
    out = np.where(n == 0, before, now)
    for order in range(1, int(np.max(n, initial=0))):
        before, now = now, 2 * order / x * now - before
        out = np.where(n == order + 1, now, out)
    return out


def _norm(*parts: np.ndarray) -> np.ndarray:
    return np.sqrt(sum(np.square(p) for p in parts))


def _normcdf(x: np.ndarray) -> np.ndarray:
    return by_torch(torch.special.ndtr)(np.asarray(x, np.float64))


def _ldexp(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    return np.ldexp(x, n.astype(np.int32))


def _hiloint2double(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    whole = (high.astype(np.uint32).astype(np.uint64) << 32) | low.astype(np.uint32)
    return whole.view(np.float64)


def _view(kind: str) -> Function:
    return lambda x: np.ascontiguousarray(x).view(kind)


def _float_functions() -> dict[str, Function]:
    """By name without the `f` of single precision."""
    special = torch.special
    return {
        "fabs": np.abs,
        "abs": np.abs,
        "acos": np.arccos,
        "acosh": np.arccosh,
        "asin": np.arcsin,
        "asinh": np.arcsinh,
        "atan": np.arctan,
        "atan2": np.arctan2,
        "atanh": np.arctanh,
        "cbrt": np.cbrt,
        "ceil": np.ceil,
        "copysign": np.copysign,
        "cos": np.cos,
        "cosh": np.cosh,
        "cospi": _wide(lambda x: np.cos(np.pi * np.remainder(x, 2.0))),
        "cyl_bessel_i0": by_torch(special.i0),
        "cyl_bessel_i1": by_torch(special.i1),
        "i0": by_torch(special.i0),
        "i1": by_torch(special.i1),
        "erf": by_torch(special.erf),
        "erfc": by_torch(special.erfc),
        "erfcinv": _wide(lambda x: by_torch(special.erfinv)(1.0 - x)),
        "erfcx": _wide(by_torch(special.erfcx)),
        "erfinv": by_torch(special.erfinv),
        "exp": np.exp,
        "exp10": _wide(lambda x: np.power(10.0, x)),
        "exp2": np.exp2,
        "expm1": np.expm1,
        "fdim": lambda x, y: np.maximum(x - y, 0),
        "finite": np.isfinite,
        "isfinite": np.isfinite,
        "floor": np.floor,
        "fma": _wide(lambda x, y, z: x * y + z),
        "fmod": np.fmod,
        "hypot": np.hypot,
        "ilogb": lambda x: (np.frexp(x)[1] - 1).astype(np.int32),
        "isinf": np.isinf,
        "isnan": np.isnan,
        "j0": by_torch(special.bessel_j0),
        "j1": by_torch(special.bessel_j1),
        "jn": _jn,
        "y0": by_torch(special.bessel_y0),
        "y1": by_torch(special.bessel_y1),
        "yn": _yn,
        "ldexp": _ldexp,
        "scalbn": _ldexp,
        "lgamma": by_torch(torch.lgamma),
        "llrint": lambda x: np.rint(x).astype(np.int64),
        "llround": lambda x: _half_away(x).astype(np.int64),
        "log": np.log,
        "log10": np.log10,
        "log1p": np.log1p,
        "log2": np.log2,
        "logb": lambda x: (np.frexp(x)[1] - 1).astype(x.dtype),
        "nearbyint": np.rint,
        "rint": np.rint,
        "nextafter": np.nextafter,
        "norm3d": _norm,
        "norm4d": _norm,
        "rnorm3d": lambda *p: 1.0 / _norm(*p),
        "rnorm4d": lambda *p: 1.0 / _norm(*p),
        "normcdf": _normcdf,
        "normcdfinv": by_torch(special.ndtri),
        "pow": np.power,
        "powi": lambda x, n: np.power(x, n.astype(x.dtype)),
        "pown": lambda x, n: np.power(x, n.astype(x.dtype)),
        "rcbrt": lambda x: 1.0 / np.cbrt(x),
        "rcp64h": lambda x: 1.0 / x,
        "remainder": _each(
            lambda x, y: math.remainder(x, y) if y and math.isfinite(x) else math.nan
        ),
        "rhypot": lambda x, y: 1.0 / np.hypot(x, y),
        "round": _half_away,
        "rsqrt": lambda x: 1.0 / np.sqrt(x),
        "saturate": lambda x: np.nan_to_num(np.clip(x, 0.0, 1.0), nan=0.0),
        "signbit": np.signbit,
        "sin": np.sin,
        "sinh": np.sinh,
        "sinpi": _wide(lambda x: np.sin(np.pi * np.remainder(x, 2.0))),
        "sqrt": np.sqrt,
        "tan": np.tan,
        "tanh": np.tanh,
        "tgamma": _each(_gamma),
        "trunc": np.trunc,
        "fdivide": np.divide,
    }


def _gamma(x: float) -> float:
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def _integer_functions() -> dict[str, Function]:
    return {
        "brev": _reversed_bits,
        "brevll": _reversed_bits,
        "byte_perm": _byte_perm,
        "clz": _leading_zeros,
        "clzll": _leading_zeros,
        "ffs": _first_set,
        "ffsll": _first_set,
        "popc": _bit_count,
        "popcll": _bit_count,
        "llabs": np.abs,
        "hadd": lambda a, b: ((a.astype(np.int64) + b) >> 1).astype(a.dtype),
        "uhadd": lambda a, b: ((a.astype(np.uint64) + b) >> 1).astype(a.dtype),
        "rhadd": lambda a, b: ((a.astype(np.int64) + b + 1) >> 1).astype(a.dtype),
        "urhadd": lambda a, b: ((a.astype(np.uint64) + b + 1) >> 1).astype(a.dtype),
        "sad": lambda a, b, c: np.abs(a.astype(np.int64) - b).astype(np.int64) + c,
        "usad": lambda a, b, c: np.abs(a.astype(np.int64) - b).astype(np.int64) + c,
        "mul24": _mul24,
        "umul24": _umul24,
        "mulhi": _mulhi(32, True),
        "umulhi": _mulhi(32, False),
        "mul64hi": _mulhi(64, True),
        "umul64hi": _mulhi(64, False),
        "int_as_float": _view("f4"),
        "uint_as_float": _view("f4"),
        "float_as_int": _view("i4"),
        "float_as_uint": _view("u4"),
        "longlong_as_double": _view("f8"),
        "double_as_longlong": _view("i8"),
        "hiloint2double": _hiloint2double,
        "double2loint": lambda x: np.ascontiguousarray(x).view(np.int64).astype(np.int32),
        "double2hiint": lambda x: (np.ascontiguousarray(x).view(np.int64) >> 32).astype(np.int32),
    }


_ARITHMETIC: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rcp": np.reciprocal,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "ma": lambda x, y, z: x * y + z,
}

_INTEGERS: dict[str, type[np.generic]] = {
    "int": np.int32,
    "uint": np.uint32,
    "ll": np.int64,
    "ull": np.uint64,
}


def _rounding_functions() -> dict[str, Function]:
    table: dict[str, Function] = {}
    for direction in "nzdu":
        for name, exact in _ARITHMETIC.items():
            for width in ("f", "d"):
                table[f"{width}{name}_r{direction}"] = _rounded(exact, direction)
        table[f"fmaf_r{direction}"] = _rounded(_ARITHMETIC["ma"], direction)
        table[f"double2float_r{direction}"] = _narrowed(direction)
        for name, kind in _INTEGERS.items():
            for width in ("float", "double"):
                table[f"{width}2{name}_r{direction}"] = _to_integer(direction, kind)
            table[f"{name}2float_r{direction}"] = _narrowed(direction)
            table[f"{name}2double_r{direction}"] = lambda x: x.astype(np.float64)
    return table


def _narrowed(direction: str) -> Function:
    def apply(x: np.ndarray) -> np.ndarray:
        value = np.asarray(x, np.float64)
        nearest = value.astype(np.float32)
        lower = np.nextafter(nearest, np.float32(-np.inf))
        upper = np.nextafter(nearest, np.float32(np.inf))
        down = (nearest > value) & ((direction == "d") | ((direction == "z") & (value > 0)))
        up = (nearest < value) & ((direction == "u") | ((direction == "z") & (value < 0)))
        return np.where(down, lower, np.where(up, upper, nearest))

    return apply


_FLOATS = _float_functions()
_OTHERS = {**_rounding_functions(), **_integer_functions()}


def function_for(symbol: str) -> Function | None:
    """The numpy version of a libdevice or OCML symbol; None when there is none."""
    name = symbol.removeprefix("__nv_").removeprefix("__ocml_").removeprefix("__triton_hip_")
    if name in _OTHERS:
        return _OTHERS[name]
    name = name.removesuffix("_f32").removesuffix("_f64").removeprefix("fast_")
    for candidate in (name, name.removesuffix("f"), name.removesuffix("d"), name.removeprefix("i")):
        if candidate in _FLOATS:
            return _FLOATS[candidate]
    return None


def install(patch: Callable[[Any], None]) -> None:
    """Let every libdevice module work under the interpreter.

    Args:
        patch: gives each builtin of a module the interpreter's semantic, as it does for `triton.language`.
    """
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import gdc, utils
    from triton.language.extra.cuda import libdevice as cuda
    from triton.language.extra.hip import libdevice as hip

    for module in (cuda, hip, gdc, utils):
        patch(module)
    for name in dir(libdevice):
        if not name.startswith("_") and hasattr(cuda, name):
            setattr(libdevice, name, getattr(cuda, name))
    for name in dir(hip):
        if not name.startswith("_") and name != "core" and hasattr(cuda, name):
            setattr(hip, name, getattr(cuda, name))
