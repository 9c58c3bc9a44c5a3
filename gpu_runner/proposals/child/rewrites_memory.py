"""Rewrites of how a kernel meets the caches: hints on streams, and the order in which tiles are walked."""

import ast

from gpu_runner.proposals.child.tuning_sites import Change, Edit, is_call_of, names_in


def hint_streams(reading):
    """Tell the cache that what a kernel reads once will not be wanted again.

    Applies to loads without a hint, outside loops, in kernels without `tl.dot`, whose addresses use the program's own
    rows or offsets; a vector that all programs share keeps its place in the cache.
    """
    edits, kernels = [], []
    for kernel in reading.kernels.values():
        if kernel.uses_dot:
            continue
        inside_loops = {
            id(node)
            for loop in ast.walk(kernel.node)
            if isinstance(loop, ast.For | ast.While)
            for node in ast.walk(loop)
        }
        own = _own_places(kernel)
        found = [
            Edit(reading.end(load) - 1, reading.end(load) - 1, ', eviction_policy="evict_first"')
            for load in ast.walk(kernel.node)
            if is_call_of(load, "load")
            and id(load) not in inside_loops
            and load.args
            and names_in(load.args[0]) & own
            and not _wraps(load.args[0])
            and not {"eviction_policy", "cache_modifier"} & {k.arg for k in load.keywords}
            and reading.source[reading.start(load) : reading.end(load)].count("\n") == 0
        ]
        edits += found
        kernels += [kernel.name] if found else []
    if edits:
        yield Change(
            edits, f"mark what {', '.join(kernels)} read once as first to evict"[:300], 1.02
        )


def _own_places(kernel):
    """Names that run through data with the program's place; what is divided or wrapped repeats, and is no stream."""
    own = set()
    for _ in range(3):
        for node in ast.walk(kernel.node):
            if isinstance(node, ast.Assign) and not _wraps(node.value):
                named = names_in(node.value) & own
                if named or any(is_call_of(n, "program_id") for n in ast.walk(node.value)):
                    own |= {n for target in node.targets for n in names_in(target)}
    return own


def _wraps(expression):
    return any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod)
        for node in ast.walk(expression)
    )


def group_tiles(reading, group=8):
    """Walk the tiles of a product in groups of rows, so that neighbouring programs share operands in the L2 cache.

    Applies to kernels with `tl.dot` that use `tl.program_id(0)` and `tl.program_id(1)` once each, alone on the right of
    an assignment or in a product with a block, and no third axis.
    """
    for kernel in reading.kernels.values():
        places = [node for node in ast.walk(kernel.node) if is_call_of(node, "program_id")]
        axes = [_axis(node) for node in places]
        swizzled = any(
            is_call_of(node, "swizzle2d", "num_programs") for node in ast.walk(kernel.node)
        )
        if not kernel.uses_dot or sorted(axes, key=str) != [0, 1] or swizzled:
            continue
        first = kernel.node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            if len(kernel.node.body) == 1:
                continue
            first = kernel.node.body[1]
        begin, _ = reading.lines_of(first)
        indent = " " * first.col_offset
        taken = {n.id for n in ast.walk(kernel.node) if isinstance(n, ast.Name)} | set(
            kernel.parameters
        )
        if {"tile_m", "tile_n"} & taken:
            continue
        lines = (
            "# Neighbouring programs share operands: groups of rows of tiles.",
            "tile_m, tile_n = tl.swizzle2d(",
            f"    tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), {group}",
            ")",
        )
        edits = [Edit(begin, begin, "".join(f"{indent}{line}\n" for line in lines))]
        edits += [
            reading.replace(node, "tile_m" if _axis(node) == 0 else "tile_n") for node in places
        ]
        yield Change(edits, f"walk the tiles of {kernel.name} in groups of {group} rows", 1.1)


def _axis(call):
    argument = (
        call.args[0]
        if call.args
        else next((k.value for k in call.keywords if k.arg == "axis"), None)
    )
    return argument.value if isinstance(argument, ast.Constant) else None
