"""The kind of a task, and the least time it takes, from hand-made graphs."""

from typing import Any

import pytest

from gpu_runner.bench.kinds import kind_of
from gpu_runner.bench.roofline import least_us
from gpu_runner.core.graph import Graph, Node, Ref
from gpu_runner.core.targets import TARGETS
from gpu_runner.core.verdicts import Precision

H200 = TARGETS["h200"]
COPY = H200.bandwidth * H200.copy_fraction


def given(name: str, *shape: int, dtype: str = "float32", kind: Any = "input") -> Node:
    return Node(name=name, kind=kind, shape=shape, dtype=dtype)


def call(name: str, op: str, args: list[Any], *shape: int, dtype: str = "float32") -> Node:
    refs = [Ref(node=a) if isinstance(a, str) else a for a in args]
    return Node(name=name, kind="call", op=f"aten.{op}", args=refs, shape=shape, dtype=dtype)


def chain(*ops: str) -> Graph:
    """Operations one after the other on one input."""
    nodes = [given("v0", 8, 8)]
    for number, op in enumerate(ops):
        nodes.append(call(f"v{number + 1}", op, [f"v{number}"], 8, 8))
    return Graph(nodes=tuple(nodes), outputs=(nodes[-1].name,))


def attention() -> Graph:
    nodes = [given(name, 2, 8, 4) for name in "qkv"]
    nodes += [
        call("scores", "bmm.default", ["q", "k"], 2, 8, 8),
        call("p", "softmax.int", ["scores", -1], 2, 8, 8),
        call("o", "bmm.default", ["p", "v"], 2, 8, 4),
    ]
    return Graph(nodes=tuple(nodes), outputs=("o",))


@pytest.mark.parametrize(
    ("graph", "kind"),
    [
        (Graph(reason="cannot be exported"), "not traced"),
        (chain("relu.default", "mul.Tensor"), "elementwise"),
        (chain("conv2d.default", "linear.default"), "convolution"),
        (chain("linear.default", "softmax.int"), "matrix product"),
        (chain("matmul.default", "softmax.int"), "matrix product"),
        (attention(), "attention"),
        (chain("scaled_dot_product_attention.default"), "attention"),
        (chain("layer_norm.default", "gelu.default"), "normalisation"),
        (chain("pow.Tensor_Scalar", "mean.dim", "rsqrt.default"), "normalisation"),
        (chain("log_softmax.int", "mean.default"), "softmax"),
        (chain("cross_entropy_loss.default"), "loss"),
        (chain("max_pool2d.default"), "pooling"),
        (chain("adaptive_avg_pool2d.default"), "pooling"),
        (chain("upsample_bilinear2d.vec"), "resampling"),
        (chain("cumsum.default"), "scan"),
        (chain("topk.default"), "selection"),
        (chain("mul.Tensor", "sum.dim_IntList"), "reduction"),
        (chain("embedding.default", "mul.Tensor"), "gather"),
        (chain("relu_.default"), "elementwise"),
        (chain("lstm.input", "linear.default"), "recurrence"),
    ],
)
def test_the_kind_follows_from_the_operations(graph: Graph, kind: str) -> None:
    assert kind_of(graph) == kind


def test_what_moves_bytes_only_takes_the_time_of_a_copy() -> None:
    nodes = (given("x", 1024, 1024), call("y", "softmax.int", ["x", -1], 1024, 1024))
    expected = 1e6 * 2 * 4 * 1024**2 / COPY + H200.launch_us
    found = least_us(Graph(nodes=nodes, outputs=("y",)), H200, Precision.IEEE)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("dtype", "precision", "rate"),
    [
        ("float32", Precision.TF32, 494.7e12 * 0.8),
        ("float32", Precision.IEEE, 494.7e12 * 0.8 / 3),
        ("float32", Precision.REFERENCE, 494.7e12 * 0.8 / 3),
        ("bfloat16", Precision.REFERENCE, 989.4e12 * 0.8),
    ],
)
def test_a_product_takes_its_operations_at_the_rate_that_the_precision_admits(
    dtype: str, precision: Precision, rate: float
) -> None:
    nodes = (
        given("x", 8192, 8192, dtype=dtype),
        given("w", 8192, 8192, dtype=dtype, kind="parameter"),
        call("y", "linear.default", ["x", "w"], 8192, 8192, dtype=dtype),
    )
    found = least_us(Graph(nodes=nodes, outputs=("y",)), H200, precision)
    assert found == pytest.approx(1e6 * 2 * 8192**3 / rate + H200.launch_us)


def flops_us(node: Node, *before: Node) -> float | None:
    """With memory that costs nothing, at 1e6 operations a second."""
    slow = dict.fromkeys(H200.dot, 1000000.0 / 0.8)
    target = type(H200)(
        **(vars(H200) | {"bandwidth": 1e30, "dot": slow, "fp32": 1.0, "launch_us": 0.0})
    )
    graph = Graph(nodes=(*before, node), outputs=(node.name,))
    return least_us(graph, target, Precision.TF32)


def test_operations_of_every_product_are_counted() -> None:
    x, w = given("x", 2, 3, 8, 8), given("w", 5, 3, 3, 3)
    assert flops_us(call("y", "conv2d.default", ["x", "w"], 2, 5, 6, 6), x, w) == pytest.approx(
        2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)
    )
    x, w = given("x", 2, 3, 8, 8), given("w", 3, 5, 3, 3)
    assert flops_us(
        call("y", "conv_transpose2d.input", ["x", "w"], 2, 5, 10, 10), x, w
    ) == pytest.approx(2 * (2 * 3 * 8 * 8) * (5 * 3 * 3))
    b, x, w = given("b", 4), given("x", 2, 3), given("w", 3, 4)
    assert flops_us(call("y", "addmm.default", ["b", "x", "w"], 2, 4), b, x, w) == pytest.approx(
        2 * 2 * 4 * 3
    )
    q, k, v = given("q", 2, 4, 7, 16), given("k", 2, 4, 9, 16), given("v", 2, 4, 9, 8)
    op = "scaled_dot_product_attention.default"
    assert flops_us(call("y", op, ["q", "k", "v"], 2, 4, 7, 8), q, k, v) == pytest.approx(
        2 * (2 * 4 * 7) * 9 * (16 + 8)
    )


def test_of_a_table_only_the_rows_that_are_picked_are_read() -> None:
    nodes = (
        given("table", 1_000_000, 64, kind="parameter"),
        given("ids", 100, dtype="int64"),
        call("y", "embedding.default", ["table", "ids"], 100, 64),
    )
    moved = 100 * 64 * 4 + 100 * 8 + 100 * 64 * 4
    found = least_us(Graph(nodes=nodes, outputs=("y",)), H200, Precision.IEEE)
    assert found == pytest.approx(1e6 * moved / COPY + H200.launch_us)


def test_of_a_task_that_is_not_traced_nothing_is_known() -> None:
    assert least_us(Graph(reason="cannot be exported"), H200, Precision.IEEE) is None
