import pytest

from gpu_runner.core.metrics import arithmetic_mean, fast_p, geometric_mean


def test_fast_p_counts_over_all_tasks_and_is_strict() -> None:
    assert fast_p([2.0, 1.0, None, 0.5]) == 0.25
    assert fast_p([2.0, 1.0, None, 0.5], p=0.9) == 0.5
    assert fast_p([]) == 0.0


def test_means_of_nothing_are_unknown() -> None:
    assert geometric_mean([]) is None
    assert arithmetic_mean([]) is None


def test_the_geometric_mean_is_not_carried_by_one_case() -> None:
    assert geometric_mean([1.0, 1.0, 8.0]) == pytest.approx(2.0)
    assert arithmetic_mean([1.0, 1.0, 7.0]) == pytest.approx(3.0)
