"""Fuse an elementwise launch into the launch that reads its result: what was a buffer becomes a value in registers."""

import ast
from dataclasses import dataclass

from gpu_runner.proposals.child.tuning_sites import Change, Edit, is_call_of, names_in

_MOST_READS = 9


def fuse_producer(reading):
    """Compute an elementwise kernel's value where another kernel reads it, instead of through memory.

    Applies to two launches in one function, where the first kernel is a straight line over `offsets < count` that
    stores once, at `ptr + offsets`, into a buffer allocated in that function; the second launch is the only other place
    that mentions the buffer, and its kernel reads it (at any address, at most nine times) without a product. The value is
    recomputed per read, so this gains as long as the reads do not overlap much.
    """
    for first in reading.launches:
        producer = Producer.read(reading, first)
        if producer is None:
            continue
        for second in reading.launches:
            if second.scope is first.scope and second.call.lineno > first.call.lineno:
                change = _fused(reading, producer, first, second)
                if change is not None:
                    yield change


@dataclass
class Producer:
    """A kernel that computes one value per offset: its statements without the store, and the value stored."""

    offsets: str
    mask: str
    statements: list[ast.Assign]
    value: ast.expr
    out: str
    inputs: list[str]

    @classmethod
    def read(cls, reading, launch):
        kernel = launch.kernel
        body = _without_docstring(kernel.node)
        if len(body) < 3 or kernel.autotuned or not launched_once(reading, launch):
            return None
        match body[0], body[1]:
            case (
                ast.Assign(targets=[ast.Name(id=offsets)], value=place),
                ast.Assign(
                    targets=[ast.Name(id=mask)],
                    value=ast.Compare(
                        left=ast.Name(id=compared), ops=[ast.Lt()], comparators=[ast.Name(id=count)]
                    ),
                ),
            ) if compared == offsets and (block := _flat_block(place)):
                pass
            case _:
                return None
        *statements, store = body[2:]
        straight = all(
            isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name)
            for s in statements
        )
        if not straight or not (isinstance(store, ast.Expr) and is_call_of(store.value, "store")):
            return None
        if len(store.value.args) < 2:
            return None
        out = _offset_pointer(store.value.args[0], offsets, kernel)
        used = set().union(*(names_in(s) for s in [*statements, store.value.args[1]]))
        if out is None or out in used or block in used or count in used:
            return None
        inputs = [name for name in kernel.parameters if name in used]
        if any(name in kernel.constexprs or name not in launch.arguments for name in inputs):
            return None
        return cls(offsets, mask, statements, store.value.args[1], out, inputs)


def _fused(reading, producer, first, second):
    buffer = first.arguments.get(producer.out)
    if not isinstance(buffer, ast.Name) or second.kernel is first.kernel or second.kernel.uses_dot:
        return None
    slots = [
        n for n, v in second.arguments.items() if isinstance(v, ast.Name) and v.id == buffer.id
    ]
    if len(slots) != 1 or not launched_once(reading, second):
        return None
    made = _allocation(reading, first, second, buffer.id)
    reads = _reads(second.kernel, slots[0])
    if made is None or reads is None or _overwritten(reading, producer, first, second):
        return None
    names, added = _parameter_names(reading, producer, first, second, slots[0])
    edits = _kernel_edits(reading, producer, second.kernel, slots[0], reads, names, added)
    passed = {names[n]: reading.text(first.arguments[n]) for n in added}
    edits.append(_argument_edit(reading, second, slots[0], passed))
    launched = statement_of(first)
    if launched is None:
        return None
    edits += [
        Edit(*reading.lines_of(made), ""),
        Edit(*reading.lines_of(launched), ""),
        Edit(*with_blank_lines(reading, first.kernel.node), ""),
        *dead_grid(reading, first),
    ]
    return Change(
        edits,
        f"fuse {first.kernel.name} into {second.kernel.name}: {buffer.id} stays in registers",
        1.5,
    )


def _without_docstring(function):
    body = list(function.body)
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return body[1:]
    return body


def _flat_block(value):
    """BLOCK of `tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)`."""
    match value:
        case ast.BinOp(
            left=ast.BinOp(left=ast.Call() as place, op=ast.Mult(), right=ast.Name(id=block)),
            op=ast.Add(),
            right=ast.Call(args=[_, ast.Name(id=lanes)]) as arange,
        ) if is_call_of(place, "program_id") and is_call_of(arange, "arange") and lanes == block:
            return block
    return None


def _offset_pointer(address, offsets, kernel):
    match address:
        case ast.BinOp(left=ast.Name(id=pointer), op=ast.Add(), right=ast.Name(id=index)):
            return pointer if index == offsets and pointer in kernel.parameters else None
    return None


def launched_once(reading, launch):
    return sum(1 for other in reading.launches if other.kernel is launch.kernel) == 1


def _allocation(reading, first, second, buffer):
    """The statement that allocates a buffer which only the two launches mention; else None."""
    mentions = [n for n in ast.walk(first.scope) if isinstance(n, ast.Name) and n.id == buffer]
    made = allocations(first.scope, buffer)
    return made[0] if len(made) == 1 and len(mentions) == 3 else None


def allocations(scope, buffer):
    """The statements that give a name new memory by torch.empty or torch.empty_like."""
    return [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and is_call_of(node.value, "empty", "empty_like")
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == buffer
    ]


def _reads(kernel, pointer):
    """(statement, load, index) for every mention of a pointer; None if one is anything but a load at `ptr + index`."""
    found = []
    for statement in ast.walk(kernel.node):
        if not isinstance(statement, ast.Assign | ast.AugAssign):
            continue
        for node in ast.walk(statement):
            if not (is_call_of(node, "load") and node.args):
                continue
            match node.args[0]:
                case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=index) if (
                    name == pointer
                ):
                    found.append((statement, node, index))
    mentions = [n for n in ast.walk(kernel.node) if isinstance(n, ast.Name) and n.id == pointer]
    statements = {id(statement) for statement, _, _ in found}
    fits = len(mentions) == len(found) == len(statements) and 0 < len(found) <= _MOST_READS
    return found if fits else None


def _parameter_names(reading, producer, first, second, slot):
    """What the consumer calls the producer's inputs, and which of them it has to be given in the buffer's slot.

    An input that the consumer is given already is not passed twice, except to keep the slot filled.
    """
    taken = names_of(second.kernel)
    given = {
        reading.text(value): name
        for name, value in reversed(second.arguments.items())
        if name in second.kernel.parameters
        and name not in second.kernel.constexprs
        and name != slot
    }
    names, added = {}, []
    for name in producer.inputs:
        known = given.get(reading.text(first.arguments[name]))
        if known is None or (name == producer.inputs[-1] and not added):
            names[name] = free(name, taken)
            added.append(name)
        else:
            names[name] = known
    return names, added


def names_of(kernel):
    return {n.id for n in ast.walk(kernel.node) if isinstance(n, ast.Name)} | set(kernel.parameters)


def free(name, taken):
    """A name that is not taken, from now on taken."""
    free, count = name, 2
    while free in taken:
        free, count = f"{name}_{count}", count + 1
    taken.add(free)
    return free


def _kernel_edits(reading, producer, kernel, pointer, reads, names, added):
    slot = next(a for a in kernel.node.args.args if a.arg == pointer)
    edits = [reading.replace(slot, ", ".join(names[n] for n in added))]
    taken = names_of(kernel) | set(names.values())
    for statement, load, index in reads:
        lines, value = _inlined(reading, producer, load, index, dict(names), taken)
        begin, _ = reading.lines_of(statement)
        indent = " " * statement.col_offset
        edits.append(Edit(begin, begin, "".join(f"{indent}{line}\n" for line in lines)))
        simple = statement.value is load or value.isidentifier() or value.endswith(")")
        edits.append(reading.replace(load, value if simple else f"({value})"))
    return edits


def _inlined(reading, producer, load, index, local, taken):
    """The producer's statements at an index, and the text of the value in place of the load."""
    keywords = {k.arg: k.value for k in load.keywords}
    mask = keywords.get("mask", load.args[1] if len(load.args) > 1 else None)
    other = keywords.get("other", load.args[2] if len(load.args) > 2 else None)
    mask_text = reading.text(mask) if mask is not None else "None"
    local[producer.mask] = (
        mask_text if mask is None or isinstance(mask, ast.Name) else f"({mask_text})"
    )
    lines = []
    if isinstance(index, ast.Name):
        local[producer.offsets] = index.id
    else:
        local[producer.offsets] = free(producer.offsets, taken)
        lines.append(f"{local[producer.offsets]} = {reading.text(index)}")
    for statement in producer.statements:
        name = statement.targets[0].id
        local.setdefault(name, free(name, taken))
    lines += [renamed(reading, statement, local) for statement in producer.statements]
    value = renamed(reading, producer.value, local)
    if other is not None and mask is not None:
        value = f"tl.where({mask_text}, {value}, {reading.text(other)})"
    return lines, value


def renamed(reading, node, names):
    """The text of a node with names replaced, everything else as it was written."""
    start, text = reading.start(node), reading.text(node)
    spots = [
        (reading.start(n) - start, reading.end(n) - start, names[n.id])
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and n.id in names
    ]
    for begin, end, name in sorted(spots, reverse=True):
        text = text[:begin] + name + text[end:]
    return text


def _argument_edit(reading, launch, slot, passed):
    keyword = next((k for k in launch.call.keywords if k.arg == slot), None)
    if keyword is None:
        return reading.replace(launch.arguments[slot], ", ".join(passed.values()))
    return reading.replace(keyword, ", ".join(f"{name}={text}" for name, text in passed.items()))


def _overwritten(reading, producer, first, second):
    """Whether what the producer reads may be something else by the time the consumer runs."""
    wanted = {n for name in producer.inputs for n in names_in(first.arguments[name])}
    for launch in reading.launches:
        if (
            launch.scope is first.scope
            and first.call.lineno < launch.call.lineno <= second.call.lineno
        ):
            stored = _stored_parameters(launch.kernel)
            if any(names_in(v) & wanted for n, v in launch.arguments.items() if n in stored):
                return True
    return any(
        isinstance(node, ast.Assign | ast.AugAssign)
        and first.call.lineno < node.lineno < second.call.lineno
        and any(
            names_in(t) & wanted
            for t in (node.targets if isinstance(node, ast.Assign) else [node.target])
        )
        for node in ast.walk(first.scope)
    )


def _stored_parameters(kernel):
    stores = [n for n in ast.walk(kernel.node) if is_call_of(n, "store") or "atomic" in _called(n)]
    return {
        name for store in stores for name in names_in(store.args[0]) if name in kernel.parameters
    }


def _called(node):
    return (
        node.func.attr
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        else ""
    )


def statement_of(launch):
    return next(
        (n for n in ast.walk(launch.scope) if isinstance(n, ast.Expr) and n.value is launch.call),
        None,
    )


def with_blank_lines(reading, function):
    begin, end = reading.lines_of(function)
    while reading.source[end : end + 1] == "\n":
        end += 1
    return begin, end


def dead_grid(reading, launch):
    """The statement that made the first launch's grid, where a later one gives the name anew before its next use."""
    if not isinstance(launch.grid, ast.Name):
        return
    name, line = launch.grid.id, launch.call.lineno
    assigned = [
        node
        for node in ast.walk(launch.scope)
        if isinstance(node, ast.Assign)
        and [n.id for n in node.targets if isinstance(n, ast.Name)] == [name]
    ]
    before = [node for node in assigned if node.lineno < line]
    uses = sorted(
        node.lineno
        for node in ast.walk(launch.scope)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    )
    later = [use for use in uses if use > line]
    renewed = not later or any(line < node.lineno < later[0] for node in assigned)
    if before and renewed and [use for use in uses if before[-1].lineno < use <= line] == [line]:
        yield Edit(*reading.lines_of(before[-1]), "")
