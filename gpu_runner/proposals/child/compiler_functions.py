"""Functions of torch that fix sizes at tracing or lowering, written so that sizes stay symbols.

`group_norm` and attention as C++ compositions ask for plain integers; the lowering of convolutions asks for constant
channels. Each is replaced by the same mathematics on symbolic sizes. Average pooling says its constant divisor, which
the compiler would otherwise compute for every output.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

_avg_pool2d = F.avg_pool2d
_avg_pool3d = F.avg_pool3d
_interpolate = F.interpolate
_embedding_bag = F.embedding_bag


@contextmanager
def symbolic_functions() -> Iterator[None]:
    with ExitStack() as stack:
        for function in _OF_F:
            stack.enter_context(patch.object(F, function.__name__, function))
        stack.enter_context(patch.object(torch, "take_along_dim", take_along_dim))
        yield


def group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Statistics in float32 over each group's channels and positions, then scale and shift per channel."""
    batch, channels, *positions = input.shape
    grouped = input.reshape(batch, num_groups, channels // num_groups, *positions).float()
    over = list(range(2, grouped.dim()))
    variance, mean = torch.var_mean(grouped, dim=over, correction=0, keepdim=True)
    normalised = ((grouped - mean) * torch.rsqrt(variance + eps)).reshape(input.shape)
    per_channel = [1, channels, *[1] * len(positions)]
    if weight is not None:
        normalised = normalised * weight.reshape(per_channel)
    if bias is not None:
        normalised = normalised + bias.reshape(per_channel)
    return normalised.to(input.dtype)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Products and a softmax in float32; heads of keys and values repeat where they are fewer."""
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    factor = query.size(-1) ** -0.5 if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)).float() * factor
    if is_causal:
        rows = torch.arange(query.size(-2), device=query.device)[:, None]
        columns = torch.arange(key.size(-2), device=query.device)[None, :]
        scores = scores.masked_fill(columns > rows, float("-inf"))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = torch.softmax(scores, dim=-1).to(value.dtype)
    return torch.matmul(F.dropout(weights, dropout_p), value)


def avg_pool2d(
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """Without `ceil_mode` every window lies within the padded input, so that the divisor is the window's size."""
    if count_include_pad and not ceil_mode and divisor_override is None:
        height, width = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
        divisor_override = height * width
    return _avg_pool2d(
        input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """Height and width first, then depth: the compiler leaves larger windows in three dimensions to a library."""
    if ceil_mode or divisor_override is not None:
        return _avg_pool3d(
            input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        )
    kernel, steps, pads = (
        (v, v, v) if isinstance(v, int) else tuple(v)
        for v in (kernel_size, stride or kernel_size, padding)
    )
    images = input.flatten(0, -4)
    images = avg_pool2d(images, kernel[1:], steps[1:], pads[1:], False, count_include_pad)
    depth, length = images.size(1), kernel[0]
    padded = F.pad(images, (0, 0, 0, 0, pads[0], pads[0]))
    total = padded.unfold(1, length, steps[0]).sum(dim=-1)
    if count_include_pad:
        return (total / length).unflatten(0, input.shape[:-3])
    start = torch.arange(total.size(1), device=input.device) * steps[0] - pads[0]
    count = (start + length).clamp(max=depth) - start.clamp(min=0)
    return (total / count[:, None, None]).unflatten(0, input.shape[:-3])


def max_pool1d(
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Windows of height 1 in two dimensions."""
    kernel, steps, pads, gaps = (
        v if isinstance(v, int) else v[0]
        for v in (kernel_size, stride or kernel_size, padding, dilation)
    )
    windows = ((1, kernel), (1, steps), (0, pads), (1, gaps), ceil_mode)
    if return_indices:
        values, places = F.max_pool2d(input.unsqueeze(-2), *windows, return_indices=True)
        return values.squeeze(-2), places.squeeze(-2)
    return F.max_pool2d(input.unsqueeze(-2), *windows).squeeze(-2)


def interpolate(
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """The nearest neighbour at a given size by arithmetic of integers instead of a factor that depends on the size.

    A whole factor is said as a size, of which it is the quotient.
    """
    factors = scale_factor if isinstance(scale_factor, tuple | list) else [scale_factor]
    if size is None and all(factor == int(factor) for factor in factors):
        lengths = input.shape[2:]
        size = [n * int(factors[i % len(factors)]) for i, n in enumerate(lengths)]
        scale_factor = None
    if mode != "nearest" or size is None:
        return _interpolate(
            input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
    lengths = input.shape[2:]
    for axis, old in enumerate(lengths, 2):
        new = size[axis - 2] if isinstance(size, tuple | list | torch.Size) else size
        places = torch.arange(new, device=input.device) * old // new
        input = input.index_select(axis, places)
    return input


def take_along_dim(
    input: torch.Tensor, indices: torch.Tensor, dim: int | None = None
) -> torch.Tensor:
    """A gather, with both sides broadcast along the other dimensions."""
    if dim is None:
        return input.flatten().gather(0, indices.flatten())
    sizes = [
        [1 if axis == dim % input.dim() else n for axis, n in enumerate(t.shape)]
        for t in (input, indices)
    ]
    shape = list(torch.broadcast_shapes(*sizes))
    shapes = []
    for tensor in (input, indices):
        shape[dim] = tensor.shape[dim]
        shapes.append(tuple(shape))
    return input.expand(shapes[0]).gather(dim, indices.expand(shapes[1]))


def bilinear(
    input1: torch.Tensor,
    input2: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """A product with the first input for every output at once, then a sum over the second."""
    outputs, first, second = weight.shape
    columns = weight.permute(1, 0, 2).reshape(first, outputs * second)
    rows = (input1 @ columns).unflatten(-1, (outputs, second))
    result = (rows * input2.unsqueeze(-2)).sum(dim=-1)
    return result if bias is None else result + bias


def embedding_bag(
    input: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> torch.Tensor:
    """Bags of one length: a lookup, then a reduction over each bag."""
    if input.dim() != 2 or max_norm is not None or padding_idx is not None:
        return _embedding_bag(
            input,
            weight,
            offsets,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            per_sample_weights,
            include_last_offset,
            padding_idx,
        )
    rows = F.embedding(input, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    return {"sum": rows.sum, "mean": rows.mean, "max": rows.amax}[mode](dim=1)


_OF_F = (
    group_norm,
    scaled_dot_product_attention,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    interpolate,
    bilinear,
    embedding_bag,
)


def of_rank(x: torch.Tensor, rank: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The value of a rank from 0 along an axis, and its place; NaN where there is one, as sorting puts it last."""
    values, places = torch.sort(x, dim=dim)
    kept = [part.narrow(dim, rank, 1) for part in (values, places)]
    if x.is_floating_point():
        last = [part.narrow(dim, x.size(dim) - 1, 1) for part in (values, places)]
        kept = [torch.where(last[0].isnan(), b, a) for a, b in zip(kept, last, strict=True)]
    return tuple(kept) if keepdim else tuple(part.squeeze(dim) for part in kept)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Operations that the compiler leaves to a library, by ones that it knows or whose library call may stay."""
    aten = torch.ops.aten

    def median(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
        return of_rank(x, (x.size(dim) - 1) // 2, dim, keepdim)

    def median_of_all(x: torch.Tensor) -> torch.Tensor:
        return of_rank(x.flatten(), (x.numel() - 1) // 2)[0]

    def kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
        return of_rank(x, k - 1, dim, keepdim)

    return {
        aten.median.dim: median,
        aten.median.default: median_of_all,
        aten.kthvalue.default: kthvalue,
    }


def convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """Lowering of a convolution to a library call, with the bias added after it, where it can be fused."""
    from torch._inductor import lowering

    call = lowering.fallback_handler(torch.ops.aten.convolution.default, add_to_fallback_set=False)
    result = call(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    if bias is None:
        return result
    per_channel = [bias.get_size()[0], *[1] * (len(x.get_size()) - 2)]
    added = lowering.lowerings[torch.ops.aten.view.default](bias, per_channel)
    return lowering.lowerings[torch.ops.aten.add.Tensor](result, added)


def fusing_bytes(cat: Callable[..., Any]) -> Callable[..., Any]:
    """The lowering `cat` of concatenations, but fused for bytes too, which it leaves to a library on a CPU."""
    from torch._inductor import lowering

    def lowered(inputs: Any, dim: int = 0) -> Any:
        if all(x.get_dtype() in (torch.int8, torch.uint8) for x in inputs):
            return lowering.pointwise_cat(inputs, dim % len(inputs[0].get_size()))
        return cat(inputs, dim)

    return lowered
