"""Tracing references into graphs, and what the graph's own type refuses."""

from typing import Any

import pytest
from pydantic import ValidationError

from gpu_runner.core.graph import Graph, Node, Ref, Symbol, attribute_text
from gpu_runner.proposals.child.trace import trace

TASK = """
import math
import torch
import torch.nn as nn

SLOPE = 0.1
width = {width}
tokens = {tokens}

def inner(width):
    return 2 * width

class Unused:
    pass

class Model(nn.Module):
    '''Not for the candidate.'''

    factor = 3

    def __init__(self, width, heads):
        super(Model, self).__init__()
        self.heads = heads
        self.scale = width ** -0.5
        self.layers = nn.ModuleList([nn.Linear(width, inner(width))])
        self.slope = SLOPE

    def forward(self, x):
        y = self.layers[0](x).view(x.shape[0], self.heads, -1) * self.scale
        return torch.relu(y), y.sum(dim=-1)

def get_inputs():
    return [torch.randn(tokens, width)]

def get_init_inputs():
    return [width, 4]
"""

FULL, PROBE = TASK.format(width=64, tokens=100_000), TASK.format(width=12, tokens=37)


def traced(source: str, probe: str | None = None) -> Graph:
    return Graph.model_validate(trace({"source": source, "probe_source": probe}))


def test_a_reference_is_traced_at_full_size_into_operations_with_their_places() -> None:
    graph = traced(FULL)
    assert [(n.name, n.kind, n.path, n.shape) for n in graph.nodes if n.kind != "call"] == [
        ("p_layers_0_weight", "parameter", "layers.0.weight", (128, 64)),
        ("p_layers_0_bias", "parameter", "layers.0.bias", (128,)),
        ("x", "input", "x", (100_000, 64)),
    ]
    assert [(n.op, n.shape, n.dtype) for n in graph.calls] == [
        ("aten.linear.default", (100_000, 128), "float32"),
        ("aten.view.default", (100_000, 4, 32), "float32"),
        ("aten.mul.Tensor", (100_000, 4, 32), "float32"),
        ("aten.relu.default", (100_000, 4, 32), "float32"),
        ("aten.sum.dim_IntList", (100_000, 4), "float32"),
    ]
    assert graph.outputs == ("relu", "sum_1")
    assert graph.output_form == "tuple"
    assert [node.name for node in graph.users("mul")] == ["relu", "sum_1"]


def test_numbers_that_follow_from_the_sizes_are_explained_by_both() -> None:
    view, mul = traced(FULL, PROBE).calls[1:3]
    assert view.args[1] == [Symbol(symbol="x.shape[0]", value=100_000), 4, -1]
    assert mul.args == (Ref(node="view"), Symbol(symbol="self.scale", value=64**-0.5))


def test_the_constructor_keeps_what_it_needs_and_nothing_else() -> None:
    constructor = traced(FULL).constructor
    assert constructor is not None
    assert constructor.forward_parameters == ("x",)
    assert "factor = 3" in constructor.body
    assert "super().__init__()" in constructor.body
    assert "forward" not in constructor.body
    assert "def inner(width):" in constructor.preamble
    assert "SLOPE = 0.1" in constructor.preamble
    for left_out in ("import math", "Unused", "get_inputs", "tokens", "width = 64"):
        assert left_out not in constructor.preamble


def test_a_function_is_traced_like_a_module() -> None:
    graph = traced(
        "import torch\ndef reference(a, b):\n    return a @ b\n"
        "def get_inputs():\n    return [torch.randn(5, 7), torch.randn(7, 3)]\n"
    )
    assert [(node.path, node.shape) for node in graph.nodes[:2]] == [("a", (5, 7)), ("b", (7, 3))]
    assert graph.calls[0].op == "aten.matmul.default"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("(" * 3000, "nested"),
        ("import no_such_module", "no_such_module"),
        (FULL.replace("torch.relu(y)", "torch.relu(y) if y.sum() > 0 else y"), ""),
    ],
    ids=["too deep", "raises at import", "branches on values"],
)
def test_what_cannot_be_traced_is_an_empty_graph_with_a_reason(source: str, reason: str) -> None:
    graph = traced(source)
    assert graph.nodes == ()
    assert graph.reason
    assert reason in graph.reason


def test_a_module_that_changes_a_buffer_says_so() -> None:
    graph = traced(
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.norm = torch.nn.BatchNorm1d(8)\n"
        "    def forward(self, x):\n        return self.norm(x)\n"
        "def get_inputs():\n    return [torch.randn(4, 8)]\n"
    )
    assert "b_norm_num_batches_tracked" in graph.mutated


NODE: dict[str, Any] = {"name": "a", "kind": "input"}


@pytest.mark.parametrize(
    "graph",
    [
        {"nodes": [NODE, {"name": "b", "kind": "call", "args": [{"node": "c"}]}]},
        {"nodes": [NODE], "outputs": ["b"]},
        {"nodes": [{**NODE, "args": [[[[[[[1]]]]]]]}]},
        {"nodes": [{**NODE, "args": [{"other": 1}]}]},
        {"nodes": [{**NODE, "args": ["x" * 2000]}]},
        {"nodes": [NODE] * 2000},
    ],
    ids=["forward reference", "missing output", "depth", "type", "length", "count"],
)
def test_a_malformed_graph_is_refused(graph: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Graph.model_validate(graph)


def test_a_graph_survives_json() -> None:
    graph = Graph(
        nodes=(
            Node(name="x", kind="input", shape=(2, 3), dtype="float32", stride=(3, 1), path="x"),
            Node(
                name="y", kind="call", op="aten.mul.Tensor", args=(Ref(node="x"), 2.0), shape=(2, 3)
            ),
        ),
        outputs=("y",),
    )
    assert Graph.model_validate_json(graph.model_dump_json()) == graph


def test_a_path_is_written_as_forward_reaches_it() -> None:
    assert attribute_text("layers.0.my weight") == "self.layers[0]['my weight']"
