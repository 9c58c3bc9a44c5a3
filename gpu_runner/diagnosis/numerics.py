"""Wrong numbers: where they are and how wrong they are says what usually causes them."""

import re

from gpu_runner.core.findings import Finding
from gpu_runner.diagnosis.facts import Advice, number

ROUNDING_RMS = 0.02
"""Errors below this share of the output's rms look like rounding, not like wrong indices."""

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
        "", "Give tl.dot the input_precision of the policy: 'ieee' unless the task allows TF32."
    ),
    "trivial_answer": Advice("the output does not depend on the input", "Compute it."),
    "outside_given_distribution": Advice(
        "right on ordinary inputs only",
        "Subtract a maximum before exp, avoid squares that overflow, and treat ties as the reference does.",
    ),
}


def advise(finding: Finding) -> Advice:
    """The likely cause of wrong values, from their region and the size of the error."""
    if finding.kind in _FIXED:
        return _FIXED[finding.kind]
    if finding.kind == "nan":
        return _nan(finding)
    if finding.kind == "values":
        return _values(finding)
    return Advice()


def _nan(finding: Finding) -> Advice:
    if "tail" in _region(finding):
        return Advice(
            "the masked tail enters the computation",
            "Give masked loads an `other` that is neutral for what follows: -inf for a maximum, 0 for a sum, 1 for a divisor.",
        )
    return Advice(
        "an overflow, a division by zero or inf - inf",
        "Subtract the row's maximum before exp, add eps inside the root, and never subtract two infinities.",
    )


def _values(finding: Finding) -> Advice:
    region = _region(finding)
    error = number(finding, "max_error_rms")
    share = number(finding, "wrong_share")
    if error is not None and error < ROUNDING_RMS:
        return Advice(
            "of the size of rounding",
            "Accumulate in float32, give tl.dot the input_precision of the policy, and do not round in between.",
        )
    if "tail" in region or "(the last)" in region:
        return Advice(
            "the last tile is not handled",
            "Mask loads and stores at the end of that axis, with an `other` that is neutral for what follows.",
        )
    if every := re.search(r"every (\d+)th of axis (\d+)", region):
        return Advice(
            f"one in {every.group(1)} along axis {every.group(2)}",
            "Check the stride of that axis and which lane writes which element.",
        )
    if "block of axis" in region or "index " in region:
        return Advice(
            "one tile or row is wrong",
            "Check how program_id is turned into offsets: order of axes, grouping, and the size of the grid.",
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


def _region(finding: Finding) -> str:
    return finding.location.region or ""
