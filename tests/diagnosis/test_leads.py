"""The exam of the diagnosis: broken and slow kernels through the real evaluator, each with what must lead."""

from collections.abc import Iterator

import pytest

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.findings import Finding
from gpu_runner.core.verdicts import Track
from gpu_runner.diagnosis import diagnose
from gpu_runner.evaluation.pool import LocalPool
from tests.diagnosis.leads import CASES
from tests.diagnosis.leads.making import Case
from tests.evaluation.quick_pool import quick_pool, task

LEAST_RIGHT = 55 / 60


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with quick_pool() as pool:
        yield pool


def diagnosed(pool: LocalPool, case: Case) -> Evaluation:
    evaluation = pool.evaluate(task(case.reference, track=Track(case.track)), case.candidate)
    return diagnose(evaluation, case.candidate)


def faults(case: Case, lead: Finding | None) -> list[str]:
    """In which respects the leading finding is not the one of the case."""
    if lead is None:
        return ["no finding"]
    place, text = lead.location, f"{lead.title} {lead.suggestion} {lead.evidence}"
    checks = {
        f"kind {lead.kind}": lead.kind == case.kind,
        f"cause {lead.evidence.get('cause')}": case.cause in (None, lead.evidence.get("cause")),
        f"line {place.line}": not case.lines or place.line in case.lines,
        f"region {place.region}": case.region in (place.region or ""),
        f"says {text[:160]}": case.says in text,
    }
    return [name for name, holds in checks.items() if not holds]


def test_the_suite_is_large_and_every_case_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60


@pytest.mark.exam
@pytest.mark.sandbox
@pytest.mark.timeout(3600)
def test_the_right_finding_leads(pool: LocalPool) -> None:
    wrong = []
    for case in sorted(CASES, key=lambda case: case.reference):
        found = faults(case, diagnosed(pool, case).lead)
        expected = " ".join(
            filter(None, [case.kind, case.cause, case.region, str(sorted(case.lines))])
        )
        print(
            f"{'right' if not found else 'WRONG'}  {case.name:52} {expected:64} {'; '.join(found)}"
        )
        wrong += [case.name] if found else []
    print(f"{len(CASES) - len(wrong)} of {len(CASES)} lead right")
    assert 1 - len(wrong) / len(CASES) >= LEAST_RIGHT, wrong
