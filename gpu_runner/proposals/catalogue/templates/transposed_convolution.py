"""Transposed convolution in two dimensions, by output phase: no product with an inserted zero.

Domain: x (B, C, H, W), weight (C, O / groups, KH, KW), any strides, any stride, padding and groups, no dilation;
float32, float16, bfloat16; sums in float32. Outputs STRIDE apart read the same taps, and are a phase: of a 3 x 3 filter
with a stride of 2 the four phases have 1, 2, 2 and 4 taps. A tile is BLOCK_M output channels of
one group at BLOCK_N places of one phase; with the places last, neighbouring lanes store along a row of the image.
Preconditions: x and weight have one dtype; BLOCK_M, BLOCK_N and BLOCK_K are powers of two, at least 16.
"""


@triton.jit
def transposed_convolution_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    # @arguments
    B,
    H,
    W,
    OH,
    OW,
    C_GROUP,
    O_GROUP,
    stride_xb,
    stride_xc,
    stride_xh,
    stride_xw,
    stride_wc,
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # Neighbouring programs make the phases of the same places, which read the same pixels.
    phase = tl.program_id(0) % (STRIDE_H * STRIDE_W)
    places = (tl.program_id(0) // (STRIDE_H * STRIDE_W)).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    group = tl.program_id(2)
    filters = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows, cols = tl.cdiv(OH, STRIDE_H), tl.cdiv(OW, STRIDE_W)
    image = places // (rows * cols)
    oh = ((places // cols) % rows).to(tl.int32) * STRIDE_H + phase // STRIDE_W
    ow = (places % cols).to(tl.int32) * STRIDE_W + phase % STRIDE_W
    in_image = (image < B) & (oh < OH) & (ow < OW)
    in_group = filters < O_GROUP
    channels = group * O_GROUP + filters

    # Output o reads input (o + PAD - k) / STRIDE: a phase has every STRIDE-th tap k from its first on.
    first_h = (phase // STRIDE_W + PAD_H) % STRIDE_H
    first_w = (phase % STRIDE_W + PAD_W) % STRIDE_W
    taps_h = tl.cdiv(KH - first_h, STRIDE_H)
    taps_w = tl.cdiv(KW - first_w, STRIDE_W)
    last_h = (oh + PAD_H - first_h) // STRIDE_H
    last_w = (ow + PAD_W - first_w) // STRIDE_W
    x_base = x_ptr + image * stride_xb + (group * C_GROUP) * stride_xc
    w_base = w_ptr + filters * stride_wo + (group * C_GROUP) * stride_wc
    blocks = tl.cdiv(C_GROUP, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, taps_h * taps_w * blocks):
        tap = step // blocks
        c = (step % blocks) * BLOCK_K + tl.arange(0, BLOCK_K)
        h = last_h - tap // taps_w
        w = last_w - tap % taps_w
        kh = first_h + (tap // taps_w) * STRIDE_H
        kw = first_w + (tap % taps_w) * STRIDE_W
        valid = in_image & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        weight = tl.load(
            (w_base + kh * stride_wh + kw * stride_ww)[:, None] + (c * stride_wc)[None, :],
            mask=in_group[:, None] & (c[None, :] < C_GROUP),
            other=0.0,
        )
        x = tl.load(
            (x_base + h * stride_xh + w * stride_xw)[None, :] + (c * stride_xc)[:, None],
            mask=valid[None, :] & (c[:, None] < C_GROUP),
            other=0.0,
        )
        acc = tl.dot(weight, x, acc, input_precision="ieee")

    inside = in_group[:, None] & in_image[None, :]
    # @epilogue
    y_places = y_ptr + image * stride_yb + oh * stride_yh + ow * stride_yw
    y_ptrs = y_places[None, :] + (channels * stride_yc)[:, None]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=inside)


def transposed_convolution(x, weight, *operands, stride, padding, output_padding, groups, out=None):
    """The (B, O, OH, OW) transposed convolution of x (B, C, H, W) with its epilogue; stride, padding: (h, w)."""
    B, C, H, W = x.shape
    _, O_GROUP, KH, KW = weight.shape
    O = O_GROUP * groups
    OH = (H - 1) * stride[0] - 2 * padding[0] + KH + output_padding[0]
    OW = (W - 1) * stride[1] - 2 * padding[1] + KW + output_padding[1]
    if out is None:
        out = torch.empty((B, O, OH, OW), device=x.device, dtype=x.dtype)
    # @order
    # @operands
    places = B * triton.cdiv(OH, stride[0]) * triton.cdiv(OW, stride[1])
    grid = lambda META: (
        triton.cdiv(places, META["BLOCK_N"]) * stride[0] * stride[1],
        triton.cdiv(O_GROUP, META["BLOCK_M"]),
        groups,
    )
    transposed_convolution_kernel[grid](
        x, weight, out, *operands, B, H, W, OH, OW, C // groups, O_GROUP,
        x.stride(0), x.stride(1), x.stride(2), x.stride(3),
        weight.stride(0), weight.stride(1), weight.stride(2), weight.stride(3),
        out.stride(0), out.stride(1), out.stride(2), out.stride(3),
        KH=KH, KW=KW, STRIDE_H=stride[0], STRIDE_W=stride[1], PAD_H=padding[0], PAD_W=padding[1],
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4, num_stages=3,
    )
    return out
