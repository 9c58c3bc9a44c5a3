"""These tests run on a host with a GPU, without Django: `make gpu`. Elsewhere they are skipped, which is no pass."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_runner.evaluation.devices import visible_gpus
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.gpu)
        if not visible_gpus():
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    pool = open_pool(EvaluationSettings(device="cuda", slots=1))
    yield pool
    pool.close()
