"""Convolution in two dimensions whose windows tile the image: the product of the patches and the filters.

Domain: x (B, C, H, W), weight (O, C, KH, KW); a stride of KH and KW, no padding, no dilation, one group; any strides of
x; float32, float16, bfloat16; sums in float32. No patch is copied: along K a tile follows a window's rows, whose KW
pixels lie side by side. Neighbouring programs share their patches.
Preconditions: x and weight have one dtype; BLOCK_M, BLOCK_N and BLOCK_K are powers of two, at least 16.
"""


@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def patch_convolution_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    # @arguments
    B,
    OH,
    OW,
    O,
    K,
    stride_xb,
    stride_xc,
    stride_xh,
    stride_xw,
    stride_wo,
    stride_wk,
    stride_yb,
    stride_yc,
    stride_yh,
    stride_yw,
    KH: tl.constexpr,
    KW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    tiles_n = tl.cdiv(O, BLOCK_N)
    patches = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    channels = (tl.program_id(0) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    image = patches // (OH * OW)
    oh = ((patches // OW) % OH).to(tl.int32)
    ow = (patches % OW).to(tl.int32)
    in_image = image < B
    in_group = channels < O

    # What lies beyond the end is read from the start instead and never stored, so that no load needs a mask for it.
    x_rows = x_ptr + tl.where(in_image, image, 0) * stride_xb + oh * KH * stride_xh + ow * KW * stride_xw
    w_cols = w_ptr + tl.where(in_group, channels, 0) * stride_wo
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        tap = k + tl.arange(0, BLOCK_K)
        c = tap // (KH * KW)
        kh = (tap // KW) % KH
        kw = tap % KW
        x_ptrs = x_rows[:, None] + (c * stride_xc + kh * stride_xh + kw * stride_xw)[None, :]
        w_ptrs = w_cols[None, :] + (tap * stride_wk)[:, None]
        if EVEN_K:
            x = tl.load(x_ptrs)
            weight = tl.load(w_ptrs)
        else:
            x = tl.load(x_ptrs, mask=tap[None, :] < K, other=0.0)
            weight = tl.load(w_ptrs, mask=tap[:, None] < K, other=0.0)
        acc = tl.dot(x, weight, acc, input_precision="ieee")

    inside = in_image[:, None] & in_group[None, :]
    # @epilogue
    y_patches = y_ptr + image * stride_yb + oh * stride_yh + ow * stride_yw
    y_ptrs = y_patches[:, None] + (channels * stride_yc)[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=inside)


def patch_convolution(x, weight, *operands, memory_format=torch.contiguous_format, out=None):
    """The (B, O, OH, OW) convolution of x (B, C, H, W) with its epilogue, as far apart as its windows are large."""
    B, C, H, W = x.shape
    O, _, KH, KW = weight.shape
    OH, OW, K = H // KH, W // KW, C * KH * KW
    weight = weight.reshape(O, K)
    if out is None:
        out = torch.empty((B, O, OH, OW), device=x.device, memory_format=memory_format, dtype=x.dtype)
    # @order
    # @operands
    grid = lambda META: (triton.cdiv(B * OH * OW, META["BLOCK_M"]) * triton.cdiv(O, META["BLOCK_N"]),)
    patch_convolution_kernel[grid](
        x, weight, out, *operands, B, OH, OW, O, K,
        x.stride(0), x.stride(1), x.stride(2), x.stride(3), weight.stride(0), weight.stride(1),
        out.stride(0), out.stride(1), out.stride(2), out.stride(3),
        KH=KH, KW=KW, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4, num_stages=3,
    )
    return out
