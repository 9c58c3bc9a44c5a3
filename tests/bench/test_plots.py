import math

import pytest

from gpu_runner.bench import plots
from gpu_runner.bench.plots import Log
from gpu_runner.bench.rows import Outcome, Row
from tests.bench.making import figures, ratio, row


def test_a_logarithmic_axis_puts_equal_ratios_at_equal_distances() -> None:
    axis = Log(0.25, 4.0, 0.0, 100.0)
    assert [axis.at(value) for value in (0.25, 0.5, 1.0, 2.0, 4.0)] == [0, 25, 50, 75, 100]
    assert [axis.at(value) for value in (0.001, 1000.0)] == [0, 100]


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.4, 5.5, ["0.5", "1", "2", "5"]),
        (0.9, 1.1, ["1"]),
        (0.9, 2500.0, ["1", "10", "100", "1000"]),
        (1e-3, 1e6, ["0.01", "1", "100", "10000", "1e+06"]),
    ],
)
def test_ticks_are_round_and_few(low: float, high: float, texts: list[str]) -> None:
    assert [tick.text for tick in Log(low, high, 0.0, 1.0).ticks(7)] == texts


def test_the_fastest_task_stands_first_and_failures_last() -> None:
    rows = [
        row("level1/bad"),
        row("level1/slow", 0.5),
        row("level1/broken", outcome=Outcome.INVALID),
        row("level1/fast", 3.0),
        row("level2/other", 1.0),
        row("level2/waiting", outcome=Outcome.WAITING),
    ]
    one, two = plots.speedups(rows)
    assert [(bar.task, bar.failure) for bar in one.bars] == [
        ("fast", ""),
        ("slow", ""),
        ("bad", "no correct kernel"),
        ("broken", "unusable task"),
    ]
    assert [bar.task for bar in two.bars] == ["other"]
    assert (one.one, one.ticks) == (two.one, two.ticks)


def test_marks_lie_on_the_side_of_one_that_they_are_of() -> None:
    (plot,) = plots.speedups([row("level1/a", ratio(2.0, 1.5, 2.5), ratio(0.8, 0.5, 1.1))])
    (bar,) = plot.bars
    assert bar.eager is not None
    assert bar.torch_compile is not None
    assert bar.eager.low is not None
    assert bar.torch_compile.high is not None
    assert bar.torch_compile.at < plot.one < bar.eager.low < bar.eager.at
    assert plot.one < bar.torch_compile.high
    assert bar.eager.text == "2.00x eager (1.50 to 2.50)"
    assert all(0 <= mark.at <= plots.WIDTH for mark in (bar.eager, bar.torch_compile))


def test_without_any_time_there_is_nothing_to_draw() -> None:
    rows = [row("level1/a"), row("level1/b", outcome=Outcome.FAILED)]
    assert (plots.speedups(rows), plots.search(rows), plots.rooflines(rows)) == ([], None, None)


def with_curve(task: str, *curve: tuple[int, float], evaluations: int = 4) -> Row:
    return row(task, curve[-1][1], curve=curve, evaluations=evaluations)


def test_the_mean_counts_a_task_as_1_until_it_has_a_kernel() -> None:
    rows = [with_curve("level1/a", (1, 4.0)), with_curve("level1/b", (3, 0.25), (4, 4.0)), row("c")]
    # One axis from 0.25 to 4, a little room at both ends.
    drawn = plots.search(rows)
    assert drawn is not None
    up = plots._log([0.25, 4.0, 1.0], plots.BOX_HEIGHT, 8.0)
    rises = [4.0 ** (1 / 3), 4.0 ** (1 / 3), 1.0, 16.0 ** (1 / 3)]
    # A task that found a slower kernel than eager counts with that kernel.
    heights = [up.at(value) for value in rises]
    assert drawn.mean.startswith(f"M112.5 {heights[0]}H")
    assert [float(part.split("H")[0]) for part in drawn.mean.split("V")[1:]] == heights[1:]
    assert [line.name for line in drawn.lines] == ["level1/a: 4.00x", "level1/b: 4.00x"]
    assert [tick.text for tick in drawn.across] == ["0", "1", "2", "3", "4"]


def test_a_kernel_at_the_roofline_lies_on_the_diagonal() -> None:
    best = row("level1/a", 2.0).best
    assert best is not None
    rows = [
        row("level1/a", 2.0, roofline_us=10.0),
        row("level1/b", 2.0, roofline_us=1.0),
        row("level1/untraced", 2.0),
    ]
    assert figures(2.0).kernel_us == 10.0
    drawn = plots.rooflines(rows)
    assert drawn is not None
    at, above = drawn.points
    right, high = plots.WIDTH - plots.SIDE, plots.BOX_HEIGHT
    across = (at.x - plots.AXIS) / (right - plots.AXIS)
    up = (high - at.kernel_y) / (high - 8.0)
    assert math.isclose(across, up, abs_tol=1e-3)
    assert (above.kernel_y, above.x < at.x) == (at.kernel_y, True)
    assert at.eager_y is not None
    assert at.eager_y < at.kernel_y
    assert above.text == "level1/b: 10.0 us, roofline 1.0 us (10%)"
