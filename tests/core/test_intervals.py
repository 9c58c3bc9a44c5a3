import math
import random

import pytest

from gpu_runner.core.evaluation import Ratio
from gpu_runner.core.intervals import is_faster, ratio_interval, t_quantile


def test_the_ratio_is_the_geometric_mean_over_blocks() -> None:
    result = ratio_interval([[4.0, 4.0], [16.0, 16.0]], [[2.0, 2.0], [4.0, 4.0]])

    assert result.ratio == pytest.approx(math.sqrt(2 * 4))


def test_identical_blocks_still_differ_as_much_as_two_processes_do() -> None:
    quick = ratio_interval([[20.0]] * 5, [[10.0]] * 5)
    slow = ratio_interval([[2000.0]] * 5, [[1000.0]] * 5)

    assert quick.low == pytest.approx(
        2.0 * math.exp(-1.96 * math.hypot(0.0014 * math.sqrt(2), 0.0035, 0.007)), rel=1e-3
    )
    assert slow.low == pytest.approx(2.0 * math.exp(-1.96 * 0.00198), rel=1e-4)


def test_one_block_gives_no_interval() -> None:
    assert ratio_interval([[3.0]], [[1.5]]) == Ratio(ratio=2.0)


@pytest.mark.parametrize(("reference", "candidate"), [([], []), ([[1.0]], [[1.0], [1.0]])])
def test_unpaired_blocks_are_refused(
    reference: list[list[float]], candidate: list[list[float]]
) -> None:
    with pytest.raises(ValueError, match="pair"):
        ratio_interval(reference, candidate)


def test_an_interval_covers_equal_kernels_whose_placements_differ() -> None:
    """Placement noise of 2 % on each side, none within a block: 95 % of 400 intervals hold 1, give or take 3 %."""
    rng = random.Random(7)
    covered = 0
    for _ in range(400):
        blocks = [[[1e6 * math.exp(rng.gauss(0, 0.02))] * 5 for _ in range(10)] for _ in range(2)]
        interval = ratio_interval(*blocks)
        assert interval.low is not None
        assert interval.high is not None
        covered += interval.low <= 1.0 <= interval.high
    assert 0.92 <= covered / 400 <= 0.98


def test_t_quantiles_fall_towards_the_normal() -> None:
    assert [round(t_quantile(n), 2) for n in (1, 10, 30, 60, 1000)] == [
        12.71,
        2.23,
        2.04,
        2.0,
        1.96,
    ]


@pytest.mark.parametrize(
    ("speedup", "faster"),
    [
        (None, False),
        (Ratio(ratio=1.2), True),
        (Ratio(ratio=0.9), False),
        (Ratio(ratio=1.02, low=0.99, high=1.05), False),
        (Ratio(ratio=1.02, low=1.01, high=1.03), True),
    ],
)
def test_faster_means_beyond_the_interval(speedup: Ratio | None, faster: bool) -> None:
    assert is_faster(speedup) is faster
