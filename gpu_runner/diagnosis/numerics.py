"""Wrong numbers: what they look like, who reads and writes what, and the kernel's text together name a cause and its line."""

import ast
from collections.abc import Callable
from dataclasses import replace

from gpu_runner.core.findings import Cause, Finding
from gpu_runner.diagnosis import explanations, reading
from gpu_runner.diagnosis.facts import Advice, number
from gpu_runner.diagnosis.reading import Kernel

_FIXED = {
    "shape": Advice(
        "", "Return exactly the reference's shape; check keepdim, squeezes and the last reshape."
    ),
    "dtype": Advice(
        "",
        "Allocate the output with the reference's dtype; accumulate wider and cast at the store.",
    ),
    "device": Advice("", "Allocate outputs on the device of the input."),
    "structure": Advice(
        "", "Return the same nesting of tuples, lists and tensors as the reference."
    ),
    "input_changed": Advice(
        "", "Write into a fresh tensor; never store through a pointer to an input."
    ),
    "state": Advice(
        "",
        "Keep nothing between calls; a call's output may depend on its inputs and parameters only.",
    ),
    "parameters": Advice(
        "",
        "Create parameters and buffers with the reference's names and shapes, in its order, so that its state can be loaded;"
        " derive re-packed copies from them at the first call.",
    ),
    "precision_below_policy": Advice(
        "",
        "Give tl.dot the input_precision of the policy: 'ieee' unless the task allows TF32.",
        cause_kind=Cause.LOW_PRECISION,
    ),
    "outside_given_distribution": Advice(
        "right on ordinary inputs only",
        "Subtract a maximum before exp, avoid squares that overflow, and treat ties as the reference does.",
    ),
}
_TRIVIAL = Advice("the output does not depend on the input", "Compute it.")
_UNDEFINED = ("sqrt", "rsqrt", "log", "log2", "sqrt_rn")


def advise(finding: Finding, source: str) -> Advice:
    """The likely cause of a wrong answer."""
    if finding.kind in _FIXED:
        return _FIXED[finding.kind]
    kernel = reading.kernel_named(source, finding.location.kernel)
    advice = _cause(finding, kernel)
    name = _named_region(finding, source)
    if name and advice.cause_kind in (None, Cause.MISSING_MASK, Cause.WRONG_TILE):
        return _one_of_many(name)
    return replace(advice, region=advice.region or name)


def _cause(finding: Finding, kernel: Kernel | None) -> Advice:
    if finding.kind == "trivial_answer":
        return (kernel and explanations.leak(finding, kernel)) or _TRIVIAL
    if finding.kind == "nan":
        return _nan(finding, kernel)
    if finding.kind != "values":
        return Advice()
    if advice := explanations.looks_like(finding, kernel):
        is_vague = advice.cause_kind is Cause.SCALED and kernel is not None
        return (is_vague and kernel and explanations.leak(finding, kernel)) or advice
    rules: tuple[Callable[[Finding, Kernel], Advice | None], ...] = (
        explanations.rounding,
        explanations.unread,
        explanations.leak,
        explanations.transposed,
        explanations.next_row,
        explanations.half_precision,
    )
    for rule in rules if kernel is not None else ():
        assert kernel is not None
        if advice := rule(finding, kernel):
            return advice
    return _by_place(finding)


# Where the errors are


def _by_place(finding: Finding) -> Advice:
    region, share = finding.location.region or "", number(finding, "wrong_share")
    if "tail" in region or "(the last)" in region:
        return Advice(
            "the last tile is not handled",
            "Mask loads and stores at the end of that axis, with an `other` that is neutral for what follows.",
            cause_kind=Cause.MISSING_MASK,
        )
    if "every " in region:
        step, _, axis = region.removeprefix("every ").partition("th of axis ")
        return Advice(
            f"one in {step} along axis {axis.partition(' ')[0]}",
            "Check the stride of that axis and which lane writes which element.",
        )
    if "interior" in region:
        return Advice(
            "the borders are right",
            "Compare what the kernel does away from the borders, where no mask bites, with the reference.",
        )
    if "block" in region or "index " in region:
        return Advice(
            "one tile or row is wrong",
            "Check how program_id is turned into offsets: order of axes, grouping, and the size of the grid.",
            cause_kind=Cause.WRONG_TILE,
        )
    if region == "scattered":
        return Advice(
            "without a pattern",
            "Look for programs that write the same element, reads of memory nobody wrote, and ties or thresholds.",
        )
    if share is not None and share > 0.9:
        return Advice(
            "everywhere, so a formula or a layout",
            "Compare each operation with the reference: order of operands, transposition, scale, and the axis of a reduction.",
        )
    return Advice("", "Compare indices and masks with the reference's shapes, axis by axis.")


def _one_of_many(name: str) -> Advice:
    return Advice(
        f"{name} alone",
        "Check how its index is computed from program_id, and that each parameter is read at that index.",
        region=name,
    )


def _named_region(finding: Finding, source: str) -> str:
    """A channel or a head: what the second of four or more axes is."""
    shape, region = finding.evidence.get("shape"), finding.location.region or ""
    is_deep = isinstance(shape, list) and len(shape) >= 4
    if region.startswith(("head ", "channel ")):
        return region.partition(":")[0]
    if not is_deep or " of axis 1" not in region or not region.startswith("index "):
        return ""
    name = "head" if "head" in source.lower() else "channel"
    return f"{name} {region.removeprefix('index ').partition(' ')[0]}"


def _nan(finding: Finding, kernel: Kernel | None) -> Advice:
    line = _undefined_line(kernel)
    if "tail" in (finding.location.region or ""):
        return Advice(
            "the masked tail enters the computation",
            "Give masked loads an `other` that is neutral for what follows: -inf for a maximum, 0 for a sum, 1 for a divisor.",
            line=line,
            cause_kind=Cause.WRONG_FILL,
        )
    return Advice(
        "an overflow, a division by zero or inf - inf",
        "Subtract the row's maximum before exp, add eps inside the root, and never subtract two infinities.",
        line=line,
        cause_kind=Cause.UNDEFINED_VALUE,
    )


def _undefined_line(kernel: Kernel | None) -> int | None:
    """A difference of infinities where there are some, else a root, a logarithm or a division."""
    if kernel is None:
        return None
    if "inf" in ast.unparse(kernel.node) and (line := kernel.line_of_call("exp", "exp2")):
        return line
    divisions = [
        node.lineno
        for node in ast.walk(kernel.node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
    ]
    return kernel.line_of_call(*_UNDEFINED) or min(divisions, default=None)
