"""How many different bytes tensors occupy together."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gpu_runner.evaluation.child.distinct import bytes_of, sharing, view_of

PACKED = torch.empty(4, 8, 3, 16, dtype=torch.bfloat16)
SQUARE = torch.empty(32, 32)
LINE = torch.empty(64)


@pytest.mark.parametrize(
    ("tensors", "nbytes"),
    [
        (list, 0),
        (lambda: [torch.empty(0, 7)], 0),
        (lambda: [LINE, torch.empty(64)], 512),
        (lambda: [LINE, LINE], 256),
        (lambda: [SQUARE, SQUARE.t()], 4096),
        (lambda: [SQUARE[:20], SQUARE[10:]], 4096),
        (lambda: [SQUARE[::2, ::4]], 16 * 8 * 4),
        (lambda: [SQUARE[::2], SQUARE[::3]], 128 * (16 + 11 - 6)),
        (lambda: [LINE[:1].expand(1000)], 4),
        (lambda: [LINE.unfold(0, 8, 1)], 256),
        (lambda: [PACKED[:, :, 0], PACKED[:, :, 1], PACKED[:, :, 2]], 4 * 8 * 3 * 16 * 2),
        (lambda: [PACKED[:, :, 0], PACKED[:, :, :2]], 4 * 8 * 2 * 16 * 2),
        (lambda: [torch.eye(3).to_sparse(), LINE], 9 * 4 + 256),
    ],
)
def test_bytes_that_views_share_count_once(
    tensors: Callable[[], list[torch.Tensor]], nbytes: int
) -> None:
    assert bytes_of(tensors()) == nbytes


def test_arguments_whose_memory_meets_are_told_together() -> None:
    tensors = {"q": PACKED[:, :, 0], "k": PACKED[:, :, 1], "again": PACKED[0, :2, 0], "x": LINE}
    views = {name: view for name, t in tensors.items() if (view := view_of(t))}
    assert sharing(views) == {
        "q": ("q", 1024),
        "again": ("q", 1024),
        "k": ("k", 1024),
        "x": ("x", 256),
    }


@pytest.mark.parametrize(
    ("tensor", "nbytes"),
    [
        (LINE[3:7], 32),
        (LINE[6:10], 64),
        (SQUARE[:, 1], 32 * 32),
        (SQUARE[:, ::8], 4096),
        (PACKED[:, :, 1], 1024),
    ],
)
def test_memory_is_served_in_sectors(tensor: torch.Tensor, nbytes: int) -> None:
    view = view_of(tensor)
    assert view is not None
    shift = LINE.data_ptr() % 32, SQUARE.data_ptr() % 32, PACKED.data_ptr() % 32
    assert shift == (0, 0, 0)
    assert view.in_sectors().nbytes == nbytes


def test_a_view_does_not_hold_what_lies_between_its_rows() -> None:
    view = view_of(PACKED[:, :, 1])
    assert view is not None
    own = view.address + np.array([0, 31, 96, 96 * 31], np.uint64)
    assert view.holds(own)
    assert not view.holds(own + np.uint64(32))
