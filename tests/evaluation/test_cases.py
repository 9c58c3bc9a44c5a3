"""The twelve judged candidates of `tests/cases`: the expected verdict, or one that is as defensible."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_runner.evaluation.pool import LocalPool
from tests.evaluation.quick_pool import quick_pool, task, told

CASES = sorted(p for p in (Path(__file__).parents[1] / "cases").iterdir() if p.is_dir())
pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("exploits")]


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with quick_pool() as pool:
        yield pool


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_judged_case_gets_its_verdict(pool: LocalPool, case: Path) -> None:
    expected = json.loads((case / "expected.json").read_text())
    reference = (case / "reference.py").read_text()

    evaluation = pool.evaluate(task(reference), (case / "candidate.py").read_text())

    accepted = {expected["verdict"], *expected["also_acceptable"]}
    assert evaluation.verdict in accepted, told(evaluation)
