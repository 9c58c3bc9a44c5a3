"""The least time that a task takes on a GPU, by its traced graph: bytes that must move, products that must be computed.

Both at the rates that a large copy and a large library product reach (`core.targets`), the larger of the two counts. It is
computed, never measured, and says nothing of what lies between: a softmax costs its bytes here and nothing else. The products
are the reference's; a kernel that needs fewer, since its matrix is a diagonal, lies below.
"""

import math
from typing import Final

from gpu_runner.bench.kinds import operation
from gpu_runner.core.graph import Graph, Node, Ref
from gpu_runner.core.targets import Target
from gpu_runner.core.verdicts import Precision

_BYTES: Final = {"64": 8, "32": 4, "16": 2, "8": 1, "bool": 1, "fn": 1, "fnuz": 1}
_PATHS: Final = {"float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "int8": "int8"}
_PICKS: Final = frozenset(("embedding", "index_select", "gather", "index", "take"))
"""Operations that read of their first argument what they return, however large it is."""
_FIRST_FACTOR: Final = {"addmm": 1, "baddbmm": 1, "addbmm": 1}
"""Which argument of a product is its first factor, where not the first."""


def least_us(graph: Graph, target: Target, precision: Precision) -> float | None:
    """Microseconds of one call; None where the graph is empty."""
    if not graph.calls:
        return None
    moving_s = _least_bytes(graph) / (target.bandwidth * target.copy_fraction)
    computing_s = sum(
        _flops(graph, node) / _rate(graph, node, target, precision) for node in graph.calls
    )
    return 1e6 * max(moving_s, computing_s) + target.launch_us


def _least_bytes(graph: Graph) -> float:
    """Every input and parameter that is read, once, and every output."""
    outputs = [graph.node(name) for name in graph.outputs if name is not None]
    given = [node for node in graph.nodes if node.kind not in ("call", "item")]
    return sum(_read_bytes(graph, node) for node in given) + sum(map(_bytes, outputs))


def _read_bytes(graph: Graph, node: Node) -> float:
    return min(
        float(_bytes(node)),
        sum(
            float(_bytes(user) if _only_picks(user, node) else _bytes(node))
            for user in graph.users(node.name)
        ),
    )


def _only_picks(user: Node, node: Node) -> bool:
    first = user.args[0] if user.args else None
    return operation(user) in _PICKS and isinstance(first, Ref) and first.node == node.name


def _bytes(node: Node) -> int:
    if node.shape is None or node.dtype is None:
        return 0
    dtype = node.dtype.removeprefix("torch.")
    width = next((size for end, size in _BYTES.items() if dtype.endswith(end)), 1)
    return math.prod(node.shape) * width


def _flops(graph: Graph, node: Node) -> float:
    """Operations of a product, a multiply-add counted as two; 0 for everything else."""
    name, factors = operation(node), _shapes(graph, node)
    if node.shape is None:
        return 0.0
    size = 2.0 * math.prod(node.shape)
    if name in ("linear", "matmul", "mm", "bmm", "mv", *_FIRST_FACTOR):
        first = factors[_FIRST_FACTOR.get(name, 0)] if len(factors) > 1 else ()
        return size * first[-1] if first else 0.0
    if name.startswith("conv") and len(factors) > 1 and factors[1]:
        weight = factors[1]
        a_channel = math.prod(weight) / weight[0]
        is_transposed = "transpose" in name or True in node.args
        return 2.0 * math.prod(factors[0]) * a_channel if is_transposed else size * a_channel
    if "attention" in name and len(factors) > 2 and len(factors[1]) > 1:
        is_causal = True in node.args or node.kwargs.get("is_causal") is True
        pairs = 2.0 * factors[1][-2] * (factors[0][-1] + factors[2][-1])
        return math.prod(factors[0][:-1]) * pairs * (0.5 if is_causal else 1.0)
    return 0.0


def _shapes(graph: Graph, node: Node) -> list[tuple[int, ...]]:
    """Of the tensor arguments in their order; empty for one that is no single tensor."""
    refs = [argument for argument in node.args if isinstance(argument, Ref)]
    return [graph.node(ref.node).shape or () for ref in refs]


def _rate(graph: Graph, node: Node, target: Target, precision: Precision) -> float:
    """Operations per second on the fastest path that the precision admits."""
    dtype = (node.dtype or "float32").removeprefix("torch.")
    if dtype == "float32":
        tf32 = target.dot["tf32"] * target.dot_fraction
        # Three products of TF32 count as one of float32.
        return tf32 if _is_tf32(graph, node, precision) else max(target.fp32, tf32 / 3)
    path = "fp8" if dtype.startswith("float8") else _PATHS.get(dtype, "fp16")
    return target.dot.get(path, target.dot["fp16"]) * target.dot_fraction


def _is_tf32(graph: Graph, node: Node, precision: Precision) -> bool:
    if precision is Precision.REFERENCE:
        is_convolution = operation(node).startswith("conv")
        return graph.tf32_convolution if is_convolution else graph.tf32_matmul
    return precision is Precision.TF32
