"""The step back from accumulating in registers: each step of the loop fetches what was summed from the output and puts it back.

Threads of a program wait for each other between the steps, so that each sees what the others have stored.
"""

import ast

from gpu_runner.proposals.child.tuning_sites import Change, Edit, is_call_of, names_in


def sums_in_memory(reading):
    """Applies to kernels with one loop that updates a block of zeros, which is stored at the end, converted at most."""
    for kernel in reading.kernels.values():
        found = _accumulated(kernel)
        if found is None or kernel.autotuned:
            continue
        name, loop, store = found
        pointer, masks = store.args[0], [k.value for k in store.keywords if k.arg == "mask"]
        place = reading.text(pointer)
        mask = f", mask={reading.text(masks[0])}" if masks else ""
        target = next(p for p in kernel.parameters if p in names_in(pointer))
        kept = f"tl.store({place}, {name}.to({target}.dtype.element_ty){mask})"
        fetched = f"{name} = tl.load({place}{mask}).to(tl.float32)"
        outer, inner = " " * loop.col_offset, " " * loop.body[0].col_offset
        start, first = reading.lines_of(loop)[0], reading.lines_of(loop.body[0])[0]
        end = reading.lines_of(loop)[1]
        edits = [
            Edit(start, start, f"{outer}{kept}\n{outer}tl.debug_barrier()\n"),
            Edit(first, first, f"{inner}{fetched}\n"),
            Edit(end, end, f"{inner}{kept}\n{inner}tl.debug_barrier()\n{outer}{fetched}\n"),
        ]
        yield kernel.name, Change(edits, f"{kernel.name} keeps {name} in memory between steps", 1)


def _accumulated(kernel):
    """The name of the block, the loop and the store; None where the kernel is of another form."""
    body = kernel.node.body
    loops = [node for node in body if isinstance(node, ast.For | ast.While)]
    stores = [node for node in ast.walk(kernel.node) if is_call_of(node, "store")]
    last = body[-1].value if isinstance(body[-1], ast.Expr) else None
    if (
        len(loops) != 1
        or not isinstance(loops[0], ast.For)
        or len(stores) != 1
        or last is not stores[0]
    ):
        return None
    loop, store = loops[0], stores[0]
    before = body[: body.index(loop)]
    name = _stored_name(store)
    zeros = [node for node in before if _assigns(node, name) and is_call_of(node.value, "zeros")]
    updates = [node for node in loop.body if _assigns(node, name)]
    known = set(kernel.parameters) | {"tl"} | {n for node in before for n in _written(node)}
    places = names_in(store.args[0]).union(*(names_in(k.value) for k in store.keywords))
    changed = {n for node in body[len(before) :] for n in _written(node)}
    has_target = names_in(store.args[0]) & set(kernel.parameters)
    if len(zeros) != 1 or len(updates) != 1 or not places <= known - changed or not has_target:
        return None
    return name, loop, store


def _stored_name(store):
    """The name that is stored as it is, or converted."""
    value = store.args[1]
    if is_call_of(value, "to") and isinstance(value.func, ast.Attribute):
        value = value.func.value
    return value.id if isinstance(value, ast.Name) else ""


def _assigns(node, name):
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    is_assignment = isinstance(node, ast.Assign | ast.AugAssign)
    return is_assignment and isinstance(target, ast.Name) and target.id == name


def _written(node):
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
