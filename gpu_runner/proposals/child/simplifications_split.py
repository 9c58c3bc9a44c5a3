"""The step back from fusion: what a kernel does after its last loop or reduction moves to a second kernel.

The first kernel stores what is finished by then where the result will lie; the second one loads it from there, does the rest
and stores it again. Both have the first one's parameters and grid, so that a launch is simply made twice.
"""

import ast

from gpu_runner.proposals.child.tuning_sites import Change, Edit, is_call_of, names_in

_REDUCTIONS = ("sum", "max", "min", "reduce", "dot", "cumsum")


def split_trailing_work(reading):
    """Applies to kernels that are launched as a statement, store once, at the end, and need only one value besides places."""
    for kernel in reading.kernels.values():
        launches = [launch for launch in reading.launches if launch.kernel is kernel]
        cut = _cut(kernel)
        if cut is None or len(launches) != 1 or kernel.autotuned:
            continue
        statement = statement_of(reading, launches[0])
        name = f"{kernel.name}_rest"
        if statement is None or name in reading.source:
            continue
        begin, end = reading.lines_of(kernel.node)
        first, second = _kernels(reading, kernel, cut, name)
        launched = reading.source[slice(*reading.lines_of(statement))]
        again = launched.replace(f"{kernel.name}[", f"{name}[", 1)
        after = reading.lines_of(statement)[1]
        edits = [Edit(begin, end, f"{first}\n\n{second}"), Edit(after, after, again)]
        yield kernel.name, Change(edits, f"{kernel.name} and what follows it in two kernels", 1)


class _Cut:
    """Where a kernel's body is cut: `index` of the first statement of the rest, `value` the name that crosses."""

    def __init__(self, index, value, store):
        self.index, self.value, self.store = index, value, store


def _cut(kernel):
    body = kernel.node.body
    store = body[-1].value if isinstance(body[-1], ast.Expr) else None
    if (
        not is_call_of(store, "store")
        or sum(is_call_of(n, "store") for n in ast.walk(kernel.node)) != 1
    ):
        return None
    heavy = [i for i, node in enumerate(body) if _is_heavy(node)]
    if not heavy or heavy[-1] >= len(body) - 1:
        return None
    index = heavy[-1] + 1
    places = _places(kernel)
    defined = {name for node in body[:index] for name in _assigned(node)} - places
    crossing = defined & _read_before_written(body[index:])
    if len(crossing) != 1 or not _works(body[index:], next(iter(crossing))):
        return None
    if (names_in(store.args[0]) | _mask_names(store)) & defined:
        return None
    if not names_in(store.args[0]) & set(kernel.parameters):
        return None
    return _Cut(index, next(iter(crossing)), store)


def _read_before_written(statements):
    read, written = set(), set()
    for node in statements:
        loaded = {
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        }
        if isinstance(node, ast.AugAssign):
            loaded |= _assigned(node)
        read |= loaded - written
        written |= _assigned(node)
    return read


def _is_heavy(node):
    return any(
        isinstance(n, ast.For | ast.While) or is_call_of(n, *_REDUCTIONS) for n in ast.walk(node)
    )


def _places(kernel):
    """Names that follow from the program's place, constants and parameters alone: they are computed in both kernels."""
    places = set(kernel.parameters)
    for node in kernel.node.body:
        is_place = isinstance(node, ast.Assign) and not any(
            is_call_of(n, "load", *_REDUCTIONS) for n in ast.walk(node.value)
        )
        if is_place and names_in(node.value) - {"tl"} <= places:
            places |= _assigned(node)
    accumulated = {
        name
        for node in kernel.node.body
        if isinstance(node, ast.For | ast.AugAssign)
        for name in _assigned(node)
    }
    return places - accumulated


def _assigned(node):
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _works(rest, value):
    """Whether the rest does anything to the value but store and convert it."""
    stored = rest[-1].value.args[1]
    is_bare = isinstance(stored, ast.Name) or (
        is_call_of(stored, "to") and len(names_in(stored)) <= 2
    )
    return len(rest) > 1 or not is_bare or value not in names_in(stored)


def _mask_names(store):
    return {name for k in store.keywords if k.arg == "mask" for name in names_in(k.value)}


def _kernels(reading, kernel, cut, name):
    body, source = kernel.node.body, reading.source
    indent = " " * body[0].col_offset
    head = source[reading.lines_of(kernel.node)[0] : reading.lines_of(body[0])[0]]
    text = [source[slice(*reading.lines_of(node))] for node in body]
    pointer = reading.text(cut.store.args[0])
    masks = [f", mask={reading.text(k.value)}" for k in cut.store.keywords if k.arg == "mask"]
    mask = masks[0] if masks else ""
    target = next(p for p in kernel.parameters if p in names_in(cut.store.args[0]))
    stored = f"{indent}tl.store({pointer}, {cut.value}.to({target}.dtype.element_ty){mask})\n"
    loaded = f"{indent}{cut.value} = tl.load({pointer}{mask}).to(tl.float32)\n"
    places = _places(kernel)
    kept = [
        part
        for node, part in zip(body[: cut.index], text[: cut.index], strict=True)
        if isinstance(node, ast.Assign) and _assigned(node) <= places
    ]
    first = head + "".join(text[: cut.index]) + stored
    second = head.replace(f"def {kernel.name}(", f"def {name}(", 1)
    return first, second + "".join([*kept, loaded, *text[cut.index :]])


def statement_of(reading, launch):
    return next(
        (
            node
            for node in ast.walk(launch.scope)
            if isinstance(node, ast.Expr) and node.value is launch.call
        ),
        None,
    )
