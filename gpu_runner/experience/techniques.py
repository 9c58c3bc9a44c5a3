"""What is known of the techniques that `proposals.child.simplifications` takes out of a kernel, in words for people.

`shows` are the findings that a kernel without the technique may show where it would help; where a lineage saw which ones
appeared, those are taken instead.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Technique:
    title: str
    action: str
    precondition: str
    not_when: str
    shows: tuple[str, ...]


TECHNIQUES: Final[dict[str, Technique]] = {
    "hints_to_the_cache": Technique(
        "Hint the cache what is read once",
        "Mark loads of streams with eviction_policy='evict_first' and of shared operands with 'evict_last'.",
        "Each element of a stream is read once by the whole grid.",
        "Operands that other programs read soon.",
        ("bound_by_dram", "bound_by_l2"),
    ),
    "grouped_tiles": Technique(
        "Walk tiles in groups that share operands",
        "Map program numbers to tiles in groups of rows, so that operands stay in the L2 cache.",
        "Both axes of the output have several tiles.",
        "Operands that fit the L2 cache together.",
        ("redundant_traffic", "bound_by_l2"),
    ),
    "mask_specialisation": Technique(
        "Drop masks where the size is a multiple of the tile",
        "Pass size % tile == 0 as a constant and load without the mask where it holds.",
        "The constant is computed from the sizes of this very launch.",
        "Sizes that are not multiples of the tile.",
        ("bound_by_alu",),
    ),
    "powers_of_two": Technique(
        "Use exp2 with log2(e) folded into a factor",
        "Multiply the argument's factor by log2(e) once and use tl.exp2.",
        "All exponentials of the formulation share the base.",
        "Kernels bound by memory.",
        ("bound_by_alu",),
    ),
    "reciprocal_root": Technique(
        "Use rsqrt instead of dividing by a root",
        "tl.rsqrt is one instruction where a division by tl.sqrt is several.",
        "The argument is positive.",
        "One root per row of a kernel bound by memory.",
        ("bound_by_alu",),
    ),
    "sums_in_lanes": Technique(
        "Keep sums in lanes and reduce once",
        "Add blocks lane by lane in the loop and reduce after it.",
        "The operation may be reordered.",
        "A result that each step needs.",
        ("bound_by_alu",),
    ),
    "pipelining": Technique(
        "Pipeline the loop over tiles",
        "Give loops that load and multiply 3 or more stages, so that loads of coming tiles overlap the product.",
        "All stages fit the shared memory of a block.",
        "Loops of one or two steps; kernels of which several programs are resident on an SM.",
        ("bound_by_dot",),
    ),
    "enough_warps": Technique(
        "Give a block as many warps as its registers ask for",
        "Raise num_warps until the values that a thread holds fit its registers.",
        "The block has some hundreds of elements for each warp.",
        "Small blocks, of which a warp holds a few elements a thread.",
        ("spills", "occupancy", "little_in_flight"),
    ),
    "early_end": Technique(
        "End the loop where the rest is masked",
        "Compute the end of the loop from the program's place, and skip tiles that the mask hides.",
        "The mask is monotonous in the loop's direction.",
        "Masks without structure.",
        ("bound_by_dot", "bound_by_alu"),
    ),
    "tensor_cores": Technique(
        "Multiply float32 on tensor cores",
        "Use input_precision='tf32' where the policy permits it, 'tf32x3' where it does not.",
        "The precision policy of the task admits the mode.",
        "Operands of 16 bits, which are on the tensor cores already.",
        ("no_tensor_cores",),
    ),
    "large_tiles": Technique(
        "Take a larger tile",
        "Raise the sides of a product's tile: what it loads is used by more of its elements.",
        "Registers and shared memory hold the tile; the grid still fills the GPU.",
        "Small products, where fewer programs leave SMs idle.",
        ("small_tiles", "redundant_traffic", "bound_by_l2"),
    ),
    "large_blocks": Technique(
        "Take a larger block",
        "Raise the block of a stream, so that a program keeps more bytes in flight.",
        "Registers hold the block; the grid still fills the GPU; a block that must cover a row does.",
        "Small problems, where fewer programs leave SMs idle.",
        ("little_in_flight", "bound_by_launch"),
    ),
    "long_pieces": Technique(
        "Give each program a longer piece",
        "Lengthen the piece that a program walks over, so that fewer parts have to be joined.",
        "The grid still fills the GPU.",
        "Grids that barely fill the GPU.",
        ("extra_kernels",),
    ),
    "many_pieces": Technique(
        "Split long work over more programs",
        "Give each program a shorter piece and join the parts in a second kernel.",
        "The reduction can be joined from parts; parts are float32.",
        "Enough rows to fill the GPU without it.",
        ("little_in_flight", "tail"),
    ),
    "contiguous_lanes": Technique(
        "Let lanes run along the contiguous axis",
        "Give the axis whose elements lie side by side the long side of the block, at least 32 bytes of it.",
        "The block's other axis can be shorter without losing bytes in flight.",
        "Tensors whose contiguous axis is shorter than a sector.",
        ("uncoalesced",),
    ),
    "axes_on_the_grid": Technique(
        "Spread every independent axis over the grid",
        "Give heads, batches or the second axis of tiles an axis of the grid instead of a loop in each program.",
        "What the axis separates is independent, or is joined afterwards.",
        "Grids that fill all SMs many times without it.",
        ("tail", "little_in_flight"),
    ),
    "products_of_tiles": Technique(
        "Multiply tiles with tl.dot",
        "Load tiles of at least 16 along every axis and multiply them with tl.dot, which runs on tensor cores.",
        "Both operands have 16 bits, or the precision policy admits a mode of tensor cores.",
        "Products with a vector, which are bound by memory.",
        ("no_tensor_cores", "bound_by_alu"),
    ),
    "running_maximum": Technique(
        "Keep a running maximum and correct the sums",
        "Go once over the keys: for each tile raise the maximum, and multiply what was summed by exp(old - new).",
        "The sums are linear in the exponentials, so that one factor corrects them.",
        "Rows that fit one tile, whose maximum is known before the sum.",
        ("bound_by_dot", "redundant_traffic"),
    ),
    "sums_in_registers": Technique(
        "Sum in registers and store once",
        "Keep the block that a loop adds to in registers, in float32, and convert and store it after the loop.",
        "The registers of the program hold the block.",
        "Sums to which several programs add.",
        ("redundant_traffic", "bound_by_l2"),
    ),
    "row_in_registers": Technique(
        "Hold a row in registers and read it once",
        "Load the whole row into one block and keep it through all reductions.",
        "A power of two that covers the row fits the registers of one program.",
        "Rows beyond about 16,384 elements, or fewer rows than SMs.",
        ("redundant_traffic",),
    ),
    "fused_trailing_work": Technique(
        "Do trailing pointwise work before the store",
        "Apply what follows a loop or a reduction to the value in registers instead of in a second kernel.",
        "What follows needs only the program's own part of the result.",
        "The result before it is an output itself.",
        ("launches", "extra_kernels"),
    ),
    "fused_statistics": Technique(
        "Use statistics in the kernel that computes them",
        "Reduce a row and use the result on the same values in registers instead of reading the row in a second kernel.",
        "One program holds the row, or the part of it that the statistics are of.",
        "Statistics over more than one program can hold.",
        ("extra_kernels", "redundant_traffic"),
    ),
}
