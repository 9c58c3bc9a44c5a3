"""Memory: accesses out of bounds, races, elements nobody wrote, and too much of it."""

from gpu_runner.core.findings import Finding
from gpu_runner.diagnosis.facts import Advice, number, word

_UNWRITTEN = (
    "Cover the whole output: grid times block must reach every element, and each store's mask must be no narrower than the"
    " output."
)
_TOO_MUCH = "Hold less at once: no large temporaries, no copies of parameters for each call, work in blocks."


def advise(finding: Finding, source: str) -> Advice:
    if finding.kind == "out_of_bounds":
        return _out_of_bounds(finding, source)
    if finding.kind == "race":
        return _race(finding)
    if finding.kind == "unwritten":
        return Advice("", _UNWRITTEN)
    if finding.kind in ("host", "device"):
        return Advice("", _TOO_MUCH)
    return Advice()


def _out_of_bounds(finding: Finding, source: str) -> Advice:
    index, extent = number(finding, "index"), number(finding, "extent")
    tensor = finding.location.tensor or word(finding, "tensor") or "the tensor"
    access = word(finding, "access") or "access"
    cause = ""
    if index is not None and extent is not None and extent > 0:
        if index < 0:
            cause = f"{-index:,.0f} elements before the start of {tensor}"
        elif index >= extent:
            cause = f"{index - extent + 1:,.0f} elements past the end of {tensor}"
    return Advice(cause, _mask_advice(finding.location.line, access, source))


def _mask_advice(line: int | None, access: str, source: str) -> str:
    lines = source.splitlines()
    text = lines[line - 1] if line and line <= len(lines) else ""
    if text and "mask" not in text and access in ("load", "store"):
        return f"Line {line} has no mask: give tl.{access} mask=offsets < size."
    if "mask" in text:
        return "The mask lets the access through: compare offsets with the size of that very axis and tensor."
    return (
        "Mask the access with the size of the tensor, and check the strides that the offsets use."
    )


def _race(finding: Finding) -> Advice:
    other = finding.evidence.get("other_program")
    cause = f"programs {finding.evidence.get('program')} and {other}" if other is not None else ""
    if word(finding, "access") == "read-write":
        return Advice(
            cause,
            "One program reads what another writes in the same launch, in no order: split it into two launches.",
        )
    return Advice(
        cause,
        "Let each element be written by one program only, or accumulate with tl.atomic_add into zeros.",
    )
