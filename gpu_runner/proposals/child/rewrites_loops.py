"""Rewrites of the loops in a kernel: rows held in one block, sums kept in lanes, loads ahead of their use."""

import ast

from gpu_runner.proposals.child.tuning_sites import (
    Change,
    Edit,
    is_call_of,
    last_name,
    names_in,
)


def hold_row_in_one_block(reading):
    """Walk a row in one step instead of many, so that what is read twice stays in registers.

    Applies to `for start in range(0, n, BLOCK)` loops of one kernel over one `n`, where a launch passes a literal for
    BLOCK and an expression for `n`. The loops become straight lines, and a load that repeats an earlier one reads
    nothing new and goes. Rows beyond 32,768 numbers would not fit; the block is bounded at run time by the launch.
    """
    for launch in reading.launches:
        kernel = launch.kernel
        loops = [node for node in kernel.node.body if isinstance(node, ast.For)]
        steps = {_block_loop(loop, kernel) for loop in loops}
        if len(loops) < 2 or len(steps) != 1 or None in steps or kernel.uses_dot:
            continue
        length, block = steps.pop()
        passed, extent = launch.arguments.get(block), launch.arguments.get(length)
        sites = [other for other in reading.launches if other.kernel is kernel]
        literal = isinstance(passed, ast.Constant) and type(passed.value) is int
        if (
            not literal
            or extent is None
            or len(sites) != 1
            or _block_places_programs(kernel, block)
        ):
            continue
        edits = [reading.replace(passed, f"triton.next_power_of_2({reading.text(extent)})")]
        edits += _straightened(reading, kernel, loops)
        yield Change(
            edits,
            f"hold a whole row of {kernel.name} in one block: {len(loops)} passes become one",
            1.4 if len(loops) == 2 else 1.8,
        )


def _block_loop(loop, kernel):
    """(n, BLOCK) of `for start in range(0, n, BLOCK)` over a parameter in steps of a constexpr; else None."""
    call = loop.iter
    if (
        not is_call_of(call, "range")
        or len(call.args) != 3
        or loop.orelse
        or not isinstance(loop.target, ast.Name)
    ):
        return None
    first, length, block = call.args
    names = isinstance(length, ast.Name) and isinstance(block, ast.Name)
    if not (isinstance(first, ast.Constant) and first.value == 0 and names):
        return None
    if block.id not in kernel.constexprs or length.id not in kernel.parameters:
        return None
    leaves = any(isinstance(node, ast.Break | ast.Continue | ast.Return) for node in ast.walk(loop))
    return None if leaves or _bumps_pointers(loop) else (length.id, block.id)


def _bumps_pointers(loop):
    """Whether a pointer moves on from step to step, which a single step would leave behind."""
    return any(
        isinstance(node, ast.AugAssign)
        and any(n.endswith(("ptr", "ptrs")) for n in names_in(node.target))
        for node in ast.walk(loop)
    )


def _block_places_programs(kernel, block):
    """Whether the block also decides where a program's part begins."""
    inside = {
        id(node)
        for loop in ast.walk(kernel.node)
        if isinstance(loop, ast.For)
        for node in ast.walk(loop)
    }
    return any(
        isinstance(node, ast.BinOp) and id(node) not in inside and block in names_in(node)
        for node in ast.walk(kernel.node)
    )


def _straightened(reading, kernel, loops):
    """The loops as straight lines at the first step, and without loads that an earlier pass has made."""
    edits, loaded = [], {}
    for loop in loops:
        body = loop.body
        start, _ = reading.lines_of(loop)
        first, _ = reading.lines_of(body[0])
        indent = " " * loop.col_offset
        extra = body[0].col_offset - loop.col_offset
        edits.append(Edit(start, first, f"{indent}{loop.target.id} = 0\n"))
        for statement in body:
            begin, end = reading.lines_of(statement)
            repeated = _repeats_load(reading, statement, loaded, loop.target.id)
            if repeated is not None:
                edits.append(Edit(begin, end, repeated))
                continue
            lines = reading.source[begin:end].splitlines(keepends=True)
            edits.append(
                Edit(
                    begin,
                    end,
                    "".join(line[extra:] if line[:extra].isspace() else line for line in lines),
                )
            )
    return edits


def _repeats_load(reading, statement, loaded, start):
    """Empty text for a load made before under the same name; None for a statement to keep."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        return None
    loads = [node for node in ast.walk(statement.value) if is_call_of(node, "load")]
    if len(loads) != 1:
        loaded.pop(target.id, None)
        return None
    # What is loaded counts, not the hints to the cache that differ between a first and a last pass.
    load = loads[0]
    key = "|".join(
        [ast.dump(argument).replace(repr(start), "start") for argument in load.args]
        + sorted(
            f"{k.arg}={ast.dump(k.value)}" for k in load.keywords if k.arg in ("mask", "other")
        )
    ) + ast.dump(_without(statement.value, load))
    if loaded.get(target.id) == key:
        return ""
    loaded[target.id] = key
    return None


def _without(expression, load):
    """The expression with the load replaced by a placeholder, to compare what is done around it."""

    class Replace(ast.NodeTransformer):
        def visit_Call(self, node):
            return (
                ast.Name("load") if ast.dump(node) == ast.dump(load) else self.generic_visit(node)
            )

    copied = ast.parse(ast.unparse(expression), mode="eval").body
    return Replace().visit(copied)


def accumulate_in_lanes(reading):
    """Sum per lane inside the loop and across lanes once after it, instead of across lanes in every step.

    Applies to `total += tl.sum(x, axis=0)` in a `for` whose `total` begins as 0.0 just outside, where the block that
    is summed has the size of a constexpr named in a `tl.arange(0, BLOCK)` of the kernel and nothing else in the loop
    reads `total`.
    """
    for kernel in reading.kernels.values():
        for loop in [node for node in kernel.node.body if isinstance(node, ast.For)]:
            for statement in loop.body:
                change = _lanes(reading, kernel, loop, statement)
                if change is not None:
                    yield change


def _lanes(reading, kernel, loop, statement):
    match statement:
        case ast.AugAssign(
            target=ast.Name(id=total), op=ast.Add(), value=ast.Call(args=[summed, *rest]) as call
        ):
            pass
        case _:
            return None
    axis = rest[0] if rest else next((k.value for k in call.keywords if k.arg == "axis"), None)
    zero = isinstance(axis, ast.Constant) and axis.value == 0
    if last_name(call.func) != "sum" or not (zero or (axis is None and not call.keywords)):
        return None
    reads = [n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == total]
    initial = _initial_zero(kernel, loop, total)
    blocks = {
        node.args[1].id
        for node in ast.walk(kernel.node)
        if is_call_of(node, "arange") and len(node.args) == 2 and isinstance(node.args[1], ast.Name)
    }
    if len(reads) != 1 or initial is None or len(blocks) != 1 or kernel.uses_dot:
        return None
    lanes, (block,) = f"{total}_lanes", blocks
    indent = " " * loop.col_offset
    _, after = reading.lines_of(loop)
    return Change(
        [
            reading.replace(initial, f"{lanes} = tl.zeros(({block},), dtype=tl.float32)"),
            reading.replace(statement, f"{lanes} += {reading.text(summed)}"),
            Edit(after, after, f"{indent}{total} = tl.sum({lanes}, axis=0)\n"),
        ],
        f"sum {total} of {kernel.name} per lane in the loop and across lanes once",
        1.15,
    )


def _initial_zero(kernel, loop, name):
    """The statement `name = 0.0` before a loop, the only assignment of the name outside it."""
    found = [
        node
        for node in kernel.node.body
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]
    if len(found) != 1 or found[0].lineno > loop.lineno:
        return None
    value = found[0].value
    return found[0] if isinstance(value, ast.Constant) and value.value == 0 else None


def pipeline_streams(reading):
    """Ask for loads ahead of their use in a loop that streams through memory without a product.

    Applies to `for ... in range(...)` loops with loads in kernels without `tl.dot`, which the compiler does not
    pipeline by itself.
    """
    edits, kernels = [], []
    for kernel in reading.kernels.values():
        if kernel.uses_dot:
            continue
        found = [
            Edit(
                reading.start(loop.iter),
                reading.end(loop.iter),
                f"tl.range({', '.join(reading.text(a) for a in loop.iter.args)}, num_stages=3)",
            )
            for loop in ast.walk(kernel.node)
            if isinstance(loop, ast.For)
            and isinstance(loop.iter, ast.Call)
            and isinstance(loop.iter.func, ast.Name)
            and loop.iter.func.id == "range"
            and any(is_call_of(node, "load") for node in ast.walk(loop))
        ]
        edits += found
        kernels += [kernel.name] if found else []
    if edits:
        yield Change(edits, f"load ahead in the loops of {', '.join(kernels)}"[:300], 1.05)
