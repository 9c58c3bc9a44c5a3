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


HELPERS: Final = {
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
