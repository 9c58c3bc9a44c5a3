"""Rows, suites and settings for the tests of the bench."""

from pathlib import Path
from typing import Any

from gpu_runner.bench.results import Settings
from gpu_runner.bench.rows import Best, Figures, Outcome, Row
from gpu_runner.core.evaluation import Ratio
from gpu_runner.core.verdicts import Fidelity, Precision, Track

TASK = """\
import torch

scale = {scale}


class Model(torch.nn.Module):
    def forward(self, x):
        return x * scale


def get_inputs():
    return [torch.zeros(4)]
"""
SETTINGS = Settings(suite="small")
ON_GPU = {"gpu": "NVIDIA H200", "driver": "580", "torch": "2.11.0"}
WITHOUT_GPU = {"gpu": None, "target": "h200", "torch": "2.13.0"}


def suite(folder: Path, *names: str) -> Path:
    """A folder of tasks that all differ."""
    for scale, name in enumerate(names):
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TASK.format(scale=scale))
    return folder


def figures(
    over_eager: float | Ratio, over_torch_compile: float | Ratio | None = None, us: float = 10.0
) -> Figures:
    eager, compiled = _ratio(over_eager), _ratio(over_torch_compile)
    assert eager is not None
    return Figures(
        kernel_us=us,
        eager_us=us * eager.ratio,
        torch_compile_us=us * compiled.ratio if compiled else None,
        peak_bytes=3 << 20 if eager.low else None,
        eager_peak_bytes=6 << 20 if eager.low else None,
        over_eager=eager,
        over_torch_compile=compiled,
    )


def row(
    task: str = "level1/softmax",
    over_eager: float | Ratio | None = None,
    over_torch_compile: float | Ratio | None = None,
    **more: Any,
) -> Row:
    """One with a correct kernel where a speedup is given; measured where it has an interval."""
    best = None
    if over_eager is not None:
        shown = figures(over_eager, over_torch_compile)
        best = Best(candidate_id=1, generation=0, origin="catalogue:row", figures=shown)
    is_measured = isinstance(over_eager, Ratio)
    fields: dict[str, Any] = {
        "task": task,
        "level": task.partition("/")[0],
        "kind": "softmax",
        "track": Track.OWN_KERNELS,
        "precision": Precision.REFERENCE,
        "key": f"key of {task}",
        "outcome": Outcome.DONE,
        "fidelity": Fidelity.MEASURED if is_measured else Fidelity.MODELLED,
        "environment": ON_GPU if is_measured else WITHOUT_GPU,
        "best": best,
    }
    return Row(**(fields | more))


def ratio(value: float, low: float, high: float) -> Ratio:
    return Ratio(ratio=value, low=low, high=high)


def _ratio(value: float | Ratio | None) -> Ratio | None:
    return Ratio(ratio=value) if isinstance(value, float | int) else value
