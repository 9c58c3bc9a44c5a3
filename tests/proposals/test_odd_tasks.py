"""Tasks that the built-in suite does not have get a correct first candidate from the real evaluator, on both tracks."""

from collections.abc import Iterator

import pytest

from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Track
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings
from gpu_runner.sources import standard_sources
from tests.proposals.odd_tasks import TASKS


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    pool = open_pool(EvaluationSettings(device="cpu"))
    yield pool
    pool.close()


@pytest.mark.exam
@pytest.mark.parametrize("track", Track)
@pytest.mark.parametrize("name", TASKS)
def test_an_initialiser_offers_a_correct_candidate(
    pool: LocalPool, name: str, track: Track
) -> None:
    task = TaskSpec(name="task", source=TASKS[name], track=track)
    report = pool.inspect(task)
    offered = [
        draft
        for initialise in standard_sources().initialisers.values()
        for draft in initialise(pool, task, report)
    ]
    assert offered
    assert any(pool.evaluate(task, draft.source).is_correct for draft in offered)
