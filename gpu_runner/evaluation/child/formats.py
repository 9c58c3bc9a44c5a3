"""Numeric formats that numpy lacks: bfloat16, TF32 and eight-bit floats, as the hardware rounds them."""

from typing import Any

import numpy as np
import torch
import triton.language as tl

from gpu_runner.evaluation.child.traced_memory import unseen_by_torch


def bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def float32_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(values.shape)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, np.uint32(0x7FC0), rounded).astype(np.uint16)


def float32_to_tf32(values: np.ndarray) -> np.ndarray:
    """Keep ten bits of the mantissa, rounded to nearest, ties away from zero, as the hardware's conversion does."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(values.shape)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def is_bfloat16(handle: Any) -> bool:
    return handle.dtype.scalar is tl.bfloat16 and handle.data.dtype == np.uint16


def widened(handle: Any) -> np.ndarray:
    return bfloat16_to_float32(handle.data) if is_bfloat16(handle) else handle.data


EIGHT_BITS = {
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}


def dot_operand(handle: Any, precision: str) -> np.ndarray:
    """A dot operand as an array that numpy multiplies: float32, float64 or an integer."""
    if is_bfloat16(handle):
        return bfloat16_to_float32(handle.data)
    kind = handle.dtype.scalar
    if kind.name in EIGHT_BITS:
        with unseen_by_torch():
            raw = torch.from_numpy(np.ascontiguousarray(handle.data))
            return raw.view(EIGHT_BITS[kind.name]).to(torch.float32).numpy()
    if handle.data.dtype == np.float16:
        return handle.data.astype(np.float32)
    if handle.data.dtype == np.float32 and precision == "tf32":
        return float32_to_tf32(handle.data)
    return handle.data


def numeric_path(kind: Any, precision: str) -> str:
    if kind.is_fp32():
        return precision
    if kind.name.startswith("fp8"):
        return "fp8"
    return {"int8": "int8", "uint8": "int8"}.get(kind.name, kind.name)
