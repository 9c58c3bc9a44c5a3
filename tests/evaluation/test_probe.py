"""Probe sizes derived from sources: relations kept, tails ragged, everything else untouched."""

import ast
from pathlib import Path

import pytest

from gpu_runner.core.probe import (
    MOST_ELEMENTS,
    aligned_assignments,
    grown_assignments,
    probe_assignments,
    sizes,
    with_assignments,
)

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/*.py"))


def task(assignments: str, inputs: str = "torch.randn(1)") -> str:
    return f"{assignments}\n\ndef get_inputs():\n    return [{inputs}]\n"


def first(assignments: str, inputs: str = "torch.randn(1)") -> dict[str, int]:
    return probe_assignments(task(assignments, inputs))[0]


def test_a_source_without_integers_has_only_the_full_size() -> None:
    assert probe_assignments("x = 1.5\ny = 'a'\nz = True\n") == [{}]


def test_the_last_proposal_changes_nothing() -> None:
    assert probe_assignments(task("rows = 4096\ncols = 512"))[-1] == {}


def test_a_source_that_does_not_parse_has_no_sizes() -> None:
    assert sizes("x = (") == []
    assert probe_assignments("x = (") == [{}]


def test_equal_values_stay_equal_in_one_of_the_first_two_proposals() -> None:
    proposals = probe_assignments(task("n_tokens = 1024\nn_features = 1024"))
    assert any(p["n_tokens"] == p["n_features"] for p in proposals[:2])


def test_different_values_stay_different() -> None:
    values = first("m = 2048\nn = 4096\nk = 1024")
    assert len(set(values.values())) == 3


@pytest.mark.parametrize("source", ["rows = 4096\ncols = 8192", "n = 16777216", "a = 100\nb = 48"])
def test_the_tail_is_ragged(source: str) -> None:
    values = first(source)
    assert values
    assert all(value % 16 for value in values.values())


@pytest.mark.parametrize(
    "kept", ["kernel_size = 3", "stride = 2", "groups = 8", "padding = 1", "kernel_size = 11"]
)
def test_small_and_geometric_sizes_are_kept(kept: str) -> None:
    name = kept.split(" ")[0]
    assert name not in first(f"{kept}\nchannels = 256\nheight = 224")


def test_channels_stay_a_multiple_of_their_groups() -> None:
    values = first("channels = 128\nn_groups = 32\nheight = 64")
    assert values["channels"] % values["n_groups"] == 0
    assert values["n_groups"] > 1


def test_features_stay_a_multiple_of_kept_groups() -> None:
    assert first("channels = 128\nn_groups = 8")["channels"] % 8 == 0


def test_features_per_head_stay_a_power_of_two() -> None:
    values = first("n_features = 1024\nn_heads = 16\nn_tokens = 512")
    per_head = values["n_features"] / values["n_heads"]
    assert per_head == 16
    assert values["n_tokens"] % 16


def test_inputs_become_small() -> None:
    source = task(
        "batch_size = 64\nchannels = 64\nheight = 256\nwidth = 256",
        "torch.randn(batch_size, channels, height, width)",
    )
    p = probe_assignments(source)[0]
    assert p["batch_size"] * p["channels"] * p["height"] * p["width"] <= MOST_ELEMENTS


def test_fewer_elements_can_be_asked_for() -> None:
    source = task(
        "batch_size = 16\nn_points = 2048",
        "torch.randn(batch_size, n_points, 3), torch.randn(batch_size, n_points, 3)",
    )
    assert probe_assignments(source)[0] == {"batch_size": 11, "n_points": 521}
    assert probe_assignments(source, 3_000)[0] == {"batch_size": 3, "n_points": 259}
    assert aligned_assignments(source, 3_000) == {"batch_size": 2, "n_points": 256}
    assert grown_assignments(source, 3_000) == [{"n_points": 256}, {"batch_size": 2}]


def test_a_named_tuple_of_sizes_counts_as_a_shape() -> None:
    source = task(
        "batch_size = 128\ninput_shape = (64, 512, 512)", "torch.randn(batch_size, *input_shape)"
    )
    p = probe_assignments(source)[0]
    elements = p["batch_size"]
    for i in range(3):
        elements *= p[f"input_shape[{i}]"]
    assert elements <= MOST_ELEMENTS


def test_aligned_sizes_keep_the_divisibility_of_the_full_ones() -> None:
    values = aligned_assignments(task("rows = 4096\ncols = 1000"))
    assert values["rows"] % 16 == 0
    assert 1000 % values.get("cols", 1000) == 0


def test_replacing_touches_nothing_but_the_numbers() -> None:
    source = (
        "# größe = 64\nα = 1; rows, cols = 64, 128  # 64\nshape = (64, [3, 128])\nrate = 0.64\n"
    )
    replaced = with_assignments(source, {"cols": 7, "shape[0]": 5, "shape[1][1]": 9})
    assert replaced == (
        "# größe = 64\nα = 1; rows, cols = 64, 7  # 64\nshape = (5, [3, 9])\nrate = 0.64\n"
    )


def test_replacing_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError):
        with_assignments("rows = 64\n", {"cols": 3})


def test_a_name_assigned_twice_is_left_alone() -> None:
    assert [size.key for size in sizes("n = 64\nn = 32\nm = 64\n")] == ["m"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_gets_a_smaller_size_that_parses(path: Path) -> None:
    source = path.read_text()
    values = probe_assignments(source)[0]
    full = {size.key: size.value for size in sizes(source)}
    assert values
    assert all(0 < values[key] < full[key] for key in values)
    ast.parse(with_assignments(source, values))


def test_grown_probes_have_one_size_as_large_as_given() -> None:
    source = (
        "import torch\nROWS, COLUMNS = 4096, 8192\n\ndef get_inputs():\n"
        "    return [torch.randn(ROWS, COLUMNS)]\n"
    )

    assert grown_assignments(source) == [{"COLUMNS": 128}, {"ROWS": 64}]


def test_a_size_too_large_to_interpret_is_not_grown() -> None:
    source = (
        "import torch\nROWS, COLUMNS = 64, 4_000_000\n\ndef get_inputs():\n"
        "    return [torch.randn(ROWS, COLUMNS)]\n"
    )

    assert grown_assignments(source) == [{"COLUMNS": 256}]
