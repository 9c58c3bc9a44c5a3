"""First block sizes for the emitted launches, by the kind of kernel and the full size; tuning moves on from them."""

from collections.abc import Mapping

from gpu_runner.proposals.child.compiler_kernels import PlainKernel

_ELEMENTS_PER_THREAD = 16


def block_sizes(kernel: PlainKernel, extents: Mapping[str, int]) -> dict[str, object]:
    """Keyword arguments of a launch. "whole" stands for the power of two that covers the extent.

    Args:
        extents: elements along every block parameter at full size.
    """
    if kernel.kind == "pointwise":
        return _pointwise(list(extents), extents)
    *outer, rows, cols = extents
    blocks: dict[str, object] = dict.fromkeys(outer, 1)
    if kernel.kind == "persistent_reduction":
        whole = _power(extents[cols])
        least = 1 if kernel.reads_along_rows else 32
        count = _clamp(2048 // whole, least, min(64, _power(extents[rows])))
        blocks |= {rows: count, cols: "whole"}
        return blocks | {"num_warps": _warps(count * whole)}
    if not kernel.reads_along_rows:
        blocks |= {rows: min(64, _power(extents[rows])), cols: min(32, _power(extents[cols]))}
        return blocks | {"num_warps": 4}
    blocks |= {rows: 1, cols: min(4096, _power(extents[cols]))}
    return blocks | {"num_warps": 8}


def _pointwise(names: list[str], extents: Mapping[str, int]) -> dict[str, object]:
    if len(names) == 1:
        block = _clamp(_power(extents[names[0]] // 512), 128, 1024)
        return {names[0]: block, "num_warps": 4}
    *outer, rows, cols = names
    blocks: dict[str, object] = dict.fromkeys(outer, 1)
    blocks |= {rows: min(32, _power(extents[rows])), cols: min(32, _power(extents[cols]))}
    return blocks | {"num_warps": 4}


def _power(size: int) -> int:
    """The smallest power of two that covers `size`."""
    return 1 << max(0, size - 1).bit_length()


def _clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def _warps(elements: int) -> int:
    return _clamp(_power(elements // (32 * _ELEMENTS_PER_THREAD)), 4, 16)
