"""The GPUs that modelled speed can be for: what their data sheets state, in SI units, and what is reached of it.

Peak rates are dense (no sparsity). `copy_fraction` and `dot_fraction` are the shares of bandwidth and of tensor-core
peak that a large copy and a large library matrix product reach; those of the H200 were measured (4.3 TB/s, 788 TFLOP/s),
the others are taken to be alike.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Target:
    """One GPU model. Rates are per second, sizes in bytes, `arch` as Triton names it (80, 90, "gfx942")."""

    name: str
    title: str
    backend: str  # "cuda" or "hip"
    arch: int | str
    warp_size: int
    sms: int
    clock_hz: float
    bandwidth: float
    l2_bytes: int
    l2_bandwidth: float
    shared_per_sm: int
    shared_per_block: int
    registers_per_sm: int
    warps_per_sm: int
    blocks_per_sm: int
    threads_per_block: int
    memory_bytes: int
    fp32: float  # multiply-adds on the ordinary units, counted as two operations
    fp64: float
    special: float  # exp, log, sin, rsqrt and the like
    dot: dict[
        str, float
    ]  # tensor-core peak by operand: "tf32", "fp16", "bf16", "fp8", "int8", "fp64"
    launch_us: float  # device-side gap between dependent kernels
    copy_fraction: float = 0.90
    dot_fraction: float = 0.80

    @property
    def capability(self) -> tuple[int, int]:
        """(major, minor); AMD's gfx942 answers (9, 4) as PyTorch does there."""
        if isinstance(self.arch, int):
            return divmod(self.arch, 10)
        return 9, 4


def _cuda(**values: object) -> Target:
    common: dict[str, object] = {
        "backend": "cuda",
        "warp_size": 32,
        "registers_per_sm": 65_536,
        "warps_per_sm": 64,
        "blocks_per_sm": 32,
        "threads_per_block": 1024,
        "launch_us": 3.0,
    }
    return Target(**{**common, **values})  # type: ignore[arg-type]


_HOPPER_DOT: Final = {
    "tf32": 494.7e12,
    "fp16": 989.4e12,
    "bf16": 989.4e12,
    "fp8": 1978.9e12,
    "int8": 1978.9e12,
    "fp64": 66.9e12,
}

_HOPPER: Final[dict[str, object]] = {
    "arch": 90,
    "sms": 132,
    "clock_hz": 1.83e9,
    "l2_bytes": 60 << 20,
    "l2_bandwidth": 13.0e12,
    "shared_per_sm": 228 << 10,
    "shared_per_block": 227 << 10,
    "fp32": 66.9e12,
    "fp64": 33.5e12,
    "special": 132 * 16 * 1.83e9,
    "dot": _HOPPER_DOT,
}

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        _cuda(
            name="a100",
            title="NVIDIA A100 80GB",
            arch=80,
            sms=108,
            clock_hz=1.41e9,
            bandwidth=2.039e12,
            l2_bytes=40 << 20,
            l2_bandwidth=7.0e12,
            shared_per_sm=164 << 10,
            shared_per_block=163 << 10,
            memory_bytes=80 << 30,
            fp32=19.5e12,
            fp64=9.7e12,
            special=108 * 16 * 1.41e9,
            dot={
                "tf32": 156e12,
                "fp16": 312e12,
                "bf16": 312e12,
                "int8": 624e12,
                "fp64": 19.5e12,
            },
        ),
        _cuda(
            name="h100", title="NVIDIA H100", bandwidth=3.35e12, memory_bytes=80 << 30, **_HOPPER
        ),
        _cuda(
            name="h200", title="NVIDIA H200", bandwidth=4.8e12, memory_bytes=141 << 30, **_HOPPER
        ),
        _cuda(
            name="b200",
            title="NVIDIA B200",
            arch=100,
            sms=148,
            clock_hz=1.85e9,
            bandwidth=8.0e12,
            l2_bytes=126 << 20,
            l2_bandwidth=16.0e12,
            shared_per_sm=228 << 10,
            shared_per_block=227 << 10,
            memory_bytes=180 << 30,
            fp32=75e12,
            fp64=37e12,
            special=148 * 16 * 1.85e9,
            dot={
                "tf32": 1.1e15,
                "fp16": 2.25e15,
                "bf16": 2.25e15,
                "fp8": 4.5e15,
                "int8": 4.5e15,
                "fp64": 37e12,
            },
        ),
        Target(
            name="mi300x",
            title="AMD Instinct MI300X",
            backend="hip",
            arch="gfx942",
            warp_size=64,
            sms=304,
            clock_hz=2.1e9,
            bandwidth=5.3e12,
            l2_bytes=256 << 20,
            l2_bandwidth=14.0e12,
            shared_per_sm=64 << 10,
            shared_per_block=64 << 10,
            registers_per_sm=131_072,
            warps_per_sm=32,
            blocks_per_sm=32,
            threads_per_block=1024,
            memory_bytes=192 << 30,
            fp32=163.4e12,
            fp64=81.7e12,
            special=304 * 16 * 2.1e9,
            dot={
                "tf32": 653.7e12,
                "fp16": 1307.4e12,
                "bf16": 1307.4e12,
                "fp8": 2614.9e12,
                "int8": 2614.9e12,
                "fp64": 163.4e12,
            },
            launch_us=4.0,
            copy_fraction=0.80,
            dot_fraction=0.60,
        ),
    )
}


def target_named(name: str) -> Target:
    """The target of that name; a ValueError lists the known ones."""
    try:
        return TARGETS[name.lower()]
    except KeyError:
        raise ValueError(f"unknown target {name!r}; expected one of {', '.join(TARGETS)}") from None


def target_titled(title: str) -> Target | None:
    """The target of which a driver's name for a GPU speaks ("NVIDIA A100 80GB PCIe"); None if it is no known one."""
    words = title.lower().split()
    return next((target for target in TARGETS.values() if target.name in words), None)
