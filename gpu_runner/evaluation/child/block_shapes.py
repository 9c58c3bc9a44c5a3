"""Shapes of blocks in the interpreter, made quickly: Triton types and checks one anew for each intermediate result.

With small blocks that takes longer than the results themselves. What hangs on the numbers alone is remembered; what
submitted code gets hold of and could change, a list or a constant, is made each time.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

import triton.language.core as tl
from triton._utils import validate_block_shape
from triton.language.semantic import TritonSemantic

_SHAPES: Final = 1024

_constant_type = functools.lru_cache(_SHAPES, typed=True)(tl.constexpr_type)


@functools.lru_cache(_SHAPES, typed=True)
def _numel(*shape: Any) -> int:
    """Raises what Triton raises for a shape that is not allowed."""
    return int(validate_block_shape(shape))


@functools.lru_cache(_SHAPES, typed=True)
def _type_of_numbers(*shape: int) -> Any:
    return tl.tuple(shape).type


@functools.lru_cache(_SHAPES, typed=True)
def _type_of_constants(*shape: int) -> Any:
    return tl.tuple([tl.constexpr(size) for size in shape]).type


def _constant(value: int) -> Any:
    made = tl.constexpr.__new__(tl.constexpr)
    made.value, made.type = value, _constant_type(value)
    return made


def init_block_type(self: Any, element_ty: Any, shape: Any) -> None:
    """As `block_type.__init__`."""
    assert isinstance(shape, list | tl.tuple)
    sizes = [size.value if isinstance(size, tl.constexpr) else size for size in shape]
    if not sizes:
        raise TypeError("0d block_type is forbidden")
    self.element_ty = element_ty
    self.shape = tl.tuple(sizes, _type_of_numbers(*sizes))
    self.numel = _numel(*sizes)


def _name(self: Any) -> str:
    return f"<{self.shape}, {self.element_ty}>"


def init_tensor(self: Any, handle: Any, type: Any) -> None:
    """As `tensor.__init__`."""
    is_block = type.is_block()
    sizes = type.shape.values if is_block else ()
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.numel = _constant(type.numel if is_block else 1)
    self.shape = tl.tuple([_constant(size) for size in sizes], _type_of_constants(*sizes))


def _broadcasting(unlike: Callable[..., Any]) -> Callable[..., Any]:
    """As `TritonSemantic.broadcast_impl_value`, which is asked for operands of different shapes only."""

    def broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        if left.is_block() != right.is_block():
            return unlike(self, lhs, rhs)
        if left.is_block() and left.shape.values != right.shape.values:
            return unlike(self, lhs, rhs)
        return lhs, rhs

    return broadcast


def install() -> None:
    """For good, in a process that interprets; once."""
    name = functools.cached_property(_name)
    name.__set_name__(tl.block_type, "name")
    tl.block_type.name = name
    tl.block_type.__init__ = init_block_type
    tl.tensor.__init__ = init_tensor
    TritonSemantic.broadcast_impl_value = _broadcasting(TritonSemantic.broadcast_impl_value)
