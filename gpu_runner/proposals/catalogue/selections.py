"""Triton functions in the place of `torch.topk` and `torch.sort`, along any axis; their results are contiguous as torch's."""

from typing import Final

from gpu_runner.proposals.catalogue.pointwise import FLOATS
from gpu_runner.proposals.catalogue.render import fill

_TILE: Final = 1024
"""Numbers that a program of `top_k` looks at together."""

_TOP_K: Final = '''
def {name}(x, k, dim=-1):
    """The k {extreme} numbers along an axis, the {extreme} first, and their places."""
    before, after = x.shape[:dim], x.shape[dim:][1:]
    found = {name}_along(x.reshape(before.numel(), x.shape[dim], after.numel()), k)
    return tuple(part.reshape(before + (k,) + after) for part in found)
'''

_SORT: Final = '''
def {name}(x, dim=-1):
    """The numbers along an axis in {order} order, of equals the first first, and their places."""
    before, after = x.shape[:dim], x.shape[dim:][1:]
    found = {name}_along(x.reshape(before.numel(), x.shape[dim], after.numel()))
    return tuple(part.reshape(x.shape) for part in found)
'''

_SMALLEST: Final = (
    ('float("inf")', "INFINITY"),
    ('float("-inf")', 'float("inf")'),
    ("INFINITY", 'float("-inf")'),
    ("x < last", "x > last"),
    ("x > best", "x < best"),
    ("tl.max(best", "tl.min(best"),
    ("k largest", "k smallest"),
    ("in falling order", "in rising order"),
)
_FALLING: Final = (
    ("other < value[:, None]", "other > value[:, None]"),
    ("in rising order", "in falling order"),
)


def top_k_function(name: str, dtype: str, length: int, largest: bool) -> str | None:
    """The text of `name(x, k, dim)` for axes of about this length; None where the dtype has no template."""
    if dtype not in FLOATS:
        return None
    block = min(_TILE, 1 << max(0, length - 1).bit_length())
    launch = {"BLOCK_L": max(1, _TILE // block), "BLOCK_N": block}
    text = fill("top_k", name=f"{name}_along", sections={}, launch=launch)
    for old, new in () if largest else _SMALLEST:
        text = text.replace(old, new)
    return text + "\n" + _TOP_K.format(name=name, extreme="largest" if largest else "smallest")


def sort_function(name: str, dtype: str, descending: bool) -> str | None:
    """The text of `name(x, dim)`; None where the dtype has no template."""
    if dtype not in FLOATS:
        return None
    text = fill("sorted_order", name=f"{name}_along", sections={})
    for old, new in _FALLING if descending else ():
        text = text.replace(old, new)
    return text + "\n" + _SORT.format(name=name, order="falling" if descending else "rising")
