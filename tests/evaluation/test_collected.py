"""Candidates by a hostile tester: cheats, honest kernels and wrong ones, each with its task and the verdict that it deserves.

`expected.txt` holds the verdicts that may come, as `verdict` or `verdict/kind` between bars, and the track below.
"""

from collections.abc import Iterator

import pytest

from gpu_runner.evaluation.pool import LocalPool
from tests.evaluation.exploit_files import Exploit, collected
from tests.evaluation.quick_pool import quick_pool, told

pytestmark = [pytest.mark.sandbox, pytest.mark.exam]


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with quick_pool() as pool:
        yield pool


@pytest.mark.parametrize(
    "exploit", [pytest.param(exploit, id=exploit.name) for exploit in collected()]
)
def test_a_collected_candidate_gets_the_verdict_it_deserves(
    pool: LocalPool, exploit: Exploit
) -> None:
    evaluation = pool.evaluate(exploit.task, exploit.candidate)

    assert exploit.deserves(evaluation), told(evaluation)
