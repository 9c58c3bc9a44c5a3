"""Time that a correct candidate's call spends without need, one rule a loss; each names one move.

A loss's time is what would go if it vanished altogether: it ranks moves and promises nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_runner.core.findings import Evidence
from gpu_runner.diagnosis.profile import Kernel, Part

MATRIX_KINDS: Final = frozenset({"matmul", "convolution", "attention"})
FUSABLE: Final = frozenset({"pointwise", "copy", "reduction", "random"})
_FILLS: Final = frozenset("zeros zeros_like zero_ fill_ full full_like new_zeros arange".split())
_REACHABLE: Final = 0.72
"""Of the matrix units' peak that a good own kernel reaches."""
_HIDING_WARPS: Final = 8
_SMALL_DOT_FLOPS: Final = 2.0 * 64 * 64 * 32


@dataclass(frozen=True)
class Loss:
    """Time that a call spends without need.

    Args:
        line: in the candidate's source; None stands for where the part is launched or defined.
        tensor: the kernel's argument that it is about.
        is_main: it is named even where little would be gained, since most of the time is there.
    """

    kind: str
    lost_us: float
    title: str
    suggestion: str
    evidence: Evidence
    part: Part | None = None
    line: int | None = None
    tensor: str | None = None
    is_main: bool = False


def of_call(parts: Sequence[Part]) -> Iterator[Loss]:
    """What fusing would save: launches, passes between kernels, copies, work that is left to torch."""
    yield from _copies(parts)
    rest = [part for part in parts if not _is_copy(part)]
    if len(rest) < 2:
        return
    largest = max(rest, key=lambda part: part.us)
    others = [part for part in rest if part is not largest]
    if largest.is_own:
        yield from _fusable(rest, largest, others)
    else:
        yield _outside(parts, largest, others)


def of_kernel(part: Part, kernel: Kernel | None, multiplies: bool) -> Iterator[Loss]:
    """Losses within one own kernel.

    Args:
        multiplies: whether the reference computes a matrix product, a convolution or attention.
    """
    yield from _traffic(part)
    yield from _parallel(part)
    yield from _tiles(part)
    if kernel is not None:
        yield from _registers(part, kernel)
        if multiplies and part.bound == "alu" and not part.dot_us and not kernel.uses_tensor_cores:
            yield Loss(
                "no_tensor_cores",
                0.7 * part.us,
                f"{part.name} multiplies matrices on the ordinary units",
                "Write the product with tl.dot over tiles of at least 16 by 16.",
                {"alu_us": part.alu_us},
                part,
            )


# The whole call


def _is_copy(part: Part) -> bool:
    return part.kind == "copy" and part.name not in _FILLS


def _copies(parts: Sequence[Part]) -> Iterator[Loss]:
    copies = [part for part in parts if _is_copy(part)]
    if not copies or len(copies) == len(parts):
        return
    largest = max(copies, key=lambda part: part.us)
    yield Loss(
        "needless_copies",
        sum(part.us for part in copies),
        f"{_names(copies)}: memory is converted or copied before or after an own kernel",
        "Let the kernel read the tensor as it comes, with its strides and dtype, and convert in registers.",
        {"copies": len(copies), "names": [part.name for part in copies][:20]},
        largest,
        largest.line,
    )


def _fusable(parts: Sequence[Part], largest: Part, others: Sequence[Part]) -> Iterator[Loss]:
    launches = sum(part.launch_us for part in others)
    passing = [
        part for part in others if part.only_passes and (part.is_own or part.kind in FUSABLE)
    ]
    passes = sum(part.dram_us for part in passing)
    own = sum(part.is_own for part in parts)
    is_about_launches = launches >= passes
    place = max(passing or others, key=lambda part: part.us)
    kind = "launches" if is_about_launches else "extra_kernels"
    yield Loss(
        kind,
        launches + passes,
        f"{len(parts)} launches in one call, {own} of them own kernels"
        if is_about_launches
        else f"{_names(passing)} only passes over memory that another kernel has at hand",
        f"Fuse {_names(others)} into {largest.name} or with each other, so that what lies between stays in registers.",
        {
            "launches": len(parts),
            "own_launches": own,
            "names": [part.name for part in parts][:20],
            "launch_us": launches,
            "pass_us": passes,
        },
        largest if is_about_launches else place,
    )


def _outside(parts: Sequence[Part], largest: Part, others: Sequence[Part]) -> Loss:
    total, outside = sum(p.us for p in parts), sum(p.us for p in parts if not p.is_own)
    passing = [part for part in others if part.only_passes]
    lost = sum(part.launch_us for part in others) + sum(part.dram_us for part in passing)
    return Loss(
        "outside_own_kernels",
        lost,
        f"{outside / total:.0%} of the time is outside own kernels, most of it in {largest.name}",
        f"Write {largest.name} as an own kernel and do the work of {_names(others)} in its epilogue.",
        {"outside_share": outside / total, "names": [part.name for part in parts][:20]},
        largest,
        largest.line,
        is_main=outside > 0.5 * total,
    )


def _names(parts: Sequence[Part]) -> str:
    names = list(dict.fromkeys(part.name for part in parts))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# One kernel


def _traffic(part: Part) -> Iterator[Loss]:
    if part.bound not in ("dram", "l2") or part.dram_bytes <= 0:
        return
    spread = part.bytes_per_wanted_byte
    if spread > 1.25:
        tensor = f" of {part.spread_tensor}" if part.spread_tensor else ""
        yield Loss(
            "uncoalesced",
            max(part.dram_us, part.l2_us) * (1 - 1 / spread),
            f"{part.name} moves {spread:.1f} bytes for each byte that it asks for{tensor}",
            "Let neighbouring lanes touch neighbouring elements: the innermost tl.arange belongs to the axis of stride 1.",
            {"bytes_per_wanted_byte": spread, "tensor": part.spread_tensor},
            part,
            part.spread_line,
            part.spread_tensor or None,
        )
    elif part.minimum_bytes and part.dram_bytes > 1.1 * part.minimum_bytes and not part.flops_a_dot:
        redundant = part.dram_bytes / part.minimum_bytes
        yield Loss(
            "redundant_traffic",
            part.dram_us * (1 - 1 / redundant),
            f"{part.name} moves {redundant:.1f} times the bytes that it must",
            "Read each input once: keep the row in registers, or use an online formulation.",
            {
                "dram_bytes": part.dram_bytes,
                "minimum_bytes": part.minimum_bytes,
                "tensor": part.reread_tensor,
                "times_read": part.reread_times,
            },
            part,
            part.reread_line,
            part.reread_tensor or None,
        )


def _parallel(part: Part) -> Iterator[Loss]:
    if part.bound == "dram" and part.parallelism < 0.9:
        yield Loss(
            "little_in_flight",
            part.dram_us * (1 - part.parallelism),
            f"{part.name} keeps only {part.parallelism:.0%} of the bytes in flight that the memory needs,"
            f" limited by {part.limiter}",
            _more_in_flight(part),
            {
                "parallelism": part.parallelism,
                "limiter": part.limiter,
                "waves": part.waves,
                "occupancy": part.occupancy,
            },
            part,
        )
    if part.bound in ("dot", "alu") and part.tail > 1.1:
        yield Loss(
            "tail",
            max(part.dot_us, part.alu_us) * (1 - 1 / part.tail),
            f"{part.name} leaves SMs idle at its end: the busiest has {part.tail:.1f} times the mean",
            "Choose tiles so that their number is a multiple of the SMs or much larger, or split the reduction.",
            {"tail": part.tail, "waves": part.waves},
            part,
        )


def _more_in_flight(part: Part) -> str:
    if part.limiter == "grid":
        return "Start more programs: smaller blocks of rows, or split long rows and reductions over programs."
    if part.limiter in ("registers", "shared memory"):
        return f"Fewer {part.limiter} per program: smaller tiles or fewer stages, so that more programs are resident."
    return "Load more per program at once: larger blocks, more num_warps, or num_stages for loops over loads."


def _tiles(part: Part) -> Iterator[Loss]:
    """A product's tiles are so small that each tl.dot waits, or that operands come from L2 too often."""
    if not part.flops_a_dot or part.bound not in ("dot", "l2", "dram"):
        return
    waiting = part.dot_us * max(0.0, 1 - part.dot_efficiency / _REACHABLE)
    fetching = max(part.l2_us, part.dram_us) - part.dot_us if part.bound != "dot" else 0.0
    if fetching <= waiting and part.flops_a_dot >= _SMALL_DOT_FLOPS:
        return
    yield Loss(
        "small_tiles",
        max(waiting, fetching),
        f"{part.name} works on tiles so small that operands are fetched too often"
        if fetching > waiting
        else f"{part.name} gives the matrix units {part.flops_a_dot:,.0f} operations a tl.dot, too few to keep them busy",
        "Take larger tiles along M and N: each operand is then used more often; 128 by 128 on 8 warps is a start.",
        {
            "flops_a_dot": part.flops_a_dot,
            "dot_efficiency": part.dot_efficiency,
            "l2_us": part.l2_us,
            "dot_us": part.dot_us,
        },
        part,
        tensor=part.reread_tensor or None,
    )


def _registers(part: Part, kernel: Kernel) -> Iterator[Loss]:
    if kernel.spill_bytes:
        yield Loss(
            "spills",
            max(part.l2_us - part.dram_us, 0.1 * part.us if kernel.spill_bytes_in_loops else 0.0),
            f"{part.name} spills {kernel.spill_bytes} bytes of registers a thread",
            "Take smaller tiles or more num_warps, so that each thread holds less.",
            {
                "spill_bytes": kernel.spill_bytes,
                "spill_bytes_in_loops": kernel.spill_bytes_in_loops,
                "registers": kernel.registers,
            },
            part,
        )
    warps = part.blocks_per_sm * kernel.num_warps
    computing, moving = max(part.dot_us, part.alu_us), max(part.dram_us, part.l2_us)
    if computing >= 0.9 * moving and part.bound != "launch" and part.occupancy < 0.25:
        idle = max(0.0, 1 - warps / _HIDING_WARPS) if part.bound == "alu" else 0.15
        yield Loss(
            "occupancy",
            idle * part.us,
            f"{part.name} keeps {part.occupancy:.0%} of an SM's warps resident, limited by {part.limiter}",
            "Smaller tiles or fewer stages leave room for more programs; more num_warps share a tile's registers.",
            {
                "occupancy": part.occupancy,
                "limiter": part.limiter,
                "registers": kernel.registers,
                "shared_bytes": kernel.shared_bytes,
                "num_warps": kernel.num_warps,
            },
            part,
        )
