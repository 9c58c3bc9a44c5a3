"""The step back from statistics used where they are computed: a kernel writes them, a second one reads the row again.

The body is brought into single assignments with each reduction in a statement of its own. The first kernel stores what the
last reduction and those before it give, one row of numbers for each program; the second loads them and does the rest.
"""

import ast

from gpu_runner.proposals.child.simplifications_rows import (
    Unfit,
    is_reduction,
    row_index,
    single_assignments,
    statements_for,
)
from gpu_runner.proposals.child.simplifications_split import statement_of
from gpu_runner.proposals.child.tuning_sites import Change, Edit, is_call_of, names_in


def statistics_apart(reading):
    """Applies to kernels without loops over one block of a row on a grid of one axis, launched once, as a statement."""
    for launch in reading.launches:
        kernel = launch.kernel
        statement = statement_of(reading, launch)
        is_once = sum(other.kernel is kernel for other in reading.launches) == 1
        grid = reading.resolve(launch.grid, launch.scope)
        if not (is_once and statement and isinstance(grid, ast.Tuple) and len(grid.elts) == 1):
            continue
        try:
            first, second = _bodies(kernel)
            tensor = _first_tensor(launch)
        except Unfit:
            continue
        parts, count = f"{kernel.name}_parts", len(_reduced(first))
        if kernel.autotuned or kernel.node.args.defaults or parts in reading.source:
            continue
        shape = f"({ast.unparse(grid.elts[0])}, {count})"
        edits = [
            Edit(*reading.lines_of(kernel.node), _kernels(reading, kernel, first, second)),
            Edit(
                *reading.lines_of(statement),
                _launches(reading, statement, launch, parts, shape, tensor),
            ),
        ]
        yield (
            kernel.name,
            Change(edits, f"the statistics of {kernel.name} in a kernel of their own", 1),
        )


def _bodies(kernel):
    """The statements of both kernels; in the second, reductions are those of the first."""
    statements = single_assignments(kernel)
    row_index(statements)
    last = max(
        (i for i, (name, value) in enumerate(statements) if name and is_reduction(value)),
        default=-1,
    )
    first, rest = statements[: last + 1], statements[last + 1 :]
    stores = [value for name, value in rest if name is None]
    if not (first and stores) or any(name is None for name, _ in first):
        raise Unfit
    wanted = set().union(*(names_in(value) for value in stores))
    second = statements_for(
        wanted, statements, {name for name, _ in statements if name}, stop=_reduced(first)
    )
    if not set(_reduced(first)) & {name for name, _ in second}:
        raise Unfit
    return first, [*second, *((None, value) for value in stores)]


def _reduced(statements):
    return [name for name, value in statements if name and is_reduction(value)]


def _kernels(reading, kernel, first, second):
    reduced = _reduced(first)
    places = [f"parts + tl.program_id(0) * {len(reduced)} + {i}" for i in range(len(reduced))]
    written = [f"{name} = {ast.unparse(value)}" for name, value in first]
    stored = [f"tl.store({place}, {name})" for place, name in zip(places, reduced, strict=True)]
    loads = dict(zip(reduced, places, strict=True))
    read = [
        f"{name} = tl.load({loads[name]})"
        if name in loads
        else f"{name} = {ast.unparse(value)}"
        if name
        else ast.unparse(value)
        for name, value in second
    ]
    head = reading.source[
        reading.lines_of(kernel.node)[0] : reading.lines_of(kernel.node.body[0])[0]
    ]
    begin = reading.lines_of(kernel.node)[0]
    after = reading.end(kernel.node.args.args[-1]) - begin
    head = head[:after] + ", parts" + head[after:]
    other = head.replace(f"def {kernel.name}(", f"def {kernel.name}_rest(", 1)
    return f"{head}{_lines(kernel, [*written, *stored])}\n\n{other}{_lines(kernel, read)}"


def _lines(kernel, lines):
    indent = " " * kernel.node.body[0].col_offset
    return "".join(f"{indent}{line}\n" for line in lines)


def _launches(reading, statement, launch, parts, shape, tensor):
    begin, end = reading.lines_of(statement)
    after = (
        max(reading.end(a) for a in [*launch.call.args, *(k.value for k in launch.call.keywords)])
        - begin
    )
    text = reading.source[begin:end]
    text = text[:after] + f", parts={parts}" + text[after:]
    indent = " " * statement.col_offset
    allocated = (
        f"{indent}{parts} = torch.empty({shape}, device={tensor}.device, dtype=torch.float32)\n"
    )
    again = text.replace(f"{launch.kernel.name}[", f"{launch.kernel.name}_rest[", 1)
    return allocated + text + again


def _first_tensor(launch):
    """The text of an argument that the kernel loads from."""
    for node in ast.walk(launch.kernel.node):
        if is_call_of(node, "load"):
            for name in sorted(names_in(node.args[0]) & launch.arguments.keys()):
                given = launch.arguments[name]
                if isinstance(given, ast.Name | ast.Attribute) and _is_pointer(node.args[0], name):
                    return ast.unparse(given)
    raise Unfit


def _is_pointer(place, name):
    """Whether a name is the pointer of an address: the leftmost of its terms."""
    while isinstance(place, ast.BinOp):
        place = place.left
    return isinstance(place, ast.Name) and place.id == name
