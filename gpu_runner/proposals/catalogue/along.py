"""What happens along one axis of a tensor and is no plain reduction: places of extremes, running sums and products."""

from dataclasses import dataclass
from typing import Final

from gpu_runner.core.graph import Argument, Graph, Node, Ref, Symbol
from gpu_runner.proposals.catalogue.pointwise import FLOATS, base_name
from gpu_runner.proposals.catalogue.render import fill

_EXTREMES: Final = ("argmax", "argmin")
_SCANS: Final = ("cumsum", "cumprod")
_TILE: Final = 4096
"""Numbers that a program looks at together."""


@dataclass(frozen=True)
class Along:
    """One operation along axis `dim` of `x`; with dim None along all of it."""

    node: Node
    x: Node
    dim: int | None


def along_of(node: Node, graph: Graph) -> Along | None:
    """The operation as a step of its own; None for any other."""
    name = base_name(node)
    both = node.op in ("aten.max.dim", "aten.min.dim")
    if not (both or name in (*_EXTREMES, *_SCANS)) or not isinstance(node.args[0], Ref):
        return None
    x = graph.node(node.args[0].node)
    if x.shape is None or len(x.shape) == 0 or x.dtype not in FLOATS or node.kwargs.get("dtype"):
        return None
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dim is None:
        return Along(node, x, None) if name in _EXTREMES else None
    return Along(node, x, _whole(dim) % len(x.shape))


def along_function(step: Along, name: str) -> str:
    """The kernel and the host function `name` on x (O, N, I)."""
    length, inner = _sizes(step)
    block_i = min(32, _power_of_two(inner))
    launch = {"BLOCK_N": min(_power_of_two(length), _TILE // block_i), "BLOCK_I": block_i}
    op = base_name(step.node)
    text = fill("scan" if op in _SCANS else "extreme", name=name, sections={}, launch=launch)
    replaced = [
        *(_PRODUCTS if op == "cumprod" else ()),
        *(_PLACES_ALONE if op in _EXTREMES else ()),
        *(_SMALLEST if op in ("min", "argmin") else ()),
    ]
    for old, new in replaced:
        text = text.replace(old, new)
    if op in _EXTREMES:
        text = "".join(line for line in text.splitlines(keepends=True) if "values" not in line)
    return text


def along_call(step: Along, name: str, x: str, variable: str) -> list[str]:
    """Statements of `forward` that leave the operation's value in `variable`."""
    keeps = len(step.node.args) > 2 and step.node.args[2] is True
    if step.dim is None:
        return [f"{variable} = {name}({x}.reshape(1, -1, 1)).reshape(())"]
    rank, dim = len(step.x.shape or ()), step.dim
    folded = _folded(x, rank, dim)
    if base_name(step.node) in _SCANS:
        return [f"{variable} = {name}({folded}).reshape({x}.shape)"]
    shape = f"{x}.shape[:{dim}]" + (" + (1,)" if keeps else "")
    shape += f" + {x}.shape[{dim + 1}:]" if dim + 1 < rank else ""
    if base_name(step.node) in _EXTREMES:
        return [f"{variable} = {name}({folded}).reshape({shape})"]
    return [
        f"{variable} = {name}({folded})",
        f"{variable} = tuple(part.reshape({shape}) for part in {variable})",
    ]


def _folded(x: str, rank: int, dim: int) -> str:
    """x as (O, N, I), the axis in the middle."""
    before = f"{x}.shape[:{dim}].numel()" if dim else "1"
    after = f"{x}.shape[{dim + 1}:].numel()" if dim + 1 < rank else "1"
    return f"{x}.reshape({before}, {x}.shape[{dim}], {after})"


def _sizes(step: Along) -> tuple[int, int]:
    """(length of the axis, numbers after it)."""
    shape, inner = step.x.shape or (), 1
    if step.dim is None:
        total = 1
        for size in shape:
            total *= size
        return total, 1
    for size in shape[step.dim + 1 :]:
        inner *= size
    return shape[step.dim], inner


def _power_of_two(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def _whole(argument: Argument) -> int:
    return int(argument.value or 0) if isinstance(argument, Symbol) else int(argument)


_PLACES_ALONE: Final = (
    ("return values, places", "return places"),
    ("x, values, places,", "x, places,"),
    ("The largest numbers", "The places of the largest numbers"),
    (", and the places of the first of them.", ", the first of equals."),
)
_SMALLEST: Final = (
    ('float("-inf")', 'float("inf")'),
    ("tl.max(x", "tl.min(x"),
    ("value > best", "value < best"),
    ("tl.maximum(", "tl.minimum("),
    ("largest numbers", "smallest numbers"),
)
_PRODUCTS: Final = (
    ("tl.cumsum(x, axis=0) + carry", "tl.cumprod(x, axis=0) * carry"),
    ("(1, BLOCK_I), 0.0", "(1, BLOCK_I), 1.0"),
    ("mask=inside, other=0.0", "mask=inside, other=1.0"),
    ("Running sums", "Running products"),
)
