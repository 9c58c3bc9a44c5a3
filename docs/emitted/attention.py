# Triton kernel for the task attention, by Kernel Foundry.
# Candidate 24, generation 3, island 1, from tune.
#
# Verdict:     correct
# Verified at: probe size
# Device:      cpu
# Speed:       modelled (computed for the target h200; nothing was timed)
#   2.48 times as fast as PyTorch eager
# Track:       own_kernels
# Precision:   reference
#
# Check it again, with the task's source in task.py:
#   python -m gpu_runner evaluate task.py best.py --track own_kernels --precision reference --target h200

"""attention: 1 kernel (attention), float32 products as three TF32 ones."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    y_ptr,
    scale,
    H,
    G,
    T,
    S,
    D,
    E,
    stride_qb,
    stride_qh,
    stride_qt,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_ks,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vs,
    stride_ve,
    stride_yb,
    stride_yh,
    stride_yt,
    stride_ye,
    BLOCK_D: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    tile = tl.program_id(0)
    batch = (tl.program_id(1) // H).to(tl.int64)
    head = (tl.program_id(1) % H).to(tl.int64)
    queries = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, BLOCK_D)
    features = tl.arange(0, BLOCK_E)
    group = head // (H // G)
    q_base = q_ptr + batch * stride_qb + head * stride_qh
    k_base = k_ptr + batch * stride_kb + group * stride_kh
    v_base = v_ptr + batch * stride_vb + group * stride_vh

    q_mask = (queries[:, None] < T) & (depth[None, :] < D)
    q = tl.load(q_base + queries[:, None] * stride_qt + depth[None, :] * stride_qd, mask=q_mask, other=0.0)
    # Powers of two instead of e: the hardware has them.
    q_scale = scale * 1.4426950408889634
    largest = tl.full((BLOCK_M,), -1.0e30, dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_E), dtype=tl.float32)
    last = S
    whole = S // BLOCK_N * BLOCK_N
    # First the tiles of keys that all queries see, without a comparison of places; then the rest.
    for compares in tl.static_range(2):
        first = whole if compares else 0
        end = last if compares else whole
        for start in range(first, end, BLOCK_N):
            keys = start + tl.arange(0, BLOCK_N)
            k_mask = depth[:, None] < D
            v_mask = features[None, :] < E
            if compares:
                k_mask = k_mask & (keys[None, :] < S)
                v_mask = v_mask & (keys[:, None] < S)
            k = tl.load(
                k_base + depth[:, None] * stride_kd + keys[None, :] * stride_ks, mask=k_mask, other=0.0
            )
            scores = tl.dot(q, k, input_precision="tf32x3") * q_scale
            if compares:
                seen = keys[None, :] < S
                scores = tl.where(seen, scores, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, axis=1))
            weights = tl.exp2(scores - new_largest[:, None])
            shrink = tl.exp2(largest - new_largest)
            total = total * shrink + tl.sum(weights, axis=1)
            v = tl.load(
                v_base + keys[:, None] * stride_vs + features[None, :] * stride_ve, mask=v_mask, other=0.0
            )
            acc = acc * shrink[:, None]
            acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="tf32x3")
            largest = new_largest

    acc = acc / total[:, None]
    y_base = y_ptr + batch * stride_yb + head * stride_yh
    y_mask = (queries[:, None] < T) & (features[None, :] < E)
    y_ptrs = y_base + queries[:, None] * stride_yt + features[None, :] * stride_ye
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=y_mask)


def attention(q, k, v, scale):
    """softmax(scale * q @ k^T) @ v per batch and head, for q (B, H, T, D), k (B, G, S, D) and v (B, G, S, E)."""
    B, H, T, D = q.shape
    G, S, E = v.shape[1:]
    # Across the order in which this precision reads its operands a product takes two to four times as long.
    v = v if v.stride(2) == 1 else v.mT.contiguous().mT
    # Heads inside tokens, so that merging the heads afterwards is a view.
    y = torch.empty((B, T, H, E), device=q.device, dtype=q.dtype).transpose(1, 2)
    grid = lambda META: (triton.cdiv(T, META["BLOCK_M"]), B * H)
    attention_kernel[grid](
        q, k, v, y, scale, H, G, T, S, D, E,
        q.stride(0), q.stride(1), q.stride(2), q.stride(3), k.stride(0), k.stride(1), k.stride(2), k.stride(3),
        v.stride(0), v.stride(1), v.stride(2), v.stride(3), y.stride(0), y.stride(1), y.stride(2), y.stride(3),
        BLOCK_D=max(16, triton.next_power_of_2(D)), BLOCK_E=max(16, triton.next_power_of_2(E)),
        BLOCK_M=256, BLOCK_N=64, num_warps=16, num_stages=3,
    )
    return y


class ModelNew(nn.Module):
    def __init__(self, head_dim):
        super().__init__()
        self.scale = head_dim**-0.5

    def forward(self, q, k, v):
        return attention(q, k, v, self.scale)
