# Triton kernel for the task add_rms_norm, by Kernel Foundry.
# Candidate 10, generation 2, island 0, from tune.
#
# Verdict:     correct
# Verified at: probe size
# Device:      cpu
# Speed:       modelled (computed for the target h200; nothing was timed)
#   5.39 times as fast as PyTorch eager
# Track:       own_kernels
# Precision:   reference
#
# Check it again, with the task's source in task.py:
#   python -m gpu_runner evaluate task.py best.py --track own_kernels --precision reference --target h200

"""The compiler's fusion as plain Triton."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_mean_rsqrt_mul_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    output_ptr,
    output_2_ptr,
    n_tokens,
    n_features,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Fused: add, to, square, mean, rsqrt, mul."""
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    row_mask = rows < n_tokens
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    col_mask = cols < n_features
    x = tl.load(
        x_ptr + (cols + n_features * rows), mask=col_mask & row_mask, other=0.0
    ).to(tl.float32)
    residual = tl.load(
        residual_ptr + (cols + n_features * rows), mask=col_mask & row_mask, other=0.0
    ).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    output = x + residual
    total = tl.sum(tl.where(col_mask, output * output, 0), 1)[:, None]
    output_2 = output * tl.rsqrt(total / n_features + 1e-06) * weight
    tl.store(output_ptr + (cols + n_features * rows), output, mask=col_mask & row_mask)
    tl.store(output_2_ptr + (cols + n_features * rows), output_2, mask=col_mask & row_mask)


class ModelNew(nn.Module):
    def __init__(self, n_features, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(n_features, dtype=torch.bfloat16))

    def forward(self, x, residual):
        n_features = self.weight.shape[0]
        n_tokens = x.shape[0]
        output = torch.empty_like(x)
        output_2 = torch.empty_like(x)
        grid = lambda META: (triton.cdiv(n_tokens, META["BLOCK_ROWS"]),)
        add_mean_rsqrt_mul_kernel[grid](
            x,
            residual,
            self.weight,
            output,
            output_2,
            n_tokens,
            n_features,
            BLOCK_ROWS=2,
            BLOCK_COLS=triton.next_power_of_2(n_features),
            num_warps=4,
        )
        return (output_2, output)
