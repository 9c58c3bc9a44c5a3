"""Types of blocks and tensors as the interpreter makes them are Triton's, and nobody shares what can be changed."""

from typing import Any

import pytest
import triton.language as tl
from triton.language.semantic import TritonSemantic

from gpu_runner.evaluation.child import block_shapes

SHAPES = ([16], [1, 64], [tl.constexpr(4), 8, 2], tl.tuple([32, tl.constexpr(1)]))


def block(element_ty: Any, shape: Any) -> Any:
    made = object.__new__(tl.block_type)
    block_shapes.init_block_type(made, element_ty, shape)
    return made


def tensor(type: Any) -> Any:
    made = object.__new__(tl.tensor)
    block_shapes.init_tensor(made, None, type)
    return made


def shown(value: Any) -> list[str]:
    parts = value.shape, value.shape.type.types, value.numel
    return [f"{type(part).__name__} {part!r}" for part in parts]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_type_is_as_triton_makes_it(shape: Any) -> None:
    for _ in range(2):
        made, expected = block(tl.float32, shape), tl.block_type(tl.float32, shape)

        assert made == expected
        assert shown(made) == shown(expected)
        assert block_shapes._name(made) == expected.name


@pytest.mark.parametrize("type", [tl.int32, *(tl.block_type(tl.float16, s) for s in SHAPES)])
def test_a_tensor_is_as_triton_makes_it(type: Any) -> None:
    for _ in range(2):
        made, expected = tensor(type), tl.tensor(None, type)

        assert shown(made) == shown(expected)
        assert (made.type, made.dtype, made.handle) == (type, expected.dtype, None)


@pytest.mark.parametrize("shape", [[], [3], [16, 24], [16.0], ["16"], [1 << 21], (16,)])
def test_a_shape_that_triton_refuses_is_refused_alike(shape: Any) -> None:
    block(tl.float32, [16])
    with pytest.raises(Exception) as expected:
        tl.block_type(tl.float32, shape)

    for _ in range(2):
        with pytest.raises(expected.type) as refused:
            block(tl.float32, shape)
        assert str(refused.value) == str(expected.value)


def test_what_is_changed_of_one_tensor_stays_with_it() -> None:
    changed = tensor(block(tl.float32, [16, 4]))
    changed.shape.values[0].value = 1
    changed.numel.value = 1
    changed.type.shape.values[0] = 1

    assert shown(tensor(block(tl.float32, [16, 4]))) == shown(
        tl.tensor(None, tl.block_type(tl.float32, [16, 4]))
    )


@pytest.mark.parametrize(
    ("left", "right", "is_asked"),
    [([16], [16], False), ([16, 1], [1, 16], True), ([16], [1, 16], True), ([16], None, True)],
)
def test_only_operands_of_different_shapes_are_broadcast(
    left: Any, right: Any, is_asked: bool
) -> None:
    asked: list[Any] = []
    broadcast = block_shapes._broadcasting(lambda *operands: asked.append(operands))
    lhs, rhs = (
        tl.tensor(None, tl.block_type(tl.int32, s) if s else tl.int32) for s in (left, right)
    )

    answer = broadcast(None, lhs, rhs)

    assert bool(asked) is is_asked
    if not is_asked:
        assert answer == (lhs, rhs) == TritonSemantic.broadcast_impl_value(None, lhs, rhs)
