"""Error texts of Python, Triton and ptxas: which line, which one fact matters, what to change."""

import ast
import difflib
import re
from dataclasses import dataclass, replace
from typing import Final

from gpu_runner.core.findings import Cause, Evidence, Finding
from gpu_runner.core.source import Problem, parse
from gpu_runner.diagnosis import reading
from gpu_runner.diagnosis.facts import Advice, text_of, texts

LANGUAGE: Final = tuple(
    "abs advance arange argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or"
    " atomic_xchg atomic_xor bfloat16 broadcast broadcast_to cast cat cdiv ceil clamp constexpr cos cummax cumprod cumsum"
    " device_assert device_print div_rn dot dot_scaled erf exp exp2 expand_dims flip float16 float32 float64 floor fma full"
    " gather histogram int1 int16 int32 int64 int8 interleave join load log log2 make_block_ptr make_tensor_descriptor max"
    " max_constancy max_contiguous maximum min minimum multiple_of num_programs permute program_id rand randint randn range"
    " ravel reduce reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn static_assert static_print static_range store"
    " sum swizzle2d trans uint16 uint32 uint64 uint8 umulhi view where xor_sum zeros zeros_like".split()
)
"""Names of `triton.language`, to suggest the nearest one; torch is not imported here and neither is triton."""

_POWER = "Use a power of two (triton.next_power_of_2) and mask what lies beyond the size."
_CONSTANT = "Pass the value as an argument annotated tl.constexpr."
_SMALLER = (
    "Take smaller tiles or fewer num_stages; shared memory grows with tile sizes times num_stages."
)


@dataclass(frozen=True)
class Pattern:
    """An error text; `fact` and `suggestion` may use the expression's named groups."""

    expression: str
    fact: str
    suggestion: str
    cause: Cause | None = None


PATTERNS: Final = (
    Pattern(
        r"out of resource: shared memory, Required: (?P<need>\d+), Hardware limit: (?P<limit>\d+)",
        "needs {need} bytes of shared memory, {limit} are available",
        _SMALLER,
        Cause.SHARED_MEMORY,
    ),
    Pattern(
        r"(?P<need>\d[\d,]*) bytes of shared memory.{0,40}?(?P<limit>\d[\d,]*)",
        "needs {need} bytes of shared memory, {limit} are available",
        _SMALLER,
        Cause.SHARED_MEMORY,
    ),
    Pattern(
        r"out of resource: (?P<what>threads|registers|tensor memory)",
        "needs more {what} than there are",
        "Take smaller tiles, or more num_warps so that each thread holds less.",
    ),
    Pattern(
        r"(?:arange's range|Shape element \d+) must be a power of 2|must be a power of (?:2|two)",
        "a block size is no power of two",
        _POWER,
        Cause.NOT_A_POWER_OF_TWO,
    ),
    Pattern(
        r"numel \((?P<numel>\d+)\) exceeds triton maximum tensor numel \((?P<limit>\d+)\)",
        "a block has {numel} elements, at most {limit} are possible",
        "Loop over the row in blocks instead of loading all of it at once.",
        Cause.TILE_TOO_LARGE,
    ),
    Pattern(
        r"arguments? (?:of|to) .{0,40}must be .{0,20}constexpr|`?arange`?'?s? arguments must be of type tl\.constexpr",
        "a size that must be known at compile time is not",
        _CONSTANT,
        Cause.NOT_CONSTEXPR,
    ),
    Pattern(
        r"[Cc]annot access global variable (?P<name>\w+)",
        "the kernel reads the global variable {name}",
        "Pass {name} as a tl.constexpr argument, or write NAME: tl.constexpr = tl.constexpr(value) at module level.",
        Cause.NOT_CONSTEXPR,
    ),
    Pattern(
        r"[Cc]annot make_shape_compatible: incompatible dimensions at index (?P<index>\d+): (?P<a>\d+) and (?P<b>\d+)",
        "two blocks meet whose sizes along axis {index} are {a} and {b}",
        "Give both the same block size on that axis, or insert an axis with [:, None] or [None, :].",
        Cause.SHAPE_MISMATCH,
    ),
    Pattern(
        r"M >= \d+, N >= \d+ and K >= \d+|K dim(?:ension)? must be (?:at least|>=)",
        "tl.dot needs at least 16 along each of M, N and K",
        "Use blocks of at least 16 and mask what lies beyond the size, or multiply and tl.sum instead.",
        Cause.TILE_TOO_SMALL,
    ),
    Pattern(
        r"(?:input shape|[Ss]hapes?) .{0,80}(?:not compatible|incompatible|do not match)|equal reduction dimensions",
        "the shapes of two operands do not fit",
        "Check which axis of each block is which; tl.trans turns a block round.",
        Cause.SHAPE_MISMATCH,
    ),
    Pattern(
        r"Loop-carried variable (?P<name>\w+) has initial type (?P<a>.+?) but is re-assigned to (?P<b>.+?) in loop",
        "{name} starts as {a} and becomes {b} in the loop",
        "Start it with the type that the loop gives it: tl.zeros(shape, dtype) with the loop's shape and dtype.",
        Cause.WRONG_TYPE,
    ),
    Pattern(
        r"Mismatched type for (?P<name>\w+) between then block",
        "{name} has another type in each branch of an if",
        "Cast in both branches, or compute both and choose with tl.where.",
        Cause.WRONG_TYPE,
    ),
    Pattern(
        r"unsupported AST node type: (?P<node>\w+)|only (?P<only>tuple comprehensions) are supported",
        "a kernel cannot contain a Python {node}",
        "Write it with loops, tl.where and plain assignments.",
        Cause.UNSUPPORTED_PYTHON,
    ),
    Pattern(
        r"(?:module 'triton\.language\S*'|triton\.language|module 'tl').{0,20} has no attribute '(?P<name>\w+)'",
        "triton.language has no {name}",
        "",
        Cause.UNKNOWN_NAME,
    ),
    Pattern(
        r"Did you forget to add @triton\.jit",
        "a kernel calls a function that is not compiled",
        "Decorate the helper with @triton.jit.",
        Cause.UNKNOWN_NAME,
    ),
    Pattern(
        r"Pointer argument .{0,30}cannot be accessed from Triton",
        "a tensor on the CPU is given to a kernel",
        "Move parameters and temporaries to the device of the input.",
        Cause.WRONG_TYPE,
    ),
    Pattern(
        r"(?:Unsupported ptr type|unsupported pointer|Only int64 supported for pointer)",
        "something that is no pointer is loaded from or stored to",
        "Give the kernel the tensor itself, not a number, and add offsets to it.",
        Cause.WRONG_TYPE,
    ),
    Pattern(
        r"Cannot call @triton\.jit'd outside of the scope of a kernel",
        "a kernel is called without a grid",
        "Launch it as kernel[grid](...).",
        Cause.LAUNCH_ARGUMENTS,
    ),
    Pattern(
        r"missing (?:\d+ )?(?:a )?required (?:positional )?arguments?: (?P<name>'[^']+'|\w+)",
        "the argument {name} is missing",
        "Compare the launch or call with the signature.",
        Cause.LAUNCH_ARGUMENTS,
    ),
    Pattern(
        r"(?:got an unexpected keyword argument '|Keyword argument )(?P<name>\w+)",
        "there is no parameter {name}",
        "Compare the launch or call with the signature.",
        Cause.LAUNCH_ARGUMENTS,
    ),
    Pattern(
        r"name '(?P<name>\w+)' is not defined|NameError\(['\"](?P<other>\w+) is not defined",
        "{name} is not defined",
        "Define or import it; inside a kernel only arguments, tl and other @triton.jit functions are visible.",
        Cause.UNKNOWN_NAME,
    ),
    Pattern(
        r"No module named '(?P<name>[\w.]+)'",
        "the module {name} is not available",
        "Import torch, triton, triton.language and the standard library's math only.",
        Cause.UNKNOWN_NAME,
    ),
    Pattern(
        r"an illegal memory access|illegal address",
        "a kernel reached outside its tensors",
        "Mask every load and store; check strides and the ends of blocks.",
    ),
    Pattern(
        r"[Ee]xpected dtype (?P<want>\[.+?\]|\w+),? but got (?P<got>\w+)",
        "{got} where {want} is needed",
        "Cast with .to(tl.float32) first; arithmetic in 16 bits loses digits as well.",
        Cause.WRONG_TYPE,
    ),
    Pattern(
        r"unsupported operand type|invalid operands of type",
        "an operation does not exist for these types",
        "Cast with .to(...) first.",
        Cause.WRONG_TYPE,
    ),
)

_BY_WORD: Final = {
    "threads": Cause.THREADS,
    "registers": Cause.REGISTERS,
    "fp16": Cause.LOW_PRECISION,
    "bf16": Cause.LOW_PRECISION,
}
_CANDIDATE_LINE = re.compile(r"(?:candidate\.py|<candidate>)[\"']?(?:, line |:)(\d+)")
_KERNEL_LINE = re.compile(r"\bat (\d+):\d+:")


def advise(finding: Finding, source: str) -> Advice:
    """What an error text says about its cause."""
    text = text_of(finding)
    line = line_in(text, finding.location.kernel, source)
    for pattern in PATTERNS:
        found = re.search(pattern.expression, text, re.DOTALL)
        if found:
            advice = _advice(pattern, found.groupdict(), line)
            return _with_size(advice, finding, source)
    return Advice(line=line)


def _with_size(advice: Advice, finding: Finding, source: str) -> Advice:
    """The size that is no power of two: as it stands at that line, or as the launch gave it."""
    if advice.cause_kind is not Cause.NOT_A_POWER_OF_TWO:
        return advice
    line = finding.location.line or advice.line
    given = dict(pair.partition("=")[::2] for pair in texts(finding, "constexprs"))
    for kernel in reading.kernels_of(source):
        for call in reading.calls(kernel.node):
            if reading.language_name(call) == "arange" and call.lineno == line and call.args:
                end = ast.unparse(call.args[-1])
                size = given.get(end, end)
                return replace(
                    advice, cause=f"{advice.cause}: {end} is {size}", facts={"size": size}
                )
    return advice


def line_in(text: str, kernel: str | None, source: str) -> int | None:
    """The candidate's line that an error text names; Triton counts from the kernel's `def`."""
    own = _CANDIDATE_LINE.findall(text)
    if own:
        return int(own[-1])
    within = _KERNEL_LINE.search(text)
    start = _definition(kernel, source) if within and kernel else None
    last = source.count("\n") + 1
    if within is None or start is None:
        return None
    return min(start + int(within.group(1)) - 1, last)


def _definition(kernel: str | None, source: str) -> int | None:
    tree = parse(source)
    if isinstance(tree, Problem):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == kernel:
            return node.lineno
    return None


def _advice(pattern: Pattern, groups: dict[str, str | None], line: int | None) -> Advice:
    words = {name: value for name, value in groups.items() if value is not None}
    if "other" in words:
        words["name"] = words["other"]
    if "only" in words:
        words["node"] = "comprehension of that kind"
    suggestion = pattern.suggestion.format(**words)
    if "triton.language has no" in pattern.fact:
        suggestion = _nearest(words["name"])
    facts: Evidence = {
        name: int(value.replace(",", "")) if value.replace(",", "").isdigit() else value
        for name, value in words.items()
        if name not in ("other", "only")
    }
    cause = _BY_WORD.get(words.get("what") or words.get("got", ""), pattern.cause)
    return Advice(pattern.fact.format(**words), suggestion, facts, line, cause_kind=cause)


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, LANGUAGE, n=2, cutoff=0.6)
    if near:
        return "Did you mean " + " or ".join(f"tl.{match}" for match in near) + "?"
    return (
        "Write it with the functions that triton.language has; libdevice has more of mathematics."
    )
