"""What a task mainly computes, in one word, by the operations of its traced graph; never by its name."""

import re
from collections.abc import Callable, Iterator
from typing import Final

from gpu_runner.core.graph import Graph, Node

UNTRACED: Final = "not traced"
ELEMENTWISE: Final = "elementwise"

_PRODUCTS: Final = re.compile(
    r"(linear|matmul|mm|bmm|addmm|baddbmm|addbmm|einsum|mv|dot|vdot|bilinear|tensordot)"
)
_KINDS: Final = (
    ("convolution", re.compile(r"(conv\w*|convolution|slow_conv\w*)")),
    ("recurrence", re.compile(r"(lstm|gru|rnn)\w*")),
    ("matrix product", _PRODUCTS),
    ("normalisation", re.compile(r"(\w*_norm|rms_norm|\w*batch_norm\w*|rsqrt)")),
    ("loss", re.compile(r"(\w+_loss|\w*cross_entropy\w*|kl_div|\w*nll_loss\w*)")),
    ("softmax", re.compile(r"(_?(log_)?softmax|logsumexp)")),
    ("pooling", re.compile(r"\w*pool\dd\w*")),
    ("resampling", re.compile(r"(upsample\w*|grid_sample\w*)")),
    ("scan", re.compile(r"(cumsum|cumprod|cummax|cummin|logcumsumexp)")),
    ("selection", re.compile(r"(topk|sort|argsort|kthvalue|multinomial|unique\w*)")),
    ("reduction", re.compile(r"(sum|mean|prod|a?max|a?min|arg(max|min)|var|std|var_mean|norm|linalg_\w*norm|any|all)")),
    ("gather", re.compile(r"(embedding\w*|index\w*|gather|scatter\w*|take\w*|masked_\w+)")),
)  # fmt: skip
"""The first that occurs in a graph names it: what costs most comes first."""


def kind_of(graph: Graph) -> str:
    """One of a dozen words; `UNTRACED` for an empty graph, `ELEMENTWISE` where nothing else occurs."""
    if not graph.calls:
        return UNTRACED
    if _has_attention(graph):
        return "attention"
    names = {operation(node) for node in graph.calls}
    kinds = (kind for kind, words in _KINDS if any(words.fullmatch(name) for name in names))
    return next(kinds, ELEMENTWISE)


def operation(node: Node) -> str:
    """The operation's name without its library and overload: "aten.softmax.int" is softmax."""
    parts = node.op.split(".")
    return parts[1].rstrip("_") if len(parts) > 1 else node.op


def _has_attention(graph: Graph) -> bool:
    """Attention as one operation, or a softmax between two products."""
    if any("attention" in operation(node) for node in graph.calls):
        return True
    softmaxes = [n for n in graph.calls if operation(n) in ("softmax", "_softmax")]
    return any(
        _reaches(node, _readers(graph)) and _reaches(node, _sources(graph)) for node in softmaxes
    )


def _readers(graph: Graph) -> Callable[[Node], Iterator[Node]]:
    return lambda node: iter(graph.users(node.name))


def _sources(graph: Graph) -> Callable[[Node], Iterator[Node]]:
    return lambda node: map(graph.node, node.inputs)


def _reaches(start: Node, following: Callable[[Node], Iterator[Node]]) -> bool:
    """Whether a product of two computed values lies that way."""
    pending, known = [start], {start.name}
    while pending:
        for node in following(pending.pop()):
            if operation(node) in ("matmul", "bmm", "baddbmm", "einsum"):
                return True
            if node.name not in known:
                known.add(node.name)
                pending.append(node)
    return False
