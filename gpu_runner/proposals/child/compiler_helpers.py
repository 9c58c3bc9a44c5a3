"""What inductor's runtime helpers become in plain Triton: a built-in, or a small function of the emitted module."""

from dataclasses import dataclass
from typing import Final

NATIVE: Final = {
    name: name
    for name in "exp exp2 log log2 sqrt rsqrt sin cos erf floor ceil abs fma sigmoid".split()
} | {"fabs": "abs"}
"""Functions of libdevice and of inductor's math module that `tl` has itself."""


@dataclass(frozen=True)
class Helper:
    """A function that the emitted module defines; it takes the first `arguments` of the original's."""

    name: str
    arguments: int
    text: str
    needs: tuple[str, ...] = ()


_EXTREMES: Final = {"max": ("larger", ">"), "min": ("smaller", "<")}


def _with_place(word: str, sign: str) -> str:
    return f'''
@triton.jit
def {word}_with_place(value, place, other, other_place):
    """The {word} value and its place; NaN counts as {word} than all numbers, and of equals the first stays."""
    is_equal = (value == other) | ((value != value) & (other != other))
    is_beyond = (value {sign} other) | ((value != value) & (other == other))
    keep = is_beyond | (is_equal & (place < other_place))
    return tl.where(keep, value, other), tl.where(keep, place, other_place)
'''


HELPERS: Final = {
    **{
        f"{extreme}imum_with_index": Helper(f"{word}_with_place", 4, _with_place(word, sign))
        for extreme, (word, sign) in _EXTREMES.items()
    },
    "bucketize_binary_search": Helper(
        "count_below",
        8,
        '''
@triton.jit
def count_below(
    values, bounds_ptr, n_bounds, n_total, stride, first, dtype: tl.constexpr, or_equal: tl.constexpr
):
    """How many of the sorted bounds lie below each value, or at it too; halves the range until none is left."""
    low = tl.zeros(values.shape, dtype)
    high = low + n_bounds
    left = n_bounds + 1
    while left > 1:
        middle = (low + high) // 2
        inside = (middle < n_bounds) & (middle * stride + first < n_total)
        bound = tl.load(bounds_ptr + first + middle * stride, mask=inside, other=0)
        is_above = (values >= bound) if or_equal else (values > bound)
        is_above = is_above | (values != values)
        low = tl.where(is_above & inside, middle + 1, low)
        high = tl.where(is_above, high, middle)
        left = (left + 1) // 2
    return low
''',
    ),
    "welford_reduce": Helper(
        "add_to_moments",
        4,
        '''
@triton.jit
def add_to_moments(value, mean, m2, count):
    """Mean, sum of squared deviations and count of every lane after one more value."""
    count += 1
    delta = value - mean
    mean += delta / count
    return mean, m2 + delta * (value - mean), count
''',
    ),
    "welford": Helper(
        "merge_moments",
        4,
        '''
@triton.jit
def merge_moments(mean, m2, count, axis: tl.constexpr):
    """Mean, sum of squared deviations and count of all lanes along an axis together."""
    total = tl.sum(count, axis)
    overall = tl.sum(mean * count, axis) / total
    delta = mean - tl.expand_dims(overall, axis)
    return overall, tl.sum(m2 + count * delta * delta, axis), total
''',
    ),
    "select_one": Helper(
        "pick",
        2,
        '''
@triton.jit
def pick(values, is_wanted):
    """The one value of every row that is wanted."""
    return tl.sum(tl.where(is_wanted, values, 0), 1)[:, None]
''',
    ),
    "prod": Helper(
        "product",
        2,
        """
@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def product(values, axis: tl.constexpr):
    return tl.reduce(values, axis, multiply)
""",
    ),
}
