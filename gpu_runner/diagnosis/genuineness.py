"""Accusations: what in them to change so that a candidate is honest. The judge decides; this explains."""

from gpu_runner.core.findings import Finding
from gpu_runner.diagnosis.facts import Advice

_REPLACEMENTS = {
    "softmax": "a row kernel with tl.max, tl.exp and tl.sum",
    "mm": "a tiled kernel with tl.dot",
    "matmul": "a tiled kernel with tl.dot",
    "linear": "a tiled kernel with tl.dot and the bias in its epilogue",
    "convolution": "an implicit GEMM with tl.dot",
    "sum": "tl.sum",
    "mean": "tl.sum and a division",
    "layer_norm": "a row kernel that computes mean and variance with tl.sum",
    "gelu": "tl.erf in the kernel that produces the input",
    "relu": "tl.maximum in the kernel that produces the input",
    "cumsum": "tl.cumsum along the row",
}


def advise(finding: Finding) -> Advice:
    if finding.kind != "torch_computes":
        return Advice()
    operations = finding.evidence.get("operations")
    names = [str(name) for name in operations] if isinstance(operations, list) else []
    hints = dict.fromkeys(hint for name in names for hint in _hints(name))
    if not hints:
        return Advice()
    return Advice("", "Instead of " + "; ".join(hints) + ".")


def _hints(operation: str) -> list[str]:
    """For example `aten.softmax.int`: the longest known name that it contains."""
    known = [name for name in _REPLACEMENTS if name in operation]
    if not known:
        return []
    name = max(known, key=len)
    return [f"{operation} use {_REPLACEMENTS[name]}"]
