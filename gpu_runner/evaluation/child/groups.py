"""Which group a dispatched operation belongs to: see `Operation.group`."""

import functools
from collections.abc import Sequence
from typing import Any

import torch

_ALLOCATION = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like new_zeros"
    " ones ones_like new_ones full full_like new_full fill fill_ zero zero_ scalar_tensor arange eye linspace"
    " _efficientzerotensor lift_fresh resize_ resize set_ tril_indices triu_indices"
    " record_stream _pin_memory is_pinned".split()
)
_COPY = frozenset(
    "clone copy_ copy lift_fresh_copy cat stack constant_pad_nd index_select gather index index_put index_put_ _unsafe_index"
    " _index_put_impl_ roll flip rot90 repeat repeat_interleave slice_scatter select_scatter scatter scatter_"
    " as_strided_scatter diagonal_scatter _reshape_copy as_strided_copy unfold_copy view_copy narrow_copy"
    " permute_copy expand_copy t_copy transpose_copy contiguous pixel_shuffle pixel_unshuffle im2col"
    " reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"
    " take embedding masked_select channel_shuffle _foreach_copy_ split_copy unbind_copy".split()
)
_LIBRARY = frozenset(
    "mm addmm bmm baddbmm addbmm addmv mv dot vdot _scaled_mm _int_mm _grouped_mm _scaled_grouped_mm"
    " _addmm_activation linear mkldnn_linear _mkl_linear _sparse_semi_structured_mm"
    " convolution _convolution convolution_overrideable cudnn_convolution cudnn_convolution_transpose"
    " cudnn_convolution_relu cudnn_convolution_add_relu mkldnn_convolution _slow_conv2d_forward slow_conv3d"
    " slow_conv3d_forward slow_conv_transpose2d slow_conv_transpose3d slow_conv_dilated2d slow_conv_dilated3d"
    " conv_depthwise3d _conv_depthwise2d _nnpack_spatial_convolution thnn_conv2d miopen_convolution"
    " _fft_r2c _fft_c2r _fft_c2c sort topk argsort msort".split()
)
MATMUL = frozenset("mm addmm bmm baddbmm addbmm addmv mv dot linear _addmm_activation".split())
_HOST = frozenset("_local_scalar_dense is_nonzero equal item".split())
NO_WORK = frozenset(
    "sym_size sym_stride sym_numel sym_storage_offset size stride detach detach_ alias"
    " _unsafe_view is_same_size resolve_conj resolve_neg lift _has_same_storage_numel".split()
)
_RANDOM_PREFIXES = ("rand", "normal", "bernoulli", "uniform", "native_dropout", "multinomial")
_NEGATING_VIEWS = frozenset("_neg_view _conj".split())
"""Whoever reads them next changes signs."""
FILLING = frozenset("fill fill_ full full_like new_full".split())
COMPUTING = ("compute", "library", "random")
ACCUMULATING = frozenset(
    "index_put index_put_ _index_put_impl_ _unsafe_index_put put put_ scatter scatter_".split()
)


def uses_matmul(name: str) -> bool:
    return name.removeprefix("aten::") in MATMUL


def uses_convolution(name: str) -> bool:
    return "conv" in name


def group_of(func: Any, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> str:
    """The group of one dispatched operation; see `Operation.group`."""
    if name in ("_to_copy", "to") and inputs and outputs:
        return _converting(inputs[0].dtype, outputs[0].dtype)
    if name in _ALLOCATION:
        return "allocation"
    if name in _NEGATING_VIEWS:
        return "compute"
    if name == "copy_" and len(inputs) > 1:
        return _converting(inputs[1].dtype, inputs[0].dtype)
    if name in _COPY:
        return "copy"
    if name in _HOST:
        return "host"
    if _is_view(func):
        return "view"
    if name in _LIBRARY:
        return "library"
    if name.startswith(_RANDOM_PREFIXES):
        return "random"
    return "compute"


def _converting(source: torch.dtype, target: torch.dtype) -> str:
    """Floating-point numbers that become integers are truncated, which is a computation."""
    if source == target:
        return "copy"
    return "compute" if source.is_floating_point and not _is_inexact(target) else "cast"


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def is_filled_by_tensor(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    for i, argument in enumerate(func._schema.arguments):
        if argument.name in ("value", "fill_value"):
            return isinstance(args[i] if i < len(args) else kwargs.get(argument.name), torch.Tensor)
    return False


def _is_view(func: Any) -> bool:
    if torch.Tag.inplace_view in func.tags:
        return True
    aliases = [r.alias_info for r in func._schema.returns if r.alias_info is not None]
    return bool(aliases) and not any(a.is_write for a in aliases)


def accumulates(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether this scatter adds or multiplies where others only move values."""
    for i, argument in enumerate(func._schema.arguments):
        if argument.name in ("accumulate", "reduce"):
            return bool(args[i] if i < len(args) else kwargs.get(argument.name))
    return False


@functools.lru_cache(maxsize=4096)
def may_compute(short: str) -> bool:
    """Whether an operator may compute by itself: no view, no copy, and not merely made of others."""
    if short in _ALLOCATION | _COPY | _HOST | NO_WORK | {"to", "_to_copy"}:
        return False
    packet = getattr(torch.ops.aten, short, None)
    if packet is None:
        return False
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return not any(_is_view(func) or _is_composite(func) for func in overloads)


def _is_composite(func: Any) -> bool:
    if not torch._C._dispatch_has_kernel(func.name()):
        return False  # known to TorchScript alone
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
