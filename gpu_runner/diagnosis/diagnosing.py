"""Putting the diagnosis of one evaluation together and in order."""

from collections.abc import Sequence

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.findings import Finding, Severity
from gpu_runner.core.verdicts import Verdict
from gpu_runner.diagnosis import compile, genuineness, memory, numerics, performance
from gpu_runner.diagnosis.facts import Advice, advised

MAX_FINDINGS = 60
_ORDER = {Severity.GATE: 0, Severity.HINT: 1, Severity.WARNING: 2, Severity.NOTE: 3}
_MEMORY = frozenset("out_of_bounds race unwritten host device".split())
_GENUINENESS = frozenset(
    "torch_computes decoy_kernel uses_reference remembered_result too_little_work tampering"
    " forged_result deferred_work".split()
)
_NUMERICS = frozenset(
    "values shape dtype device structure nan input_changed state parameters precision_below_policy"
    " outside_given_distribution trivial_answer".split()
)


def diagnose(evaluation: Evaluation, source: str) -> Evaluation:
    """The evaluation with enriched findings, the leading one first; verdict, kind and times are untouched.

    Diagnosing twice is diagnosing once. The gate that decided the verdict always leads; of a correct candidate the
    bottleneck does.
    """
    seen = [
        advised(finding, _advice(finding, evaluation, source)) for finding in evaluation.findings
    ]
    known = {(finding.stage, finding.kind) for finding in seen}
    added = [
        finding
        for finding in (performance.findings(evaluation) if evaluation.is_correct else [])
        if (finding.stage, finding.kind) not in known
    ]
    ordered = _ordered([*seen, *added])
    return evaluation.model_copy(update={"findings": tuple(ordered[:MAX_FINDINGS])})


def _ordered(findings: Sequence[Finding]) -> list[Finding]:
    """By severity; among gates the judge's order, among hints the largest predicted gain first."""

    def key(finding: Finding) -> tuple[int, float]:
        gain = finding.evidence.get("predicted_gain")
        is_ranked = finding.severity is Severity.HINT and isinstance(gain, int | float)
        return _ORDER[finding.severity], -float(gain) if is_ranked else 0.0  # type: ignore[arg-type]

    return sorted(findings, key=key)


def _advice(finding: Finding, evaluation: Evaluation, source: str) -> Advice:
    if finding.kind in _GENUINENESS:
        return genuineness.advise(finding)
    if finding.kind in _MEMORY and not _is_wrong_device(finding, evaluation):
        return memory.advise(finding, source)
    if finding.kind in _NUMERICS:
        return numerics.advise(finding, source)
    return compile.advise(finding, source)


def _is_wrong_device(finding: Finding, evaluation: Evaluation) -> bool:
    """`device` is both a way to run out of memory and a property that an output can have wrong."""
    return finding.kind == "device" and evaluation.verdict is not Verdict.OUT_OF_MEMORY
