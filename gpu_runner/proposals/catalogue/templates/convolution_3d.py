"""Convolution in up to three dimensions, also transposed, by implicit GEMM: voxels x filter taps times taps x channels.

Domain: x (B, C, D, H, W); weight (O, C / groups, KD, KH, KW), or (C, O / groups, KD, KH, KW) when TRANSPOSED; any
strides, any stride, padding, dilation and groups; float32, float16, bfloat16; sums in float32. A tile is BLOCK_M output
voxels of BLOCK_N output channels of one group. Fewer dimensions are dimensions of size 1.
Preconditions: x and weight have one dtype; BLOCK_M, BLOCK_N and BLOCK_K are powers of two, at least 16. A transposed
convolution of stride s skips no taps, so of its products only one in s per dimension is not with zero.
"""


@triton.jit
def convolution_3d_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    # @arguments
    B,
    D,
    H,
    W,
    OD,
    OH,
    OW,
    C_GROUP,
    O_GROUP,
    stride_xb,
    stride_xc,
    stride_xd,
    stride_xh,
    stride_xw,
    stride_wo,
    stride_wc,
    stride_wd,
    stride_wh,
    stride_ww,
    stride_yb,
    stride_yc,
    stride_yd,
    stride_yh,
    stride_yw,
    KD: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    STRIDE_D: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PAD_D: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_D: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    group = tl.program_id(2)
    voxels = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    filters = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    image = voxels // (OD * OH * OW)
    od = ((voxels // (OH * OW)) % OD).to(tl.int32)
    oh = ((voxels // OW) % OH).to(tl.int32)
    ow = (voxels % OW).to(tl.int32)
    in_image = image < B
    in_group = filters < O_GROUP
    channels = group * O_GROUP + filters

    x_base = x_ptr + image * stride_xb + (group * C_GROUP) * stride_xc
    if TRANSPOSED:
        w_base = w_ptr + filters * stride_wo + (group * C_GROUP) * stride_wc
    else:
        w_base = w_ptr + channels * stride_wo
    taps = C_GROUP * KD * KH * KW
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, taps, BLOCK_K):
        tap = k + tl.arange(0, BLOCK_K)
        c = tap // (KD * KH * KW)
        kd = (tap // (KH * KW)) % KD
        kh = (tap // KW) % KH
        kw = tap % KW
        valid = in_image[:, None] & (tap[None, :] < taps)
        if TRANSPOSED:
            d = od[:, None] + PAD_D - kd[None, :] * DILATION_D
            h = oh[:, None] + PAD_H - kh[None, :] * DILATION_H
            w = ow[:, None] + PAD_W - kw[None, :] * DILATION_W
            # Only every STRIDE-th place of the output has an input behind it.
            valid = valid & (d >= 0) & (h >= 0) & (w >= 0)
            valid = valid & (d % STRIDE_D == 0) & (h % STRIDE_H == 0) & (w % STRIDE_W == 0)
            d = d // STRIDE_D
            h = h // STRIDE_H
            w = w // STRIDE_W
        else:
            d = od[:, None] * STRIDE_D - PAD_D + kd[None, :] * DILATION_D
            h = oh[:, None] * STRIDE_H - PAD_H + kh[None, :] * DILATION_H
            w = ow[:, None] * STRIDE_W - PAD_W + kw[None, :] * DILATION_W
            valid = valid & (d >= 0) & (h >= 0) & (w >= 0)
        valid = valid & (d < D) & (h < H) & (w < W)
        places = c[None, :] * stride_xc + d * stride_xd + h * stride_xh + w * stride_xw
        x = tl.load(x_base[:, None] + places, mask=valid, other=0.0)
        weight = tl.load(
            w_base[None, :] + (c * stride_wc + kd * stride_wd + kh * stride_wh + kw * stride_ww)[:, None],
            mask=(tap[:, None] < taps) & in_group[None, :],
            other=0.0,
        )
        acc = tl.dot(x, weight, acc, input_precision="ieee")

    inside = in_image[:, None] & in_group[None, :]
    # @epilogue
    y_voxels = y_ptr + image * stride_yb + od * stride_yd + oh * stride_yh + ow * stride_yw
    y_ptrs = y_voxels[:, None] + (channels * stride_yc)[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=inside)


def convolution_3d(
    x, weight, *operands, stride, padding, dilation, groups, transposed=False, output_padding=(0, 0, 0), out=None
):
    """The (B, O, OD, OH, OW) convolution of x (B, C, D, H, W); stride, padding, dilation: (d, h, w)."""
    B, C, D, H, W = x.shape
    KD, KH, KW = weight.shape[2:]
    if transposed:
        O = weight.shape[1] * groups
        OD, OH, OW = (
            (x.shape[i + 2] - 1) * stride[i] - 2 * padding[i]
            + dilation[i] * (weight.shape[i + 2] - 1) + output_padding[i] + 1
            for i in range(3)
        )
        stride_wc, stride_wo = weight.stride(0), weight.stride(1)
    else:
        O = weight.shape[0]
        OD, OH, OW = (
            (x.shape[i + 2] + 2 * padding[i] - dilation[i] * (weight.shape[i + 2] - 1) - 1) // stride[i] + 1
            for i in range(3)
        )
        stride_wo, stride_wc = weight.stride(0), weight.stride(1)
    if out is None:
        out = torch.empty((B, O, OD, OH, OW), device=x.device, dtype=x.dtype)
    O_GROUP = O // groups
    # @operands
    grid = lambda META: (
        triton.cdiv(B * OD * OH * OW, META["BLOCK_M"]),
        triton.cdiv(O_GROUP, META["BLOCK_N"]),
        groups,
    )
    convolution_3d_kernel[grid](
        x, weight, out, *operands, B, D, H, W, OD, OH, OW, C // groups, O_GROUP,
        x.stride(0), x.stride(1), x.stride(2), x.stride(3), x.stride(4),
        stride_wo, stride_wc, weight.stride(2), weight.stride(3), weight.stride(4),
        out.stride(0), out.stride(1), out.stride(2), out.stride(3), out.stride(4),
        KD=KD, KH=KH, KW=KW, STRIDE_D=stride[0], STRIDE_H=stride[1], STRIDE_W=stride[2],
        PAD_D=padding[0], PAD_H=padding[1], PAD_W=padding[2],
        DILATION_D=dilation[0], DILATION_H=dilation[1], DILATION_W=dilation[2], TRANSPOSED=transposed,
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4, num_stages=3,
    )
    return out
