"""First tile sizes for the catalogue's launches; tuning moves on from them.

The choice follows the arithmetic unit: tensor cores want large tiles and deep pipelines, while float32 products under
`ieee` run on the ordinary units, where registers are what runs out first.
"""

from collections.abc import Sequence

_WIDTH = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}

_ENOUGH_TILES = 256
"""Of 128 by 256, so that even a large GPU is busy for two waves; a wide tile reads less, and a long sum hides its start."""


def _power_of_two(size: int, low: int, high: int) -> int:
    """The smallest power of two that covers `size`, kept between `low` and `high`."""
    return min(high, max(low, 1 << max(0, size - 1).bit_length()))


def gemm_launch(m: int, n: int, k: int, dtype: str, precision: str) -> dict[str, int]:
    """Launch parameters of the gemm and batched_gemm templates for one size."""
    scalar_units = _WIDTH.get(dtype, 4) >= 4 and precision == "ieee"
    largest = 64 if scalar_units else 128
    block_m = _power_of_two(m, 16, largest)
    block_n = _power_of_two(n, 16, largest)
    if not scalar_units and k >= 512 and (m // 128) * (n // 256) >= _ENOUGH_TILES:
        block_n = 256
    block_k = _power_of_two(k, 16, 32 if _WIDTH.get(dtype, 4) >= 4 else 64)
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "GROUP_M": 8,
        "num_warps": 8 if block_m * block_n >= 128 * 128 else 4,
        "num_stages": 3,
    }


def gemm_template(launch: dict[str, int], dtype: str) -> str:
    """The template of a product that is launched so: programs that stay walk over many wide tiles of 16-bit numbers."""
    return "persistent_gemm" if launch["BLOCK_N"] >= 256 and _WIDTH.get(dtype) == 2 else "gemm"


def gated_launch(m: int, n: int, k: int, dtype: str, precision: str) -> dict[str, int]:
    """Launch parameters of the gated_gemm template: two tiles of sums share a program's registers."""
    launch = gemm_launch(m, n, k, dtype, precision)
    return {**launch, "BLOCK_N": min(128, launch["BLOCK_N"])}


def convolution_template(
    weight: Sequence[int],
    *,
    stride: Sequence[float],
    padding: Sequence[float],
    dilation: Sequence[float],
    groups: int,
    transposed: bool,
) -> str:
    """The template of a convolution in one to three dimensions.

    Args:
        weight: its shape, as torch keeps it: filters and channels of a group first, or the other way round if `transposed`.
    """
    outer, inner, *taps = weight
    if len(taps) == 3 or (transposed and any(d != 1 for d in dilation)):
        return "convolution_3d"
    if transposed:
        return "transposed_convolution"
    if inner == 1 and groups > 1:
        return "depthwise_convolution"
    if groups > 1 and max(outer // groups, inner) <= 8:
        return "grouped_convolution"
    apart = list(stride) == taps and not any(padding) and all(d == 1 for d in dilation)
    return "patch_convolution" if apart and groups == 1 and taps[-1] > 1 else "convolution"


def convolution_launch(
    template: str, pixels: int, filters: int, taps: int, dtype: str, precision: str
) -> dict[str, int]:
    """Launch parameters of a convolution template.

    Args:
        pixels: of all images.
        filters: of one group.
        taps: of one filter, over its channels.
    """
    if template in ("depthwise_convolution", "grouped_convolution"):
        return {}
    if template == "transposed_convolution":  # whose tiles have the pixels last
        pixels, filters = filters, pixels
    launch = gemm_launch(pixels, filters, taps, dtype, precision)
    del launch["GROUP_M"]
    return {**launch, "BLOCK_N": min(128, launch["BLOCK_N"])}


def attention_launch(features: int, dtype: str, precision: str) -> dict[str, int]:
    """Launch parameters of the attention template for the larger of a head's two depths.

    Scores and weights stay in registers beside the output, so exact float32 has the smaller tile.
    """
    scalar_units = _WIDTH.get(dtype, 4) >= 4 and precision == "ieee"
    deep = features > 64
    return {
        "BLOCK_M": 64 if scalar_units or deep else 128,
        "BLOCK_N": 32 if scalar_units or deep else 64,
        "num_warps": 8,
        "num_stages": 2 if _WIDTH.get(dtype, 4) >= 4 or deep else 3,
    }
