"""Which lines touch a tensor, and which of its elements no kernel reads."""

import torch

from gpu_runner.evaluation.child.touching import Site, Touched, evidence_of
from gpu_runner.evaluation.child.traced_memory import Region
from gpu_runner.evaluation.protocol import Touch

LOAD = Site("load", "own", 7, "x_ptr")
STORE = Site("store", "own", 9, "y_ptr")


def region_of(tensor: torch.Tensor) -> Region:
    storage = tensor.untyped_storage()
    lo = storage.data_ptr()
    return Region(lo, lo + storage.nbytes(), tensor.element_size(), None)


def test_elements_that_no_launch_reads_are_named_by_their_place() -> None:
    x = torch.zeros(4, 10)
    touched = Touched()
    for program, columns in ((0, slice(0, 4)), (1, slice(4, 8))):
        region = region_of(x)
        region.marks[1].reshape(4, 10)[:, columns] = program
        touched.note(region, LOAD)
        touched.note_reads([region])

    assert touched.of("input 0", x) == [
        Touch(
            name="input 0",
            access="load",
            kernel="own",
            line=7,
            tensor="x_ptr",
            unread="the tail of axis 1: 8 to 9 of 10",
        )
    ]
    assert touched.of("input 0", x.t())[0].unread == "the tail of axis 0: 8 to 9 of 10"


def test_reads_that_were_not_followed_claim_nothing() -> None:
    x = torch.zeros(16)
    region = region_of(x)
    region.marks[1][:4] = 0
    region.has_unmarked_reads = True
    touched = Touched()
    touched.note(region, LOAD)
    touched.note_reads([region])

    assert [touch.unread for touch in touched.of("input 0", x)] == [""]
    assert touched.of("input 1", torch.zeros(16)) == []


def test_evidence_is_of_the_wrong_output_and_of_inputs_that_are_read_in_part() -> None:
    x, y = torch.zeros(8), torch.zeros(8)
    given, written = region_of(x), region_of(y)
    given.marks[1][2:] = 0
    touched = Touched()
    touched.note(given, LOAD)
    touched.note(written, STORE)
    touched.note_masked_store(written)
    touched.note_reads([given, written])
    touches = [*touched.of("input 0", x), *touched.of("output 0", y)]

    assert evidence_of(touches, "output 0") == {
        "stored_by": ["own"],
        "stored_at": [9],
        "stores_are_masked": True,
        "unread": "a block of axis 0: 0 to 1 of 8 of x_ptr",
        "unread_at": [7],
    }
    assert "stored_by" not in evidence_of(touches, "output 1")
