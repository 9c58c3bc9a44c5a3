"""Memory: accesses out of bounds, races, elements nobody wrote, and too much of it."""

from gpu_runner.core.findings import Cause, Evidence, Finding
from gpu_runner.diagnosis import reading, strides
from gpu_runner.diagnosis.facts import Advice, lines_of, number, word

_UNWRITTEN = (
    "Cover the whole output: grid times block must reach every element, and each store's mask must be no narrower than the"
    " output."
)
_TOO_MUCH = "Hold less at once: no large temporaries, no copies of parameters for each call, work in blocks."


def advise(finding: Finding, source: str) -> Advice:
    if finding.kind == "out_of_bounds":
        return _out_of_bounds(finding, source)
    if finding.kind == "race":
        return _race(finding, source)
    if finding.kind == "unwritten":
        return _unwritten(finding)
    if finding.kind in ("host", "device"):
        return Advice("", _TOO_MUCH)
    return Advice()


def _out_of_bounds(finding: Finding, source: str) -> Advice:
    index, extent = number(finding, "index"), number(finding, "extent")
    tensor = finding.location.tensor or word(finding, "tensor") or "the tensor"
    cause = ""
    if index is not None and extent is not None and extent > 0:
        if index < 0:
            cause = f"{-index:,.0f} elements before the start of {tensor}"
        elif index >= extent:
            cause = f"{index - extent + 1:,.0f} elements past the end of {tensor}"
    kind = word(finding, "access")
    line = finding.location.line
    access = reading.access_at(source, line, kind) or reading.access_at(source, line)
    if access is None:
        return Advice(
            cause,
            "Mask the access with the size of the tensor, and check the strides that the offsets use.",
        )
    expression: Evidence = {"expression": access.expression[:300]}
    if any(strides.is_transposed(kernel, access) for kernel in reading.kernels_of(source)):
        suggestion = "An index is multiplied by another axis's stride: give each index its own."
        return Advice(cause, suggestion, expression, cause_kind=Cause.TRANSPOSED_STRIDES)
    if access.mask is None:
        suggestion = f"Line {line} has no mask: give tl.{kind} mask=offsets < size."
        return Advice(cause, suggestion, expression, cause_kind=Cause.MISSING_MASK)
    return Advice(
        cause,
        "The mask lets the access through: compare offsets with the size of that very axis and tensor.",
        expression,
        cause_kind=Cause.WRONG_MASK,
    )


def _unwritten(finding: Finding) -> Advice:
    access, line = word(finding, "access"), next(iter(lines_of(finding, "stored_at")), None)
    if access == "atomic":
        return Advice("", "Start from torch.zeros, not torch.empty.", cause_kind=Cause.NOT_CLEARED)
    if access:
        return Advice("", _UNWRITTEN, cause_kind=Cause.READ_BEFORE_WRITTEN)
    if finding.evidence.get("stores_are_masked") is False:
        return Advice(
            "no store masks anything off, so too few programs run",
            "Round the grid up: triton.cdiv(size, BLOCK) programs along each axis.",
            line=line,
            cause_kind=Cause.SHORT_GRID,
        )
    return Advice("", _UNWRITTEN, line=line, cause_kind=Cause.WRONG_MASK)


def _race(finding: Finding, source: str) -> Advice:
    other = finding.evidence.get("other_program")
    cause = f"programs {finding.evidence.get('program')} and {other}" if other is not None else ""
    access = reading.access_at(source, finding.location.line)
    expression: Evidence = {"expression": access.expression[:300]} if access else {}
    if word(finding, "access") == "read-write":
        suggestion = (
            "One program reads what another writes in the same launch, in no order: split it into two launches,"
            " or accumulate with tl.atomic_add."
        )
    else:
        suggestion = "Let each element be written by one program only, or accumulate with tl.atomic_add into zeros."
    line = next(iter(lines_of(finding, "stored_at")), None)
    return Advice(cause, suggestion, expression, line=line, cause_kind=Cause.RACE)
