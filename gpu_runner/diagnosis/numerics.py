"""Wrong numbers: what they look like, who reads and writes what, and the kernel's text together name a cause and its line."""

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gpu_runner.core.findings import Cause, Finding
from gpu_runner.diagnosis import padding, reading, strides
from gpu_runner.diagnosis.facts import Advice, lines_of, number, word
from gpu_runner.diagnosis.reading import Kernel

ROUNDING_RMS: Final = 0.02
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
_ROUNDING = "Accumulate in float32, give tl.dot the input_precision of the policy, and do not round in between."
_NEUTRAL = {
    "max": 'float("-inf")',
    "argmax": 'float("-inf")',
    "min": 'float("inf")',
    "argmin": 'float("inf")',
}
_UNDEFINED = ("sqrt", "rsqrt", "log", "log2", "sqrt_rn")


def advise(finding: Finding, source: str) -> Advice:
    """The likely cause of a wrong answer."""
    if finding.kind in _FIXED:
        return _FIXED[finding.kind]
    kernel = reading.kernel_named(source, finding.location.kernel)
    advice = _cause(finding, source, kernel)
    return replace(advice, region=advice.region or _named_region(finding, source))


def _cause(finding: Finding, source: str, kernel: Kernel | None) -> Advice:
    if finding.kind == "trivial_answer":
        return (kernel and _leak(finding, kernel)) or _TRIVIAL
    if finding.kind == "nan":
        return _nan(finding, kernel)
    if finding.kind != "values":
        return Advice()
    if advice := _looks_like(finding, source, kernel):
        return advice
    rules: tuple[Callable[[Finding, Kernel], Advice | None], ...] = (
        _rounding,
        _unread,
        _leak,
        _next_row,
        _transposed,
        _half_precision,
    )
    for rule in rules if kernel is not None else ():
        assert kernel is not None
        if advice := rule(finding, kernel):
            return advice
    return _by_place(finding)


# What the values look like


def _looks_like(finding: Finding, source: str, kernel: Kernel | None) -> Advice | None:
    pattern, value = word(finding, "pattern"), number(finding, "pattern_value")
    stored = next(iter(lines_of(finding, "stored_at")), None)
    if pattern == "transposed":
        line = (strides.transposed_line(kernel) if kernel else None) or stored
        return Advice(
            "the right values at transposed places",
            "Swap the strides of the two axes at this store, or of both operands.",
            line=line,
            cause_kind=Cause.TRANSPOSED_STRIDES,
        )
    if pattern == "normalised_elsewhere":
        return Advice(
            f"normalised along axis {value:.0f}" if value is not None else "",
            "Reduce along the other axis of the block: axis=1 runs along a row of a (rows, columns) block.",
            line=_reduction_line(kernel),
            cause_kind=Cause.WRONG_AXIS,
        )
    if pattern == "shifted" and value is not None:
        return Advice(
            f"each value is the one that belongs {abs(value):,.0f} elements {'earlier' if value > 0 else 'later'}",
            "Compare the load's offsets with the store's: program_id times block, without another tile or element added.",
            line=next(iter(lines_of(finding, "unread_at")), None) or _first_load(kernel),
            cause_kind=Cause.WRONG_TILE,
        )
    if pattern in ("scaled", "offset") and value is not None:
        by = f"{value:.4g} times" if pattern == "scaled" else f"{value:+.4g} from"
        return Advice(
            f"each value is {by} the right one",
            "Look for a missing or extra factor, a wrong count in a mean, or a constant that is added twice or not at all.",
            line=stored,
            cause_kind=Cause.SCALED,
        )
    if pattern == "large_magnitudes":
        return Advice(
            "small values are right",
            "Look for a clamp, an approximation or an overflow beyond that size.",
            line=stored,
            cause_kind=Cause.LARGE_MAGNITUDES,
        )
    return None


# What the kernel's text and its accesses say


def _rounding(finding: Finding, kernel: Kernel) -> Advice | None:
    error = number(finding, "max_error_rms")
    if error is None or error >= ROUNDING_RMS:
        return None
    line = reading.half_precision_line(kernel)
    if line is None and (leak := _leak(finding, kernel)):
        return leak
    own = number(finding, "own_error_rms")
    beside = f", the reference's own error is {own:.1e}" if own is not None else ""
    return Advice(
        f"of the size of rounding{beside}", _ROUNDING, line=line, cause_kind=Cause.LOW_PRECISION
    )


def _unread(finding: Finding, kernel: Kernel) -> Advice | None:
    """An input is not read whole: by a loop that ends early, or a mask that does."""
    place, lines = word(finding, "unread"), lines_of(finding, "unread_at")
    if not place:
        return None
    loads = [load for load in kernel.loads for line in lines if load.line <= line <= load.end_line]
    loop = next((load.loop for load in loads if load.loop and _ends_early(load.loop)), None)
    if loop is not None:
        return Advice(
            f"the kernel never reads {place}",
            "Let the loop run to the end, range(0, size, BLOCK), with a mask in its last round.",
            line=loop.lineno,
            cause_kind=Cause.SKIPPED_ELEMENTS,
            region=f"last elements of the reduction: {place}",
        )
    return Advice(
        f"the kernel never reads {place}",
        "Compare the mask with the size of that very axis.",
        line=loads[0].line if loads else next(iter(lines), None),
        cause_kind=Cause.WRONG_MASK,
    )


def _ends_early(loop: ast.For) -> bool:
    """`range(0, n - BLOCK, BLOCK)` or `range(n // BLOCK)`: its end is less than a size."""
    if not isinstance(loop.iter, ast.Call) or not loop.iter.args:
        return False
    arguments = loop.iter.args
    end = arguments[0] if len(arguments) == 1 else arguments[1]
    return any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Sub | ast.Div)
        for node in ast.walk(end)
    )


def _leak(finding: Finding, kernel: Kernel) -> Advice | None:
    leak = next(iter(padding.leaks(kernel)), None)
    if leak is None:
        return None
    neutral = _NEUTRAL.get(leak.reduction, "0.0")
    if leak.cause is Cause.WRONG_FILL:
        held = "other values" if leak.holds is None else f"{leak.holds:g}"
        fill = "0.0" if leak.fill == 0 else f'float("{leak.fill}")'
        return Advice(
            f"lanes beyond the end reach tl.{leak.reduction} as {held}, not as {neutral}",
            f"Load with other={fill}: it is neutral for what follows.",
            line=leak.line,
            cause_kind=leak.cause,
        )
    return Advice(
        f"lanes beyond the end reach tl.{leak.reduction} with other values than {neutral}",
        f"Put tl.where(mask, value, {neutral}) right before tl.{leak.reduction}.",
        line=leak.line,
        cause_kind=leak.cause,
    )


def _next_row(finding: Finding, kernel: Kernel) -> Advice | None:
    line = strides.line_without_row_end(kernel)
    if line is None:
        return None
    return Advice(
        "the load goes on into the next row",
        "Mask the columns with the row's length, not the offsets with the tensor's.",
        line=line,
        cause_kind=Cause.MISSING_MASK,
    )


def _transposed(finding: Finding, kernel: Kernel) -> Advice | None:
    line = strides.transposed_line(kernel)
    if line is None:
        return None
    return Advice(
        "an index is multiplied by another axis's stride",
        "Multiply each index by the stride of its own axis; the axis of stride 1 is the last one of a contiguous tensor.",
        line=line,
        cause_kind=Cause.TRANSPOSED_STRIDES,
    )


def _half_precision(finding: Finding, kernel: Kernel) -> Advice | None:
    error, line = number(finding, "error_rms"), reading.half_precision_line(kernel)
    if line is None or error is None or error > 10 * ROUNDING_RMS:
        return None
    return Advice(
        "larger than the tolerance, and 16 bits are used on the way",
        _ROUNDING,
        line=line,
        cause_kind=Cause.LOW_PRECISION,
    )


def _reduction_line(kernel: Kernel | None) -> int | None:
    if kernel is None:
        return None
    along = [
        call.lineno
        for call in reading.calls(kernel.node)
        if reading.language_name(call) in reading.REDUCTIONS and reading.argument(call, 1, "axis")
    ]
    return min(along, default=None)


def _first_load(kernel: Kernel | None) -> int | None:
    return kernel.loads[0].line if kernel and kernel.loads else None


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


def _named_region(finding: Finding, source: str) -> str:
    """A channel or a head: what the second of four or more axes is."""
    shape, region = finding.evidence.get("shape"), finding.location.region or ""
    is_deep = isinstance(shape, list) and len(shape) >= 4
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
