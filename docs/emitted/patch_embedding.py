# Triton kernel for the task patch_embedding, by Kernel Foundry.
# Candidate 19, generation 3, island 0, from tune.
#
# Verdict:     correct
# Verified at: probe size
# Device:      cpu
# Speed:       modelled (computed for the target h200; nothing was timed)
#   2.32 times as fast as PyTorch eager
# Track:       own_kernels
# Precision:   reference
#
# Check it again, with the task's source in task.py:
#   python -m gpu_runner evaluate task.py best.py --track own_kernels --precision reference --target h200

"""patch_embedding: 1 kernel (convolution)."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def conv2d_add_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    bias_ptr,
    positions_ptr,
    stride_positions_b,
    stride_positions_c,
    stride_positions_h,
    stride_positions_w,
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
        acc = tl.dot(x, weight, acc, input_precision="tf32")

    inside = in_image[:, None] & in_group[None, :]
    bias_ptrs = bias_ptr + channels
    bias = tl.load(bias_ptrs, mask=in_group, other=0.0).to(tl.float32)[None, :]
    positions_ptrs = (
        positions_ptr
        + (image * stride_positions_b + oh * stride_positions_h + ow * stride_positions_w)[:, None]
        + (channels * stride_positions_c)[None, :]
    )
    positions = tl.load(positions_ptrs, mask=inside, other=0.0).to(tl.float32)
    acc += bias
    acc = acc + positions
    y_patches = y_ptr + image * stride_yb + oh * stride_yh + ow * stride_yw
    y_ptrs = y_patches[:, None] + (channels * stride_yc)[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=inside)


def conv2d_add(x, weight, bias, positions, memory_format=torch.contiguous_format, out=None):
    """Convolution of x (batch, channels, ...), then add in registers."""
    B, C, H, W = x.shape
    O, _, KH, KW = weight.shape
    OH, OW, K = H // KH, W // KW, C * KH * KW
    weight = weight.reshape(O, K)
    if out is None:
        out = torch.empty((B, O, OH, OW), device=x.device, memory_format=memory_format, dtype=x.dtype)
    positions = positions.expand(B, O, OH, OW)
    grid = lambda META: (triton.cdiv(B * OH * OW, META["BLOCK_M"]) * triton.cdiv(O, META["BLOCK_N"]),)
    conv2d_add_kernel[grid](
        x, weight, out, bias, positions, positions.stride(0), positions.stride(1), positions.stride(2), positions.stride(3), B, OH, OW, O, K,
        x.stride(0), x.stride(1), x.stride(2), x.stride(3), weight.stride(0), weight.stride(1),
        out.stride(0), out.stride(1), out.stride(2), out.stride(3),
        KH=KH, KW=KW, BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, num_warps=8, num_stages=3,
    )
    return out


class ModelNew(nn.Module):
    def __init__(self, channels, n_features, patch_size, n_patches):
        super().__init__()
        self.project = nn.Conv2d(
            channels, n_features, patch_size, stride=patch_size, dtype=torch.bfloat16
        )
        self.positions = nn.Parameter(0.5 * torch.randn(n_patches, n_features).bfloat16())

    def forward(self, images):
        return conv2d_add(
            images,
            self.project.weight,
            self.project.bias,
            self.positions.mT.unflatten(-1, (images.shape[2] // self.project.weight.shape[2], -1)),
            memory_format=torch.channels_last,
        ).flatten(2).transpose(1, 2)
