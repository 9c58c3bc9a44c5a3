"""Functions of torch that fix sizes at tracing or lowering, written so that sizes stay symbols.

`group_norm` and attention as C++ compositions ask for plain integers; the lowering of convolutions asks for constant
channels. Each is replaced by the same mathematics on symbolic sizes. Average pooling says its constant divisor, which
the compiler would otherwise compute for every output.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

_avg_pool2d = F.avg_pool2d


@contextmanager
def symbolic_functions() -> Iterator[None]:
    with ExitStack() as stack:
        for function in (group_norm, scaled_dot_product_attention, avg_pool2d):
            stack.enter_context(patch.object(F, function.__name__, function))
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
