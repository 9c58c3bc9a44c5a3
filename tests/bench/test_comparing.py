from collections.abc import Sequence

import pytest

from gpu_runner.bench.comparing import Comparison, Incomparable, compare, mean_gain
from gpu_runner.bench.rows import Outcome, Row
from tests.bench.making import ON_GPU, SETTINGS, ratio, row

WITHOUT_LIBRARY = SETTINGS.model_copy(update={"use_library": False})


def compared(a: Sequence[Row], b: Sequence[Row], *, across_devices: bool = False) -> Comparison:
    return compare((SETTINGS, a), (WITHOUT_LIBRARY, b), across_devices=across_devices)


def test_arms_are_set_side_by_side_over_the_tasks_that_both_have_run() -> None:
    a = [row("level1/a", 1.0), row("level1/b", 2.0), row("level1/mine", 9.0)]
    b = [row("level1/a", 2.0), row("level1/b", 1.0), row("level1/yours", 9.0)]
    found = compared(a, b)
    (arms,) = found.arms
    assert [(pair.a.task, pair.gain, pair.outcome) for pair in arms.pairs] == [
        ("level1/a", 2.0, "gained"),
        ("level1/b", 0.5, "lost"),
    ]
    assert (arms.gained, arms.lost) == (1, 1)
    assert arms.gain is not None
    assert arms.gain.ratio == pytest.approx(1.0)
    assert (arms.a[0].tasks, arms.b[0].tasks) == (2, 2)
    assert found.only_a == ("level1/mine (own_kernels, reference)",)
    assert found.only_b == ("level1/yours (own_kernels, reference)",)
    assert found.settings == {"use_library": (True, False)}


def test_measured_speedups_whose_intervals_touch_are_level() -> None:
    a = [row("level1/a", ratio(1.0, 0.9, 1.1)), row("level1/b", ratio(1.0, 0.9, 1.1))]
    b = [row("level1/a", ratio(1.15, 1.05, 1.25)), row("level1/b", ratio(1.3, 1.2, 1.4))]
    (arms,) = compared(a, b).arms
    assert [pair.outcome for pair in arms.pairs] == ["level", "gained"]


def test_a_kernel_where_the_other_arm_has_none_is_a_gain_that_no_mean_counts() -> None:
    a = [row("level1/a"), row("level1/b", 3.0), row("level1/c")]
    b = [row("level1/a", 0.5), row("level1/b", outcome=Outcome.INVALID), row("level1/c")]
    (arms,) = compared(a, b).arms
    assert [pair.outcome for pair in arms.pairs] == ["gained", "lost", "level"]
    assert arms.gain is None


def test_figures_of_different_fingerprints_are_compared_only_when_asked() -> None:
    a = [row("level1/a", ratio(2.0, 1.9, 2.1))]
    b = [row("level1/a", ratio(4.0, 3.9, 4.1), environment=ON_GPU | {"driver": "590"})]
    with pytest.raises(Incomparable, match="2 sittings that differ in driver; give --across"):
        compared(a, b)
    found = compared(a, b, across_devices=True)
    assert (found.differing, found.arms[0].gained) == (("driver",), 1)


def test_measured_and_modelled_are_never_compared() -> None:
    a, b = [row("level1/a", ratio(2.0, 1.9, 2.1))], [row("level1/a", 2.0)]
    with pytest.raises(Incomparable, match="measured figures and the other modelled ones"):
        compared(a, b, across_devices=True)


def test_a_task_that_is_another_in_the_other_arm_is_named_and_not_compared() -> None:
    a = [row("level1/a", 1.0), row("level1/b", 1.0)]
    b = [row("level1/a", 2.0), row("level1/b", 2.0, key="of a changed source")]
    found = compared(a, b)
    assert [pair.a.task for pair in found.arms[0].pairs] == ["level1/a"]
    assert found.changed == ("level1/b (own_kernels, reference)",)


def test_arms_without_a_common_task_are_refused() -> None:
    with pytest.raises(Incomparable, match="no task, track and precision in common"):
        compared([row("level1/a", 1.0)], [row("level1/b", 1.0)])


def test_the_interval_of_the_mean_gain_is_over_tasks() -> None:
    assert mean_gain([]) is None
    one = mean_gain([2.0])
    assert one is not None
    assert (one.ratio, one.low) == (pytest.approx(2.0), None)
    found = mean_gain([1.0, 4.0])
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    # Two logarithms, one degree of freedom: t is 12.706 and the standard error half their distance.
    assert found.ratio == pytest.approx(2.0)
    assert found.high / found.ratio == pytest.approx(2.0**12.706)
    assert found.low * found.high == pytest.approx(4.0)
