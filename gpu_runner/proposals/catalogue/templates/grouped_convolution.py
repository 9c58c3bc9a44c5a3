"""Convolution in two dimensions in groups too small for a tile of their own: several side by side, as one product.

Domain: x (B, C, H, W), weight (O, C / groups, KH, KW), any strides, any stride, padding and dilation; at most 8 input and
8 output channels a group; float32, float16, bfloat16; sums in float32. A program computes BLOCK_N pixels of one image
for GROUPS groups. Its weights stand block by block on a diagonal, with zeros around them: tensor cores do them along in
less time than it takes to read a group alone. Along K a tile holds a row of the filter, KW_BLOCK taps of BLOCK_C channels,
so that most of what neighbouring taps read comes out of one load.
Preconditions: x and weight have one dtype; BLOCK_M, BLOCK_C, BLOCK_N and KW_BLOCK are powers of two, the first three at
least 16; BLOCK_C and BLOCK_M hold the channels of GROUPS groups, KW_BLOCK holds KW; an image has less than 2^31 elements.
"""


@triton.jit
def grouped_convolution_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    # @arguments
    H,
    W,
    OH,
    OW,
    C,
    O,
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
    O_GROUP: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    GROUPS: tl.constexpr,
    KW_BLOCK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    tiles = tl.cdiv(OH * OW, BLOCK_N)
    image = (tl.program_id(0) // tiles).to(tl.int64)
    pixels = (tl.program_id(0) % tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    filters = tl.arange(0, BLOCK_M)
    channels = tl.program_id(1) * (GROUPS * O_GROUP) + filters
    oh = pixels // OW
    ow = pixels % OW
    in_group = (filters < GROUPS * O_GROUP) & (channels < O)

    tap = tl.arange(0, KW_BLOCK * BLOCK_C)
    kw = tap // BLOCK_C
    c = tap % BLOCK_C
    in_channels = tl.program_id(1) * (GROUPS * C_GROUP) + c
    in_tap = (c < GROUPS * C_GROUP) & (in_channels < C) & (kw < KW)
    h = oh * STRIDE_H - PAD_H
    w = (ow * STRIDE_W - PAD_W)[None, :] + (kw * DILATION_W)[:, None]
    in_width = in_tap[:, None] & (w >= 0) & (w < W)
    x_places = (in_channels * stride_xc)[:, None] + (h * stride_xh)[None, :] + w * stride_xw
    w_places = (channels * stride_wo)[:, None] + (c % C_GROUP * stride_wc + kw * stride_ww)[None, :]
    # A filter reads the channels of its own group: off the diagonal of blocks the weights are zero.
    same_group = filters[:, None] // O_GROUP == c[None, :] // C_GROUP
    same_group = same_group & in_group[:, None] & in_tap[None, :]

    x_image = x_ptr + image * stride_xb
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for kh in tl.static_range(KH):
        in_height = (h + kh * DILATION_H >= 0) & (h + kh * DILATION_H < H)
        x_row = x_image + kh * DILATION_H * stride_xh
        x = tl.load(x_row + x_places, mask=in_width & in_height[None, :], other=0.0)
        weight = tl.load(w_ptr + kh * stride_wh + w_places, mask=same_group, other=0.0)
        acc = tl.dot(weight, x, acc, input_precision="ieee")

    inside = in_group[:, None] & (pixels < OH * OW)[None, :]
    # @epilogue
    y_pixels = y_ptr + image * stride_yb + oh * stride_yh + ow * stride_yw
    y_ptrs = y_pixels[None, :] + (channels * stride_yc)[:, None]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=inside)


def grouped_convolution(x, weight, *operands, stride, padding, dilation, groups, out=None):
    """The (B, O, OH, OW) convolution of x (B, C, H, W) with its epilogue; stride, padding, dilation: (h, w)."""
    B, C, H, W = x.shape
    O, C_GROUP, KH, KW = weight.shape
    OH = (H + 2 * padding[0] - dilation[0] * (KH - 1) - 1) // stride[0] + 1
    OW = (W + 2 * padding[1] - dilation[1] * (KW - 1) - 1) // stride[1] + 1
    if out is None:
        out = torch.empty((B, O, OH, OW), device=x.device, dtype=x.dtype)
    O_GROUP = O // groups
    # As many groups as fit the smallest side of a product, 16.
    GROUPS = max(1, 16 // max(C_GROUP, O_GROUP))
    # @order
    # @operands
    grid = lambda META: (B * triton.cdiv(OH * OW, META["BLOCK_N"]), triton.cdiv(groups, GROUPS))
    grouped_convolution_kernel[grid](
        x, weight, out, *operands, H, W, OH, OW, C, O,
        x.stride(0), x.stride(1), x.stride(2), x.stride(3),
        weight.stride(0), weight.stride(1), weight.stride(2), weight.stride(3),
        out.stride(0), out.stride(1), out.stride(2), out.stride(3),
        C_GROUP=C_GROUP, O_GROUP=O_GROUP, KH=KH, KW=KW, STRIDE_H=stride[0], STRIDE_W=stride[1],
        PAD_H=padding[0], PAD_W=padding[1], DILATION_H=dilation[0], DILATION_W=dilation[1],
        GROUPS=GROUPS, KW_BLOCK=triton.next_power_of_2(KW),
        BLOCK_M=16, BLOCK_N=128, BLOCK_C=16, num_warps=4,
    )
    return out
