"""Convolution in two dimensions by implicit GEMM: pixels x filter taps times filter taps x channels.

Domain: x (B, C, H, W), weight (O, C / groups, KH, KW), any strides, any stride, padding, dilation and groups;
float32, float16, bfloat16; sums in float32. A tile is BLOCK_M output pixels of BLOCK_N output channels of one group.
Preconditions: x and weight have one dtype; BLOCK_M, BLOCK_N and BLOCK_K are powers of two, at least 16. With few
channels a group nearly all of a tile is padding: use grouped_convolution there, with one depthwise_convolution.
"""


@triton.jit
def convolution_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    # @arguments
    B,
    H,
    W,
    OH,
    OW,
    O_GROUP,
    stride_xb,
    stride_xc,
    stride_xh,
    stride_xw,
    stride_wo,
    stride_wc,
    stride_wh,
    stride_ww,
    stride_yb,
    stride_yc,
    stride_yh,
    stride_yw,
    C_GROUP: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    group = tl.program_id(2)
    pixels = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    filters = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    image = pixels // (OH * OW)
    oh = ((pixels // OW) % OH).to(tl.int32)
    ow = (pixels % OW).to(tl.int32)
    in_image = image < B
    in_group = filters < O_GROUP
    channels = group * O_GROUP + filters

    x_base = x_ptr + image * stride_xb + (group * C_GROUP) * stride_xc
    w_base = w_ptr + channels * stride_wo
    taps = C_GROUP * KH * KW
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, taps, BLOCK_K):
        tap = k + tl.arange(0, BLOCK_K)
        # Channels run fastest, so that with channels last a row of the tile is contiguous.
        c = tap % C_GROUP
        kw = (tap // C_GROUP) % KW
        kh = tap // (C_GROUP * KW)
        h = oh[:, None] * STRIDE_H - PAD_H + kh[None, :] * DILATION_H
        w = ow[:, None] * STRIDE_W - PAD_W + kw[None, :] * DILATION_W
        valid = (h >= 0) & (h < H) & (w >= 0) & (w < W)
        valid = valid & in_image[:, None] & (tap[None, :] < taps)
        x = tl.load(
            x_base[:, None] + c[None, :] * stride_xc + h * stride_xh + w * stride_xw,
            mask=valid,
            other=0.0,
        )
        weight = tl.load(
            w_base[None, :] + (c * stride_wc + kh * stride_wh + kw * stride_ww)[:, None],
            mask=(tap[:, None] < taps) & in_group[None, :],
            other=0.0,
        )
        acc = tl.dot(x, weight, acc, input_precision="ieee")

    inside = in_image[:, None] & in_group[None, :]
    # @epilogue
    y_pixels = y_ptr + image * stride_yb + oh * stride_yh + ow * stride_yw
    y_ptrs = y_pixels[:, None] + (channels * stride_yc)[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=inside)


def convolution(x, weight, *operands, stride, padding, dilation, groups, out=None):
    """The (B, O, OH, OW) convolution of x (B, C, H, W) with its epilogue; stride, padding, dilation: (h, w)."""
    B, C, H, W = x.shape
    O, C_GROUP, KH, KW = weight.shape
    OH = (H + 2 * padding[0] - dilation[0] * (KH - 1) - 1) // stride[0] + 1
    OW = (W + 2 * padding[1] - dilation[1] * (KW - 1) - 1) // stride[1] + 1
    if out is None:
        out = torch.empty((B, O, OH, OW), device=x.device, dtype=x.dtype)
    O_GROUP = O // groups
    # @order
    # @operands
    grid = lambda META: (
        triton.cdiv(B * OH * OW, META["BLOCK_M"]),
        triton.cdiv(O_GROUP, META["BLOCK_N"]),
        groups,
    )
    convolution_kernel[grid](
        x, weight, out, *operands, B, H, W, OH, OW, O_GROUP,
        x.stride(0), x.stride(1), x.stride(2), x.stride(3),
        weight.stride(0), weight.stride(1), weight.stride(2), weight.stride(3),
        out.stride(0), out.stride(1), out.stride(2), out.stride(3),
        C_GROUP=C_GROUP, KH=KH, KW=KW, STRIDE_H=stride[0], STRIDE_W=stride[1], PAD_H=padding[0], PAD_W=padding[1],
        DILATION_H=dilation[0], DILATION_W=dilation[1],
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4, num_stages=3,
    )
    return out
