"""Working inputs: never the same contents twice, always from the task's own domain."""

import random

import pytest
import torch

from gpu_runner.evaluation.child.inputs import Mixer, compose, empty_like_spec, is_whole
from gpu_runner.evaluation.protocol import Composition


def composed(sets: list[list[torch.Tensor]], composition: Composition) -> list[torch.Tensor]:
    target = [empty_like_spec(t) for t in sets[0]]
    compose(target, sets, composition)
    return target


def sets_of(*makers: object, count: int = 5) -> list[list[torch.Tensor]]:
    return [[make(i) for make in makers] for i in range(count)]  # type: ignore[operator]


def test_contents_never_repeat() -> None:
    sets = sets_of(lambda i: torch.full((64, 3), float(i)))
    mixer = Mixer(sets, random.Random(0))

    seen = {tuple(composed(sets, mixer.next())[0].flatten().tolist()) for _ in range(200)}

    assert len(seen) == 200


def test_few_rows_give_other_contents_while_there_are_any() -> None:
    sets = sets_of(lambda i: torch.full((2, 1), float(i)))
    mixer = Mixer(sets, random.Random(0))

    seen = {tuple(composed(sets, mixer.next())[0].flatten().tolist()) for _ in range(15)}

    assert len(seen) == 15


def test_every_row_comes_from_the_same_row_of_some_set() -> None:
    sets = sets_of(lambda i: torch.arange(40.0)[:, None] + 100.0 * i)
    mixer = Mixer(sets, random.Random(1))

    rows = composed(sets, mixer.next())[0].flatten()

    assert torch.equal(rows % 100, torch.arange(40.0))


def test_inputs_with_as_many_rows_stay_together() -> None:
    sets = sets_of(
        lambda i: torch.full((32, 2), float(i)), lambda i: torch.full((32,), float(i) + 0.5)
    )
    mixer = Mixer(sets, random.Random(2))

    x, y = composed(sets, mixer.next())

    assert torch.equal(x[:, 0] + 0.5, y)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(33, 21).t(),
        torch.randn(4, 3, 5, 6).contiguous(memory_format=torch.channels_last),
        torch.randn(1, 7).expand(5, 7),
        torch.randn(20)[::2],
        torch.tensor(3.0),
        torch.randn(0, 4),
    ],
    ids=["transposed", "channels_last", "expanded", "strided", "scalar", "empty"],
)
def test_strides_are_kept(tensor: torch.Tensor) -> None:
    sets = [[tensor.detach()] for _ in range(5)]

    (made,) = composed(sets, Mixer(sets, random.Random(3)).next())

    assert made.stride() == tensor.stride()
    assert torch.equal(made, tensor)


@pytest.mark.parametrize(
    ("make", "whole"),
    [
        (lambda g: torch.randn(50, generator=g), False),
        (lambda g: torch.randn(20, 20, generator=g), False),
        (lambda g: torch.randint(0, 9, (100,), generator=g), False),
        (lambda g: torch.randint(1, 9, (30,), generator=g).cumsum(0), True),
        (lambda g: torch.randperm(40, generator=g), True),
        (lambda g: torch.randperm(80, generator=g)[:20], True),
        (lambda g: torch.rand(40, generator=g).softmax(0), True),
        (lambda g: (lambda a: a @ a.T)(torch.randn(8, 8, generator=g)), True),
        (lambda g: torch.rand(8, 40, generator=g).softmax(1), False),
    ],
    ids=[
        "vector",
        "matrix",
        "labels",
        "offsets",
        "permutation",
        "distinct indices",
        "distribution",
        "symmetric",
        "rows",
    ],
)
def test_rows_that_depend_on_one_another_are_not_mixed(make: object, whole: bool) -> None:
    tensors = [make(torch.Generator().manual_seed(i)) for i in range(5)]  # type: ignore[operator]

    assert is_whole(tensors) is whole


def test_structured_values_stay_in_the_observed_range() -> None:
    sets = sets_of(lambda i: torch.rand(30, 10, generator=torch.Generator().manual_seed(i)))
    mixer = Mixer(sets, random.Random(4))
    low, high = mixer.bounds[0] or (0.0, 0.0)

    for kind, most in (("extremes", 2), ("ties", 5)):
        composition = mixer.structured(kind)
        assert composition is not None
        (made,) = composed(sets, composition)
        assert float(made.min()) >= low - 1e-6
        assert float(made.max()) <= high + 1e-6
        assert made.unique().numel() <= most


def test_integers_alone_have_no_structured_values() -> None:
    sets = sets_of(lambda i: torch.randint(0, 9, (30,)))

    assert Mixer(sets, random.Random(5)).structured("ties") is None
