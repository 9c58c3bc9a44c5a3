"""The fixed words of an evaluation: verdicts, kinds, states, and the options that a number depends on."""

from enum import StrEnum
from typing import Final


class Verdict(StrEnum):
    """What one evaluation found out about a candidate."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    INVALID = "invalid"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    CHEATING = "cheating"


KINDS: Final[dict[Verdict, frozenset[str]]] = {
    Verdict.CORRECT: frozenset(),
    Verdict.INCORRECT: frozenset(
        "values shape dtype device structure nan unwritten race input_changed state parameters"
        " precision_below_policy outside_given_distribution trivial_answer".split()
    ),
    Verdict.INVALID: frozenset("syntax no_entry too_large".split()),
    Verdict.COMPILE_ERROR: frozenset("frontend backend resources".split()),
    Verdict.RUNTIME_ERROR: frozenset(
        "exception constructor launch out_of_bounds device_fault crash exit".split()
    ),
    Verdict.OUT_OF_MEMORY: frozenset("host device".split()),
    Verdict.TIMEOUT: frozenset("import construct call compile device_hang".split()),
    Verdict.CHEATING: frozenset(
        "torch_computes decoy_kernel uses_reference remembered_result too_little_work tampering"
        " forged_result deferred_work".split()
    ),
}
"""The kinds each verdict may carry; the kind is that of the leading gate finding."""


class State(StrEnum):
    """Where a candidate is in its life; separate from what was found out about it."""

    QUEUED = "queued"
    EVALUATING = "evaluating"
    FINISHED = "finished"
    UNEVALUATED = "unevaluated"
    ABANDONED = "abandoned"


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (RunState.FINISHED, RunState.CANCELLED, RunState.FAILED)


class Track(StrEnum):
    """Who may do the floating-point work between inputs and output."""

    OWN_KERNELS = "own_kernels"
    LIBRARY_ALLOWED = "library_allowed"


class Precision(StrEnum):
    """The policy for float32 matmul and convolution, the same for a candidate and every baseline."""

    REFERENCE = "reference"
    IEEE = "ieee"
    TF32 = "tf32"


class Fidelity(StrEnum):
    MEASURED = "measured"
    MODELLED = "modelled"


class VerifiedAt(StrEnum):
    FULL = "full"
    PROBE = "probe"


class Stage(StrEnum):
    """The gates of an evaluation in their order; the first that fails gives the verdict."""

    STATIC = "static"
    LOAD = "load"
    COMPILE = "compile"
    PROBE = "probe"
    CORRECTNESS = "correctness"
    GENUINENESS = "genuineness"
    TIMING = "timing"
    PROFILE = "profile"
