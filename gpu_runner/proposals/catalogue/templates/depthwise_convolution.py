"""Depthwise convolution in two dimensions: every output channel reads one input channel.

Domain: x (B, C, H, W), weight (O, 1, KH, KW) with O a multiple of C, any strides, any stride, padding and dilation;
float32, float16, bfloat16; sums in float32. A program computes BLOCK_P output pixels of one channel of one image;
the filter is unrolled.
Preconditions: weight.shape[1] is 1; KH * KW is small (at most a few dozen taps); B * O programs fit the grid's
second axis together with the pixels on the first.
"""


@triton.jit
def depthwise_convolution_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    # @arguments
    H,
    W,
    OH,
    OW,
    O,
    O_GROUP,
    stride_xb,
    stride_xc,
    stride_xh,
    stride_xw,
    stride_wo,
    stride_wh,
    stride_ww,
    stride_yb,
    stride_yc,
    stride_yh,
    stride_yw,
    KH: tl.constexpr,
    KW: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    blocks = tl.cdiv(OH * OW, BLOCK_P)
    plane = tl.program_id(0) // blocks
    pixels = (tl.program_id(0) % blocks) * BLOCK_P + tl.arange(0, BLOCK_P)
    image = (plane // O).to(tl.int64)
    channels = plane % O
    oh = pixels // OW
    ow = pixels % OW
    inside = pixels < OH * OW

    x_plane = x_ptr + image * stride_xb + (channels // O_GROUP) * stride_xc
    acc = tl.zeros((BLOCK_P,), dtype=tl.float32)
    for kh in tl.static_range(KH):
        for kw in tl.static_range(KW):
            h = oh * STRIDE_H - PAD_H + kh * DILATION_H
            w = ow * STRIDE_W - PAD_W + kw * DILATION_W
            valid = inside & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x = tl.load(x_plane + h * stride_xh + w * stride_xw, mask=valid, other=0.0)
            tap = tl.load(w_ptr + channels * stride_wo + kh * stride_wh + kw * stride_ww)
            acc += x.to(tl.float32) * tap.to(tl.float32)

    # @epilogue
    y_plane = y_ptr + image * stride_yb + channels * stride_yc
    y_ptrs = y_plane + oh * stride_yh + ow * stride_yw
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=inside)


def depthwise_convolution(x, weight, *operands, stride, padding, dilation, groups, out=None):
    """The (B, O, OH, OW) convolution of x (B, C, H, W) with its epilogue; stride, padding, dilation: (h, w)."""
    B, C, H, W = x.shape
    O, _, KH, KW = weight.shape
    OH = (H + 2 * padding[0] - dilation[0] * (KH - 1) - 1) // stride[0] + 1
    OW = (W + 2 * padding[1] - dilation[1] * (KW - 1) - 1) // stride[1] + 1
    if out is None:
        out = torch.empty((B, O, OH, OW), device=x.device, dtype=x.dtype)
    # @operands
    grid = lambda META: (B * O * triton.cdiv(OH * OW, META["BLOCK_P"]),)
    depthwise_convolution_kernel[grid](
        x, weight, out, *operands, H, W, OH, OW, O, O // groups,
        x.stride(0), x.stride(1), x.stride(2), x.stride(3),
        weight.stride(0), weight.stride(2), weight.stride(3),
        out.stride(0), out.stride(1), out.stride(2), out.stride(3),
        KH=KH, KW=KW, STRIDE_H=stride[0], STRIDE_W=stride[1], PAD_H=padding[0], PAD_W=padding[1],
        DILATION_H=dilation[0], DILATION_W=dilation[1],
        BLOCK_P=512, num_warps=4,
    )
    return out
