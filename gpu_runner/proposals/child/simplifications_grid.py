"""Steps back from how work is laid over programs and lanes: block sizes, pieces, axes of the grid, the direction of lanes.

A constant of a launch and the count of programs that goes with it change together. Which count that is follows from the axis
of the grid whose place the kernel multiplies by the constant.
"""

import ast
import textwrap

from gpu_runner.proposals.child.tuning_sites import (
    Change,
    Edit,
    applied,
    is_call_of,
    names_in,
)

LEAST_OF_DOT = 16
MOST_OF_BLOCK = 1 << 20


def smaller_tiles(reading):
    """A side of a product's tile a quarter as long, and the grid that counts by it with it."""
    for launch, name, given in constants(reading):
        if launch.kernel.uses_dot and given.value > LEAST_OF_DOT:
            smaller = max(LEAST_OF_DOT, given.value // 4)
            yield site_of(launch, name), _resized(reading, launch, {name: smaller})


def smaller_blocks(reading):
    """The same of a block that is only read, reduced or written."""
    for launch, name, given in constants(reading):
        if not launch.kernel.uses_dot and _is_block(launch.kernel, name):
            smaller = max(1, given.value // 4)
            yield site_of(launch, name), _resized(reading, launch, {name: smaller})


def shorter_pieces(reading):
    """A constant that only the grid and a loop use, a quarter as large: more programs with less work each."""
    for launch, name, given in constants(reading):
        if not (launch.kernel.uses_dot or _is_block(launch.kernel, name)):
            smaller = max(1, given.value // 4)
            yield site_of(launch, name), _resized(reading, launch, {name: smaller})


def larger_pieces(reading):
    """A constant that only the grid and a loop use, 16 times as large: fewer programs with more work each."""
    for launch, name, given in constants(reading):
        if launch.kernel.uses_dot or _is_block(launch.kernel, name) or given.value < 2:
            continue
        larger = given.value * 16
        if larger <= MOST_OF_BLOCK * 16 and _counts(reading, launch, name):
            yield site_of(launch, name), _resized(reading, launch, {name: larger})


def lanes_across(reading):
    """A block that is one element wide along the contiguous axis, and as much longer across it as its loop admits."""
    for launch, name, given in constants(reading):
        kernel = launch.kernel
        across = [n for n in _blocks(kernel) if n != name and _value(launch, n)]
        if kernel.uses_dot or name not in _contiguous(kernel) or len(across) != 1:
            continue
        longer = _value(launch, across[0]) * given.value
        while any(bound % longer for bound in _bounds(launch, across[0])):
            longer //= 2
        yield site_of(launch, name), _resized(reading, launch, {name: 1, across[0]: longer})


def axis_as_loop(reading):
    """The last of several axes of a grid becomes a loop within each program."""
    for launch in reading.launches:
        kernel, axes = launch.kernel, _axes(reading, launch)
        axis = len(axes) - 1
        is_shared = isinstance(launch.grid, ast.Name) and _uses(launch.scope, launch.grid.id) > 1
        counted = [node for node in ast.walk(kernel.node) if _axis_of_call(node) == axis]
        if axis < 1 or is_shared or kernel.autotuned or not counted or not _is_loopable(kernel):
            continue
        count, step = f"programs_{axis}", f"place_{axis}"
        if {count, step} & names_in(kernel.node) or isinstance(axes[axis], ast.Constant):
            continue
        edits = [
            reading.replace(axes[axis], "1"),
            _added_argument(reading, launch, count, reading.text(axes[axis])),
            added_parameter(reading, kernel, count),
            _looped(reading, kernel, counted, step, count),
        ]
        yield (
            kernel.name,
            Change(edits, f"a loop instead of axis {axis} of {kernel.name}'s grid", 1),
        )


def constants(reading):
    """Each launch with a whole number above 1 that it passes for a constant of its kernel."""
    for launch in reading.launches:
        for name, given in launch.arguments.items():
            if name in launch.kernel.constexprs and (_value(launch, name) or 0) > 1:
                yield launch, name, given


def constant_set(reading, launch, name, value):
    """The edits that give a constant another value, in the launch and in the grid."""
    places = [launch.arguments[name], *_counts(reading, launch, name)]
    return [reading.replace(place, str(value)) for place in places]


def added_parameter(reading, kernel, name):
    end = reading.end(kernel.node.args.args[-1])
    return Edit(end, end, f", {name}")


def _added_argument(reading, launch, name, text):
    last = max(
        [*launch.call.args, *(keyword.value for keyword in launch.call.keywords)],
        key=lambda node: (node.end_lineno, node.end_col_offset),
    )
    return Edit(reading.end(last), reading.end(last), f", {name}={text}")


def _value(launch, name):
    given = launch.arguments.get(name)
    is_number = isinstance(given, ast.Constant) and type(given.value) is int
    return given.value if is_number else None


def _resized(reading, launch, values):
    edits = [
        edit
        for name, value in values.items()
        for edit in constant_set(reading, launch, name, value)
    ]
    said = " and ".join(f"{n}={v} instead of {_value(launch, n)}" for n, v in values.items())
    return Change(edits, f"{said} in {launch.kernel.name}", 1)


def _counts(reading, launch, name):
    """The places where the function that launches divides by this constant: the 128 of `triton.cdiv(n, 128)`.

    Where several constants have the same value, those in the axis of the grid whose place the kernel multiplies by it.
    """
    value = _value(launch, name)
    found = [
        call.args[1]
        for call in ast.walk(launch.scope)
        if is_call_of(call, "cdiv")
        and len(call.args) == 2
        and isinstance(call.args[1], ast.Constant)
        and call.args[1].value == value
    ]
    alike = [n for n in launch.kernel.constexprs if _value(launch, n) == value]
    if len(alike) == 1:
        return found
    axis, axes = _axis_of(launch.kernel, name), _axes(reading, launch)
    if axis is None or axis >= len(axes):
        return []
    inside = list(ast.walk(reading.resolve(axes[axis], launch.scope)))
    return [place for place in found if any(place is node for node in inside)]


def _axes(reading, launch):
    grid = reading.resolve(launch.grid, launch.scope)
    return list(grid.elts) if isinstance(grid, ast.Tuple) else []


def _axis_of(kernel, name):
    """The axis of the grid whose place the kernel multiplies by a constant; None if there is none or more than one."""
    places = _named_places(kernel)
    found = set()
    for node in ast.walk(kernel.node):
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
            continue
        for factor, place in ((node.left, node.right), (node.right, node.left)):
            if isinstance(factor, ast.Name) and factor.id == name:
                found |= {places[n] for n in names_in(place) & places.keys()}
                found |= {_axis_of_call(n) for n in ast.walk(place)} - {None}
    return found.pop() if len(found) == 1 else None


def _named_places(kernel):
    """Names that stand for the place on one axis of the grid, and which; tiles walked in groups keep their axis."""
    places = {}
    for node in ast.walk(kernel.node):
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and is_call_of(value, "swizzle2d"):
            pairs = zip(target.elts, value.args[:2], strict=False)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts, strict=False)
        else:
            pairs = [(target, value)]
        for name, place in pairs:
            if isinstance(name, ast.Name) and _axis_of_call(place) is not None:
                places[name.id] = _axis_of_call(place)
    return places


def _axis_of_call(node):
    """The axis of `tl.program_id(axis)`, also where it is widened; None for anything else."""
    if is_call_of(node, "to") and isinstance(node.func, ast.Attribute):
        node = node.func.value
    if not is_call_of(node, "program_id"):
        return None
    given = [*node.args, *(k.value for k in node.keywords if k.arg == "axis")]
    return given[0].value if given and isinstance(given[0], ast.Constant) else None


def _blocks(kernel):
    """Constants that are the length of a `tl.arange`, with the names of the indices that it makes."""
    blocks = {}
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            for call in ast.walk(node.value):
                if is_call_of(call, "arange") and isinstance(call.args[-1], ast.Name):
                    blocks.setdefault(call.args[-1].id, set()).add(node.targets[0].id)
    return blocks


def _is_block(kernel, name):
    """Whether a constant is the length of a `tl.arange`, which must stay a power of two that fits registers."""
    return any(
        is_call_of(node, "arange") and name in names_in(node) for node in ast.walk(kernel.node)
    )


def _contiguous(kernel):
    """Blocks whose index is added to a pointer as it is, with no stride."""
    bare = {
        name
        for node in ast.walk(kernel.node)
        if is_call_of(node, "load")
        for term in _terms(node.args[0])
        for name in [_bare_name(term)]
    }
    return {block for block, indices in _blocks(kernel).items() if indices & bare}


def _terms(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _bare_name(term):
    term = term.value if isinstance(term, ast.Subscript) else term
    return term.id if isinstance(term, ast.Name) else None


def _bounds(launch, name):
    """The constants up to which loops of the kernel step by this one."""
    for node in ast.walk(launch.kernel.node):
        if is_call_of(node, "range") and len(node.args) == 3:
            end, step = node.args[1:]
            if isinstance(step, ast.Name) and step.id == name and isinstance(end, ast.Name):
                yield _value(launch, end.id) or 1


def _uses(scope, name):
    return sum(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for node in ast.walk(scope)
    )


def _is_loopable(kernel):
    has_return = any(isinstance(node, ast.Return) for node in ast.walk(kernel.node))
    return not has_return and not kernel.node.args.defaults and bool(kernel.parameters)


def _looped(reading, kernel, counted, step, count):
    """The kernel's body in a loop over the places of an axis that the grid has only one of any more."""
    body = kernel.node.body
    begin, end = reading.lines_of(body[0])[0], reading.lines_of(body[-1])[1]
    edits = []
    for call in (node for node in counted if is_call_of(node, "program_id")):
        text = f"({reading.text(call)} + {step})"
        edits.append(Edit(reading.start(call) - begin, reading.end(call) - begin, text))
    axis = step.rpartition("_")[2]
    for node in ast.walk(kernel.node):
        if is_call_of(node, "num_programs") and ast.unparse(node.args[0]) == axis:
            edits.append(Edit(reading.start(node) - begin, reading.end(node) - begin, count))
    text = textwrap.indent(applied(reading.source[begin:end], edits), "    ")
    indent = " " * body[0].col_offset
    return Edit(begin, end, f"{indent}for {step} in range({count}):\n{text}")


def site_of(launch, name):
    return f"{launch.kernel.name}.{name}"
