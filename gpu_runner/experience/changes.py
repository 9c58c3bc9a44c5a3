"""What changed between two sources, in words and by rules: kernels, launch constants, and the names that tell techniques."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

_CONSTANT = re.compile(r"\b([A-Za-z_]\w*)\s*=\s*(\d+)\b")
_KERNEL = re.compile(r"^\s*@(?:triton\.)?jit\b", re.MULTILINE)
_LAUNCH = re.compile(r"\b\w+\[[^\]\n]+\]\(")
_TELLING: Final = {
    "tl.dot": "products on tensor cores",
    "tl.exp2": "powers of two",
    "tl.rsqrt": "reciprocal roots",
    "tl.atomic_add": "atomics",
    "tl.swizzle2d": "grouped tiles",
    "eviction_policy": "cache hints",
    "tf32x3": "three TF32 products",
    '"tf32"': "TF32",
    '"ieee"': "full float32 products",
    "tl.cumsum": "a scan",
    "tl.static_range": "unrolled loops",
    "tl.int64": "64-bit offsets",
    "zeros": "a zero fill",
}
_OPTIONS: Final = ("num_warps", "num_stages")


def changes(before: str, after: str) -> tuple[str, ...]:
    """Each change that a rule recognises, as a clause; empty where none does."""
    return tuple(_recognised(before, after))


def _recognised(before: str, after: str) -> Iterator[str]:
    yield from _counted("kernel", _KERNEL, before, after)
    yield from _counted("launch", _LAUNCH, before, after)
    for name, (old, new) in _constants(before, after).items():
        yield f"{name} {old} becomes {new}"
    for token, words in _TELLING.items():
        if token in after and token not in before:
            yield f"{words} came in"
        elif token in before and token not in after:
            yield f"{words} went"
    loops = before.count("for ") - after.count("for ")
    loads = before.count("tl.load(") - after.count("tl.load(")
    if loops > 0:
        yield f"{loops} loop{'s' if loops > 1 else ''} less"
    if loads > 0:
        yield f"{loads} load{'s' if loads > 1 else ''} less"


def _counted(what: str, pattern: re.Pattern[str], before: str, after: str) -> Iterator[str]:
    old, new = len(pattern.findall(before)), len(pattern.findall(after))
    if old != new:
        plural = "es" if what.endswith("ch") else "s"
        yield f"{new} {what}{plural if new != 1 else ''} instead of {old}"


def _constants(before: str, after: str) -> dict[str, tuple[str, str]]:
    """Constants of blocks, warps and stages that have one value in each source, and not the same."""
    old, new = _values(before), _values(after)
    return {
        name: (next(iter(old[name])), next(iter(new[name])))
        for name in sorted(old.keys() & new.keys())
        if len(old[name]) == len(new[name]) == 1 and old[name].keys() != new[name].keys()
    }


def _values(source: str) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for name, value in _CONSTANT.findall(source):
        if name.isupper() or name in _OPTIONS:
            found.setdefault(name, Counter())[value] += 1
    return found
