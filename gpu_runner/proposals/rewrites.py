"""Transformations of a candidate that keep what it computes: fewer passes, fewer launches, kinder to the caches.

The work on the text happens in a sandboxed child; here is only what the task permits.
"""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.graph import Graph
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Precision
from gpu_runner.proposals.types import Caller, Draft

_PRODUCTS: Final = ("linear", "mm", "matmul", "conv", "attention", "einsum")
_REWRITES: Final = "gpu_runner.proposals.child.rewrites:rewrites"


class Rewritten(BaseModel):
    """One rewritten source as the child answers it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(max_length=60)
    source: str = Field(max_length=128 * 1024)
    move: str = Field(max_length=300)
    gain: float = Field(gt=0, allow_inf_nan=False)


_LIST = TypeAdapter(list[Rewritten])


def drafts(
    pool: Caller, task: TaskSpec, candidate: Candidate, graph: Graph | None = None
) -> list[Draft]:
    """Rewrites of a candidate, the largest predicted gain first.

    Args:
        graph: the task's, where it is known: it says whether there are float32 products at all and, under the policy
            `reference`, whether TF32 is permitted.
    """
    request = {"source": candidate.source, "products": _products(task, graph)}
    answer = pool.call(_REWRITES, request)
    return [
        Draft(
            source=rewritten.source,
            origin=f"rewrite:{rewritten.name}",
            move=rewritten.move,
            predicted_gain=rewritten.gain,
        )
        for rewritten in _LIST.validate_python(answer["rewrites"])
    ]


def _products(task: TaskSpec, graph: Graph | None) -> str:
    """What the child may do with the precision of products; see there."""
    if graph is not None and graph.nodes and not _multiplies_float32(graph):
        return "none"
    if task.precision is Precision.REFERENCE:
        return "tf32" if graph is not None and graph.tf32_matmul else "float32"
    return "tf32" if task.precision is Precision.TF32 else "float32"


def _multiplies_float32(graph: Graph) -> bool:
    return any(
        word in node.op and graph.node(node.inputs[0]).dtype == "float32"
        for node in graph.calls
        for word in _PRODUCTS
        if node.inputs
    )
