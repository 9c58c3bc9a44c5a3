"""What a moment of a run looks like to the library: the task, the target, the parents' code, and what is wrong just now."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.task_report import TaskReport
from gpu_runner.core.verdicts import Track


@dataclass(frozen=True)
class Query:
    """Empty fields are unknown and exclude nothing.

    Args:
        bottlenecks: kinds of findings, the leading one first.
        lens: what the island looks for, in words; islands with different lenses see different slices.
        triton: version of Triton.
        reference: the task's source; whole kernels are demonstrated only for tasks that are constructed and called alike.
    """

    operators: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    target: str = ""
    track: Track = Track.OWN_KERNELS
    bottlenecks: tuple[str, ...] = ()
    words: str = ""
    code: str = ""
    lens: str = ""
    triton: str = ""
    reference: str = ""


def query_for(
    task: TaskSpec,
    report: TaskReport,
    parents: Sequence[Candidate],
    *,
    lens: str = "",
    triton: str = "",
) -> Query:
    """Ask for what fits the task and, where there are parents, their leading findings."""
    findings = [
        finding
        for parent in parents
        if parent.evaluation
        for finding in parent.evaluation.findings[:2]
    ]
    operators = operators_of(report)
    return Query(
        operators=operators,
        dtypes=_dtypes(report),
        target=task.target,
        track=task.track,
        bottlenecks=tuple(dict.fromkeys(finding.kind for finding in findings)),
        words=" ".join([task.name, *(f"{f.title} {f.suggestion}" for f in findings)]),
        code="\n".join(parent.source for parent in parents),
        lens=lens,
        triton=triton,
        reference=task.source,
    )


def operators_of(report: TaskReport) -> tuple[str, ...]:
    """The aten names of the traced graph, without namespace and overload, each once; empty of an untraced task."""
    nodes = report.graph.get("nodes", [])
    names = [str(node.get("op", "")) for node in nodes if isinstance(node, dict)]
    return tuple(dict.fromkeys(short_name(name) for name in names if name))


def short_name(operator: str) -> str:
    """`aten.softmax.int` and `aten::softmax` are both `softmax`."""
    parts = operator.replace("::", ".").split(".")
    return parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[0]


def _dtypes(report: TaskReport) -> tuple[str, ...]:
    specs = [*report.inputs, *report.outputs]
    return tuple(dict.fromkeys(spec.dtype for spec in specs if spec is not None))
