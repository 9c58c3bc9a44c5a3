"""Hand-written Triton templates, read as text and never imported, and what is made of them.

Two uses. `function_for(op, ...)` gives a Triton function with the parameters of a library call, to be pasted into
emitted code in its place; `drafts(task, report)` gives whole `ModelNew` sources for tasks whose traced graph a few
templates cover.

`function_for` returns a `LibraryFunction(name, text, imports)`, or None where no template does the operation. The text
defines a kernel and a host function `name`; several may stand in one module under different names:

    mm(a, b, *, out=None)                a (M, K) @ b (K, N)
    addmm(bias, a, b, *, out=None)       beta * bias + alpha * (a @ b); bias of any shape that broadcasts to (M, N)
    bmm(a, b, *, out=None)               a (B, M, K) @ b (B, K, N)
    baddbmm(bias, a, b, *, out=None)     beta * bias + alpha * (a @ b); alpha and beta are fixed in the text
    convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *, out=None)
                                         in the dimensions and of the kind that the template is for
                                         (tiles.convolution_template); bias is ignored with bias=False

All take any strides and sizes, sum in float32, keep the inputs' dtype and return `out`, allocated when it is None.
Float32 inputs that lie across the order in which the precision reads them are copied first, where that pays.

Parts: `templates/` the texts · `render` fills one · `tiles` first tile sizes · `library_calls` the functions above ·
`pointwise` expressions of elementwise operations · `along` extremes and running sums along an axis · `selections` sorts and
the first of them · `kept` what stays a call of torch · `plan` which templates cover a graph · `emission` the module text.
"""

from dataclasses import astuple
from typing import Final

from gpu_runner.core.graph import Graph
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Precision
from gpu_runner.proposals.catalogue.emission import Precisions, emit
from gpu_runner.proposals.catalogue.library_calls import LibraryFunction, function_for
from gpu_runner.proposals.catalogue.plan import Kept, Step, Unsupported, View, plan
from gpu_runner.proposals.types import Draft

__all__ = ["LibraryFunction", "drafts", "function_for"]


EMULATED: Final = "tf32x3"


def drafts(task: TaskSpec, report: TaskReport) -> list[Draft]:
    """Whole candidates from the templates; none where the graph is empty or holds an operation without a template.

    Where the policy asks for float32 products the first draft makes each of three TF32 ones (`docs/decisions/0010`), which
    is quicker on tensor cores, and the second uses the float32 units.
    """
    graph = Graph.model_validate(report.graph)
    permitted = _precisions(task, graph)
    try:
        steps = plan(graph, task.track)
        exact = _draft(task, graph, steps, permitted)
        if 'input_precision="ieee"' not in exact.source or not _has_float32(graph):
            return [exact]
        emulated = (EMULATED if name == "ieee" else name for name in astuple(permitted))
        return [_draft(task, graph, steps, Precisions(*emulated)), exact]
    except Unsupported:
        return []


def _draft(task: TaskSpec, graph: Graph, steps: list[Step], precisions: Precisions) -> Draft:
    described = _described(steps)
    if EMULATED in astuple(precisions):
        described += ", float32 products as three TF32 ones"
    title = f"{task.name}: {described}."
    return Draft(
        source=emit(graph, steps, precisions, title.replace('"', "'")),
        origin=f"catalogue:{_kind(steps)}",
        move=f"{described} from the catalogue"[:300],
    )


def _has_float32(graph: Graph) -> bool:
    return any(node.dtype == "float32" for node in graph.nodes if node.kind != "call")


def _precisions(task: TaskSpec, graph: Graph) -> Precisions:
    """What the policy permits: the reference's own flags unless the task overrides them."""
    if task.precision is not Precision.REFERENCE:
        name = "tf32" if task.precision is Precision.TF32 else "ieee"
        return Precisions(name, name)
    return Precisions(
        "tf32" if graph.tf32_matmul else "ieee", "tf32" if graph.tf32_convolution else "ieee"
    )


def _launches(steps: list[Step]) -> list[str]:
    return [_word(step) for step in steps if not isinstance(step, View | Kept)]


def _word(step: Step) -> str:
    return type(step).__name__.lower()


def _kind(steps: list[Step]) -> str:
    return "+".join(dict.fromkeys(_launches(steps)))[:60]


def _described(steps: list[Step]) -> str:
    names = _launches(steps)
    return f"{len(names)} kernel{'s' if len(names) > 1 else ''} ({', '.join(names)})"
