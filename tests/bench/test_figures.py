import pytest

from gpu_runner.bench.figures import groups, sections, sittings
from gpu_runner.bench.rows import Outcome
from gpu_runner.core.verdicts import Fidelity, Precision, Track
from tests.bench.making import ON_GPU, WITHOUT_GPU, ratio, row

FASTER = ratio(4.0, 3.9, 4.1)
UNSURE = ratio(1.0625, 0.99, 1.14)
SLOWER = ratio(0.25, 0.24, 0.26)


def test_failures_count_in_every_share_and_in_the_means_of_all() -> None:
    rows = [
        row("level1/a", FASTER),
        row("level1/b", UNSURE),
        row("level1/c", SLOWER),
        row("level1/d", environment=ON_GPU),
        row("level1/e", outcome=Outcome.INVALID, environment=ON_GPU),
        row("level1/f", outcome=Outcome.FAILED, environment=ON_GPU),
    ]
    found = groups(rows)[0]
    assert found.eager is not None
    counted = (found.tasks, found.correct, found.without_kernel, found.invalid, found.failed)
    assert counted == (6, 3, 1, 1, 1)
    mean, root = (4.0 + 1.0625 + 0.25) / 3, (4.0 * 1.0625 * 0.25) ** (1 / 3)
    assert found.eager.model_dump() == pytest.approx(
        {
            "timed": 3,
            "fast_1": 2 / 6,
            "fast_1_by_interval": 1 / 6,
            "slower_by_interval": 1,
            "geometric_mean": root,
            "arithmetic_mean": mean,
            "median": 1.0625,
            "arithmetic_mean_of_all": mean / 2,
            "median_of_all": 0.125,
            "geometric_mean_of_all": root**0.5,
        }
    )
    assert found.torch_compile is None


def test_modelled_speedups_have_no_share_by_interval() -> None:
    speed = groups([row("level1/a", 2.0), row("level1/b", 0.5)])[0].eager
    assert speed is not None
    assert (speed.fast_1, speed.fast_1_by_interval, speed.slower_by_interval) == (0.5, None, None)


def test_torch_compile_is_a_baseline_of_its_own() -> None:
    rows = [
        row("level1/a", FASTER, SLOWER),
        row("level1/b", FASTER, FASTER),
        row("level1/c", FASTER),
    ]
    speed = groups(rows)[0].torch_compile
    assert speed is not None
    # The third was not timed against it: no task that is faster, but one of all.
    assert (speed.timed, speed.fast_1, speed.slower_by_interval) == (2, 1 / 3, 1)


def test_groups_are_all_then_levels_then_kinds() -> None:
    rows = [
        row("level2/a", 2.0, kind="attention"),
        row("level1/b", 2.0),
        row("level1/c", outcome=Outcome.INVALID, kind="not traced"),
    ]
    found = [(group.by, group.name, group.tasks, group.correct) for group in groups(rows)]
    assert found == [
        ("all", "all", 3, 2),
        ("level", "level1", 2, 1),
        ("level", "level2", 1, 1),
        ("kind", "attention", 1, 1),
        ("kind", "not traced", 1, 0),
        ("kind", "softmax", 1, 1),
    ]


def test_a_group_without_any_kernel_has_no_speed() -> None:
    assert (groups([row()])[0].eager, groups([row()])[0].tasks) == (None, 1)
    assert groups([])[0].tasks == 0


def test_measured_and_modelled_rows_are_never_in_one_section() -> None:
    rows = [row("level1/a", FASTER), row("level1/b", 3.0)]
    found = [(s.fidelity, s.groups[0].tasks) for s in sections(rows)]
    assert found == [(Fidelity.MEASURED, 1), (Fidelity.MODELLED, 1)]


def test_sittings_on_one_model_of_gpu_are_counted_apart_and_together() -> None:
    newer = ON_GPU | {"driver": "590"}
    other = ON_GPU | {"gpu": "NVIDIA A100"}
    rows = [
        row("level1/a", FASTER),
        row("level1/b", FASTER, environment=newer),
        row("level1/c", FASTER, environment=other),
    ]
    together = [(len(s.sittings), s.groups[0].tasks) for s in sections(rows)]
    assert together == [(1, 1), (2, 2), (1, 1), (1, 1)]
    assert [sitting.rows for sitting in sittings(rows)] == [1, 1, 1]


def test_tracks_and_precisions_have_sections_of_their_own() -> None:
    rows = [
        row("level1/a", 2.0),
        row("level1/a", 2.0, track=Track.LIBRARY_ALLOWED),
        row("level1/a", 2.0, precision=Precision.TF32),
    ]
    found = [(s.track.value, s.precision.value) for s in sections(rows)]
    assert found == [
        ("own_kernels", "reference"),
        ("own_kernels", "tf32"),
        ("library_allowed", "reference"),
    ]


def test_the_time_for_which_the_device_was_held_is_told_per_ten_tasks() -> None:
    rows = [
        row("level1/a", FASTER, lock_s=6.0),
        row("level1/b", SLOWER, lock_s=9.0),
        row("level1/c"),
    ]
    found = {
        section.fidelity: (section.lock_s, section.lock_s_per_ten) for section in sections(rows)
    }
    assert found == {Fidelity.MEASURED: (15.0, 75.0), Fidelity.MODELLED: (None, None)}


def test_what_is_waited_for_counts_nowhere() -> None:
    rows = [row("level1/a", 2.0), row("level1/b", outcome=Outcome.WAITING, environment={})]
    assert [section.groups[0].tasks for section in sections(rows)] == [1]
    assert [sitting.rows for sitting in sittings(rows)] == [1]


def test_the_target_tells_modelled_sittings_apart() -> None:
    rows = [
        row("level1/a", 2.0),
        row("level1/b", 2.0, environment=WITHOUT_GPU | {"target": "a100"}),
    ]
    assert len(sittings(rows)) == 2
