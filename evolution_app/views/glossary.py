"""What the names of numbers mean, for people who have not read the evaluator: a label, and a sentence beside it."""

from typing import Final, NamedTuple


class Meaning(NamedTuple):
    label: str
    sentence: str = ""


_MEANINGS: Final = {
    "us": Meaning("time, us", "modelled time of the whole part, in microseconds"),
    "launch_us": Meaning("launch, us", "time until the kernel starts, in microseconds"),
    "dram_us": Meaning("DRAM, us", "time that moving its bytes from and to the GPU's memory takes"),
    "l2_us": Meaning("L2, us", "time that its traffic through the L2 cache takes"),
    "dot_us": Meaning("tensor cores, us", "time that its matrix products take"),
    "alu_us": Meaning("arithmetic, us", "time that its other arithmetic takes"),
    "bound": Meaning("bound by", "the largest of these times"),
    "kernel": Meaning("kernel", "the Triton function"),
    "line": Meaning("line", "where it is defined in the candidate's source"),
    "config": Meaning("configuration", "the constants that it was compiled with"),
    "is_chosen": Meaning("used", "whether this configuration is the one that runs"),
    "num_warps": Meaning("warps", "groups of 32 threads in one program instance"),
    "num_stages": Meaning("stages", "iterations of a loop that are in flight at once"),
    "shared_bytes": Meaning("shared memory, bytes", "on-chip memory of one program instance"),
    "registers": Meaning("registers", "of one thread; above 255 values spill to slow memory"),
    "spill_bytes": Meaning("spilled, bytes", "of one thread, kept in slow memory for want of registers"),
    "spill_bytes_in_loops": Meaning("of these in loops", "bytes moved again in every iteration"),
    "uses_tensor_cores": Meaning("tensor cores", "whether its matrix products run on them"),
    "dots": Meaning("matrix products", "tl.dot in the compiled kernel"),
    "occupancy": Meaning("occupancy", "threads that are resident, as a share of what the GPU holds"),
    "limiter": Meaning("occupancy limited by"),
    "waves": Meaning("waves", "how often the GPU is filled with program instances"),
    "tail": Meaning("tail", "how much longer the last, partly filled wave makes the kernel"),
    "iqr_us": Meaning("IQR, us", "interquartile range: the middle half of the timed calls lies within it"),
    "predicted_gain": Meaning("predicted gain", "how many times as fast if this alone is mended"),
    "lost_us": Meaning("lost, us", "time of one call that mending it would save"),
    "modelled_us": Meaning("modelled, us", "modelled time of one call, all kernels together"),
    "measured_us": Meaning("measured, us", "measured time of one call, all kernels together"),
    "launches": Meaning("launches", "kernels that one call starts"),
    "minimum_bytes": Meaning("least bytes", "what must be moved if every value is read and written once"),
    "dram_bytes": Meaning("DRAM bytes", "what is moved from and to the GPU's memory"),
    "flops": Meaning("operations", "floating-point operations"),
    "rms": Meaning("rms", "root mean square of the reference's output, the unit of absolute errors"),
    "rtol": Meaning("relative tolerance"),
    "atol": Meaning("absolute tolerance", "in units of the output's root mean square"),
}  # fmt: skip


def meaning_of(name: str) -> Meaning:
    """A name that is not in the list stands for itself."""
    return _MEANINGS.get(name) or Meaning(name.replace("_", " "))
