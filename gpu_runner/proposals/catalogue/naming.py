"""What emitted functions and their results are called: in the field's word where a row of operations has one."""

from collections.abc import Sequence
from typing import Final

from gpu_runner.core.graph import Graph, Node, Ref
from gpu_runner.proposals.catalogue.plan import is_view
from gpu_runner.proposals.catalogue.pointwise import base_name

_HANDED_ON: Final = ("to", "contiguous", "clone")
"""Operations whose result is the same value elsewhere or in another type; nothing is called after them."""
_LONGEST: Final = 4

_NORMALISE: Final = ("mean", "add", "rsqrt", "mul")
_ROWS_WITH_A_WORD: Final = {
    (square, *_NORMALISE, *scale): "rms_norm"
    for square in ("square", "pow", "mul")
    for scale in (("mul",), ())
}


def words(nodes: Sequence[Node]) -> list[str]:
    """The operations of a step in their order, without views and casts."""
    names = [base_name(node).strip("_") for node in nodes if not is_view(node)]
    names = [name for name in names if name not in _HANDED_ON] or names
    for row, word in _ROWS_WITH_A_WORD.items():
        for start in range(len(names) - len(row) + 1):
            if tuple(names[start : start + len(row)]) == row:
                names[start : start + len(row)] = [word]
    return names


def function_name(nodes: Sequence[Node]) -> str:
    """At most four words; one word alone says that it is no function of torch."""
    kept = list(dict.fromkeys(words(nodes)))
    if len(kept) > _LONGEST:
        kept = [*kept[: _LONGEST - 1], kept[-1]]
    if len(kept) > 1:
        return "_".join(kept)
    return f"fused_{kept[0]}" if len(nodes) > 1 else f"triton_{kept[0]}"


def result_name(node: Node, graph: Graph) -> str:
    """The name of the value that a node only hands on, or its own."""
    while base_name(node) in _HANDED_ON and isinstance(node.args[0], Ref):
        source = graph.node(node.args[0].node)
        if source.kind != "call":
            break
        node = source
    return node.name
