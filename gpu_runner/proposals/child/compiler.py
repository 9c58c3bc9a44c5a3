"""The compiler initialiser's entry, run in a sandboxed child: a task's source in, standalone candidates out."""

import time
from collections.abc import Mapping
from typing import Any, Final

from gpu_runner.proposals.child.compiler_capture import VARIANTS, Captured, Refused, capture
from gpu_runner.proposals.child.compiler_emit import Policy, emit
from gpu_runner.proposals.child.compiler_program import LibraryCall, Program, read_program

_FAILURES = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError)
"""What tracing a model or lowering its graph raises when one of them cannot deal with it."""
SAME: Final = "the same program as another variant"


def compile_source(request: dict[str, Any]) -> dict[str, Any]:
    """Candidates for a task from the compiler's fusion, one per variant.

    Args:
        request: `source` of the task, `probe` (module-level integers of the probe task, or None), `track`,
            `precision`, `variants`, names of `VARIANTS`, and `begin_within_s`: after that no further one is begun.

    Returns:
        `drafts`, a list of `variant`, `source` and `move`; and `refused`, the reason per variant without a draft.
    """
    drafts: list[dict[str, str]] = []
    refused: dict[str, str] = {}
    has_reductions = True
    started = time.monotonic()
    for name in request["variants"]:
        if not has_reductions:
            refused[name] = SAME
            continue
        if drafts and time.monotonic() - started > request["begin_within_s"]:
            refused[name] = "there was no time left for it"
            continue
        try:
            program, source = candidate(request, name)
        except Refused as reason:
            refused[name] = str(reason)
            continue
        except _FAILURES as error:
            refused[name] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[
                :300
            ]
            continue
        # The variants differ in how they reduce, and in nothing else.
        has_reductions = any(kernel.kind != "pointwise" for kernel in program.kernels.values())
        if any(draft["source"] == source for draft in drafts):
            refused[name] = SAME
            continue
        drafts.append({"variant": name, "source": source, "move": VARIANTS[name].move})
    return {"drafts": drafts, "refused": refused}


def candidate(request: Mapping[str, Any], variant: str) -> tuple[Program, str]:
    """The compiler's program for a variant and the candidate's source."""
    captured = capture(request["source"], request["probe"], VARIANTS[variant])
    program = read_program(captured.program)
    policy = _policy(captured, request["track"], request["precision"])
    if not policy.own_kernels and not program.kernels:
        raise Refused("the compiler leaves the whole task to libraries, so there is no own kernel")
    products = "own kernels" if policy.own_kernels else "torch"
    title = (
        f"The compiler's fusion as plain Triton; matrix products and convolutions by {products}."
    )
    if not any(isinstance(step, LibraryCall) for step in program.steps):
        title = "The compiler's fusion as plain Triton."
    return program, emit(request["source"], captured, program, policy, title)


def _policy(captured: Captured, track: str, precision: str) -> Policy:
    def exactness(tf32_by_reference: bool) -> str:
        allowed = precision == "tf32" or (precision == "reference" and tf32_by_reference)
        return "tf32" if allowed else "ieee"

    return Policy(
        own_kernels=track == "own_kernels",
        matmul=exactness(captured.matmul_tf32),
        convolution=exactness(captured.convolution_tf32),
    )
