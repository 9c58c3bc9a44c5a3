"""Why numbers are wrong, as far as facts and the kernel's text tell: what the values look like, what is read, what masks do."""

import ast
from typing import Final

from gpu_runner.core.findings import Cause, Finding
from gpu_runner.diagnosis import padding, reading, strides
from gpu_runner.diagnosis.facts import Advice, lines_of, number, word
from gpu_runner.diagnosis.reading import Kernel

ROUNDING_RMS: Final = 0.02
"""Errors below this share of the output's rms look like rounding, not like wrong indices."""

_ROUNDING = "Accumulate in float32, give tl.dot the input_precision of the policy, and do not round in between."
_NEUTRAL = {
    "max": 'float("-inf")',
    "argmax": 'float("-inf")',
    "min": 'float("inf")',
    "argmin": 'float("inf")',
}


# What the values look like


def looks_like(finding: Finding, kernel: Kernel | None) -> Advice | None:
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
            f"each value is the one that belongs {abs(value):,.0f} elements {'later' if value > 0 else 'earlier'}",
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


def rounding(finding: Finding, kernel: Kernel) -> Advice | None:
    error = number(finding, "max_error_rms")
    if error is None or error >= ROUNDING_RMS:
        return None
    line = reading.half_precision_line(kernel)
    if line is None and (known := leak(finding, kernel)):
        return known
    own = number(finding, "own_error_rms")
    beside = f", the reference's own error is {own:.1e}" if own is not None else ""
    return Advice(
        f"of the size of rounding{beside}", _ROUNDING, line=line, cause_kind=Cause.LOW_PRECISION
    )


def unread(finding: Finding, kernel: Kernel) -> Advice | None:
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


def leak(finding: Finding, kernel: Kernel) -> Advice | None:
    found = next(iter(padding.leaks(kernel)), None)
    if found is None:
        return None
    neutral = _NEUTRAL.get(found.reduction, "0.0")
    if found.cause is Cause.WRONG_FILL:
        held = "other values" if found.holds is None else f"{found.holds:g}"
        fill = "0.0" if found.fill == 0 else f'float("{found.fill}")'
        return Advice(
            f"lanes beyond the end reach tl.{found.reduction} as {held}, not as {neutral}",
            f"Load with other={fill}: it is neutral for what follows.",
            line=found.line,
            cause_kind=found.cause,
        )
    return Advice(
        f"lanes beyond the end reach tl.{found.reduction} with other values than {neutral}",
        f"Put tl.where(mask, value, {neutral}) right before tl.{found.reduction}.",
        line=found.line,
        cause_kind=found.cause,
    )


def next_row(finding: Finding, kernel: Kernel) -> Advice | None:
    line = strides.line_without_row_end(kernel)
    if line is None:
        return None
    return Advice(
        "the load goes on into the next row",
        "Mask the columns with the row's length, not the offsets with the tensor's.",
        line=line,
        cause_kind=Cause.MISSING_MASK,
    )


def transposed(finding: Finding, kernel: Kernel) -> Advice | None:
    line = strides.transposed_line(kernel)
    if line is None:
        return None
    return Advice(
        "an index is multiplied by another axis's stride",
        "Multiply each index by the stride of its own axis; the axis of stride 1 is the last one of a contiguous tensor.",
        line=line,
        cause_kind=Cause.TRANSPOSED_STRIDES,
    )


def half_precision(finding: Finding, kernel: Kernel) -> Advice | None:
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
