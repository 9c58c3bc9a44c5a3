"""Steps back from an expert's kernel: each takes one technique out of the text and leaves what the kernel computes alone.

The request is `{"source": str}`; the answer is a list of simpler sources, each with the name of the technique that it lacks, a
line for people, and the site (`kernel` or `kernel.constant`). Whether a step still compiles, passes and costs time is found
out by evaluating it: a step whose kernel fails says what the technique rests on.
"""

import ast

from gpu_runner.core.source import Problem, parse
from gpu_runner.proposals.child.simplifications_grid import (
    axis_as_loop,
    lanes_across,
    larger_pieces,
    shorter_pieces,
    site_of,
    smaller_blocks,
    smaller_tiles,
)
from gpu_runner.proposals.child.simplifications_products import maximum_beforehand, outer_products
from gpu_runner.proposals.child.simplifications_registers import sums_in_memory
from gpu_runner.proposals.child.simplifications_rows import read_again_for_each_reduction
from gpu_runner.proposals.child.simplifications_split import split_trailing_work
from gpu_runner.proposals.child.simplifications_statistics import statistics_apart
from gpu_runner.proposals.child.tuning_sites import (
    Change,
    Edit,
    Reading,
    Unreadable,
    applied,
    is_call_of,
    last_name,
)

_HINTS = ("eviction_policy", "cache_modifier")
LN_2 = "0.6931471805599453"


def simplifications(request):
    """All sources that one step back makes of the candidate."""
    source = request["source"]
    try:
        reading = Reading(source)
    except Unreadable as error:
        return {"steps": [], "reason": str(error)}
    steps, seen = [], {ast.dump(reading.tree)}
    for technique, simplify in _TECHNIQUES.items():
        for site, change in simplify(reading):
            tree = parse(text := applied(source, change.edits))
            if isinstance(tree, Problem) or ast.dump(tree) in seen:
                continue
            seen.add(ast.dump(tree))
            steps.append(
                {"technique": technique, "site": site, "source": text, "move": change.move}
            )
    return {"steps": steps}


def _fewer_warps(reading):
    """A quarter of the warps hold the same block."""
    for launch, given in _options(reading, "num_warps"):
        if given.value > 1:
            yield _option_set(reading, launch, "num_warps", given, max(1, given.value // 4))


def _one_stage(reading):
    for launch, given in _options(reading, "num_stages"):
        if launch.kernel.uses_dot and given.value > 1:
            yield _option_set(reading, launch, "num_stages", given, 1)


def _options(reading, option):
    for launch in reading.launches:
        given = launch.arguments.get(option)
        if isinstance(given, ast.Constant) and type(given.value) is int:
            yield launch, given


def _option_set(reading, launch, option, given, value):
    move = f"{option}={value} instead of {given.value} for {launch.kernel.name}"
    return launch.kernel.name, Change([reading.replace(given, str(value))], move, 1)


def _plain_tile_order(reading):
    for kernel in reading.kernels.values():
        for node in ast.walk(kernel.node):
            if isinstance(node, ast.Assign) and is_call_of(node.value, "swizzle2d"):
                plain = ", ".join(reading.text(argument) for argument in node.value.args[:2])
                edit = reading.replace(node.value, f"{plain}")
                yield (
                    kernel.name,
                    Change([edit], f"walk the tiles of {kernel.name} in plain order", 1),
                )


def _no_hints(reading):
    for kernel in reading.kernels.values():
        edits = [
            Edit(reading.end(_before(call, keyword)), reading.end(keyword.value), "")
            for call in ast.walk(kernel.node)
            if is_call_of(call, "load", "store")
            for keyword in call.keywords
            if keyword.arg in _HINTS
        ]
        if edits:
            yield kernel.name, Change(edits, f"no hints to the cache in {kernel.name}", 1)


def _before(call, keyword):
    """The argument before a keyword; a load's pointer at least stands there."""
    arguments = [*call.args, *(k.value for k in call.keywords)]
    earlier = [
        a
        for a in arguments
        if (a.end_lineno, a.end_col_offset) < (keyword.lineno, keyword.col_offset)
    ]
    return max(earlier, key=lambda a: (a.end_lineno, a.end_col_offset))


def _always_masked(reading):
    """A constant that a launch computes from `size % tile == 0` becomes False."""
    for launch in reading.launches:
        for name, given in launch.arguments.items():
            is_test = isinstance(given, ast.Compare) and any(
                isinstance(node, ast.Mod) for node in ast.walk(given)
            )
            if name in launch.kernel.constexprs and is_test:
                edit = reading.replace(given, "False")
                yield site_of(launch, name), Change([edit], f"masks also where {name} holds", 1)


def _whole_loops(reading):
    """A loop that ends early, at the smaller of a size and a bound, walks over the whole size."""
    for kernel in reading.kernels.values():
        for loop in ast.walk(kernel.node):
            if not (isinstance(loop, ast.For) and is_call_of(loop.iter, "range")):
                continue
            ends = [a for a in loop.iter.args if is_call_of(a, "minimum") and len(a.args) == 2]
            sizes = [end.args[0] for end in ends if isinstance(end.args[0], ast.Name)]
            if len(ends) == 1 and sizes:
                edit = reading.replace(ends[0], sizes[0].id)
                yield (
                    kernel.name,
                    Change([edit], f"walk over all of {sizes[0].id} in {kernel.name}", 1),
                )


def _natural_exponentials(reading):
    for kernel in reading.kernels.values():
        calls = [node for node in ast.walk(kernel.node) if is_call_of(node, "exp2")]
        edits = [edit for call in calls for edit in _as_exp(reading, call)]
        if edits:
            yield kernel.name, Change(edits, f"exp instead of exp2 in {kernel.name}", 1)


def _as_exp(reading, call):
    argument = call.args[0]
    return [
        reading.replace(call.func, "tl.exp"),
        Edit(reading.start(argument), reading.start(argument), "("),
        Edit(reading.end(argument), reading.end(argument), f") * {LN_2}"),
    ]


def _ordinary_products(reading):
    for kernel in reading.kernels.values():
        edits = [
            reading.replace(keyword.value, '"ieee"')
            for call in ast.walk(kernel.node)
            if is_call_of(call, "dot")
            for keyword in call.keywords
            if keyword.arg == "input_precision"
            and getattr(keyword.value, "value", "") in ("tf32", "tf32x3")
        ]
        if edits:
            yield (
                kernel.name,
                Change(edits, f"float32 products on ordinary units in {kernel.name}", 1),
            )


def _reduce_in_the_loop(reading):
    """A vector of partial sums that is reduced after its loop becomes a scalar to which each step adds a reduced block."""
    for kernel in reading.kernels.values():
        for loop in [node for node in kernel.node.body if isinstance(node, ast.For)]:
            for step in loop.body:
                if edits := _reduced_step(reading, kernel.node.body, step):
                    yield kernel.name, Change(edits, f"reduce in each step in {kernel.name}", 1)


def _reduced_step(reading, body, step):
    if not (isinstance(step, ast.AugAssign) and isinstance(step.op, ast.Add)):
        return []
    name = getattr(step.target, "id", "")
    starts = [
        node.value
        for node in body
        if isinstance(node, ast.Assign)
        and [getattr(target, "id", "") for target in node.targets] == [name]
        and is_call_of(node.value, "zeros")
        and len(getattr(node.value.args[0], "elts", ())) == 1
    ]
    sums = [
        node
        for statement in body
        if not isinstance(statement, ast.For)
        for node in ast.walk(statement)
        if is_call_of(node, "sum")
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id == name
    ]
    uses = [
        node
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    if len(starts) != 1 or len(sums) != 1 or len(uses) != 1:
        return []
    return [
        reading.replace(starts[0], "0.0"),
        reading.replace(step.value, f"tl.sum({reading.text(step.value)}, axis=0)"),
        reading.replace(sums[0], name),
    ]


def _reciprocal_root(reading):
    for kernel in reading.kernels.values():
        calls = [node for node in ast.walk(kernel.node) if is_call_of(node, "rsqrt")]
        edits = [
            reading.replace(call, f"(1.0 / tl.sqrt({reading.text(call.args[0])}))")
            for call in calls
        ]
        if edits and all(last_name(call.func) == "rsqrt" for call in calls):
            yield kernel.name, Change(edits, f"a division by a root in {kernel.name}", 1)


_TECHNIQUES = {
    "hints_to_the_cache": _no_hints,
    "grouped_tiles": _plain_tile_order,
    "mask_specialisation": _always_masked,
    "powers_of_two": _natural_exponentials,
    "reciprocal_root": _reciprocal_root,
    "sums_in_lanes": _reduce_in_the_loop,
    "pipelining": _one_stage,
    "enough_warps": _fewer_warps,
    "early_end": _whole_loops,
    "tensor_cores": _ordinary_products,
    "large_tiles": smaller_tiles,
    "large_blocks": smaller_blocks,
    "long_pieces": shorter_pieces,
    "many_pieces": larger_pieces,
    "contiguous_lanes": lanes_across,
    "axes_on_the_grid": axis_as_loop,
    "products_of_tiles": outer_products,
    "running_maximum": maximum_beforehand,
    "sums_in_registers": sums_in_memory,
    "row_in_registers": read_again_for_each_reduction,
    "fused_trailing_work": split_trailing_work,
    "fused_statistics": statistics_apart,
}
