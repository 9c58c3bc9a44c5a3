"""Fuse an elementwise launch into the product before it: what it computes becomes the product's epilogue."""

import ast
from dataclasses import dataclass

from gpu_runner.proposals.child.rewrites_fusion import (
    Producer,
    allocations,
    dead_grid,
    free,
    launched_once,
    names_of,
    renamed,
    statement_of,
    with_blank_lines,
)
from gpu_runner.proposals.child.tuning_sites import Change, Edit, Launch, is_call_of, names_in


def fuse_epilogue(reading):
    """Finish a matrix product in registers instead of reading it back from memory.

    Applies where `y = product(...)` is read by one elementwise launch and mentioned nowhere else, the function `product`
    is called once, returns a contiguous `out` that its one kernel with `tl.dot` stores last, at `out_ptr + places`, and
    the elementwise kernel reads y at its own offset. What else the elementwise kernel reads is read at the same places.
    """
    for launch in reading.launches:
        consumer = Producer.read(reading, launch)
        if consumer is None or launch.kernel.uses_dot:
            continue
        for name, value in launch.arguments.items():
            if name in consumer.inputs and isinstance(value, ast.Name):
                product = _product_of(reading, launch, value.id)
                if product is not None:
                    change = _fused(reading, launch, consumer, name, product)
                    if change is not None:
                        yield change


@dataclass
class _Product:
    """A host function that launches one product kernel, and the one statement that calls it."""

    function: ast.FunctionDef
    launch: Launch
    made: ast.Assign
    store: ast.Expr
    out: str
    places: str
    result: str


def _product_of(reading, consumer, buffer):
    mentions = [n for n in ast.walk(consumer.scope) if isinstance(n, ast.Name) and n.id == buffer]
    made = [
        node
        for node in ast.walk(consumer.scope)
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == buffer
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
    ]
    if len(made) != 1 or len(mentions) != 2 or made[0].lineno > consumer.call.lineno:
        return None
    name = made[0].value.func.id
    calls = [n for n in ast.walk(reading.tree) if isinstance(n, ast.Name) and n.id == name]
    functions = [n for n in reading.tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    launches = [launch for launch in reading.launches if launch.scope in functions]
    if len(functions) != 1 or len(launches) != 1 or len(calls) != 1:
        return None
    if any(keyword.arg == "out" for keyword in made[0].value.keywords):
        return None
    return _read_product(reading, functions[0], launches[0], made[0])


def _read_product(reading, function, launch, made):
    returns = function.body[-1]
    parameters = [a.arg for a in [*function.args.args, *function.args.kwonlyargs]]
    is_out = (
        isinstance(returns, ast.Return)
        and isinstance(returns.value, ast.Name)
        and returns.value.id == "out"
    )
    if not is_out or "out" not in parameters or function.args.kwarg or not launch.kernel.uses_dot:
        return None
    out = next(
        (n for n, v in launch.arguments.items() if isinstance(v, ast.Name) and v.id == "out"), None
    )
    store = _last_statement(launch.kernel.node.body)
    if out is None or not (isinstance(store, ast.Expr) and is_call_of(store.value, "store")):
        return None
    address, value = store.value.args[:2]
    if isinstance(address, ast.Name):
        address = reading.resolve(address, launch.kernel.node)
    match address, value:
        case (
            ast.BinOp(left=ast.BinOp() | ast.Name() as left, op=ast.Add(), right=right),
            ast.Call(func=ast.Attribute(value=ast.Name(id=result), attr="to")),
        ):
            terms = [*_terms(left), right]
        case _:
            return None
    if not (
        isinstance(terms[0], ast.Name) and terms[0].id == out and launched_once(reading, launch)
    ):
        return None
    places = " + ".join(reading.text(term) for term in terms[1:])
    return _Product(function, launch, made, store, out, places, result)


def _last_statement(body):
    """Also of a product that is finished in parts, one after the other."""
    return _last_statement(body[-1].body) if isinstance(body[-1], ast.For) else body[-1]


def _terms(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), node.right]
    return [node]


def _fused(reading, launch, consumer, pointer, product):
    loads = [
        s
        for s in consumer.statements
        if any(n.id == pointer for n in ast.walk(s) if isinstance(n, ast.Name))
    ]
    buffer = launch.arguments.get(consumer.out)
    if len(loads) != 1 or not _reads_own_offset(loads[0].value, pointer, consumer.offsets):
        return None
    if not isinstance(buffer, ast.Name) or not launched_once(reading, launch):
        return None
    allocated = allocations(launch.scope, buffer.id)
    launched = statement_of(launch)
    if len(allocated) != 1 or launched is None or _reassigned(launch, product, consumer):
        return None
    mask = next((k.value for k in product.store.value.keywords if k.arg == "mask"), None)
    if not isinstance(mask, ast.Name):
        return None
    names, extra = _names(consumer, pointer, product)
    edits = _kernel_edits(reading, consumer, loads[0], product, mask.id, names, extra)
    edits += _host_edits(reading, launch, product, buffer.id, allocated[0], names, extra)
    edits += [
        Edit(*reading.lines_of(product.made), ""),
        Edit(*with_blank_lines(reading, launch.kernel.node), ""),
        *dead_grid(reading, launch),
    ]
    return Change(
        edits,
        f"finish {product.function.name} with {launch.kernel.name} in registers, one launch instead of two",
        1.3,
    )


def _reads_own_offset(value, pointer, offsets):
    """Whether a value is a load at `pointer + offsets`, perhaps converted."""
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "to"
    ):
        value = value.func.value
    if not is_call_of(value, "load"):
        return False
    match value.args[0]:
        case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=ast.Name(id=index)):
            return name == pointer and index == offsets
    return False


def _reassigned(launch, product, consumer):
    """Whether the product's arguments, or the elementwise kernel's, mean something else at the other's place."""
    wanted = names_in(product.made.value)
    between = [
        node
        for node in ast.walk(launch.scope)
        if isinstance(node, ast.stmt) and product.made.lineno < node.lineno < launch.call.lineno
    ]
    for node in between:
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(names_in(target) & wanted for target in targets):
                return True
        if isinstance(node, ast.Expr) and names_in(node) & wanted:
            return True
    return False


def _names(consumer, pointer, product):
    """New names for the elementwise kernel's values and inputs in the product's kernel and function."""
    taken = names_of(product.launch.kernel) | {
        n.id for n in ast.walk(product.function) if isinstance(n, ast.Name)
    }
    extra = [name for name in consumer.inputs if name != pointer]
    names = {name: free(name, taken) for name in [consumer.offsets, *extra]}
    for statement in consumer.statements:
        names.setdefault(statement.targets[0].id, free(statement.targets[0].id, taken))
    return names, extra


def _kernel_edits(reading, consumer, load, product, mask, names, extra):
    kernel = product.launch.kernel
    slot = next(a for a in kernel.node.args.args if a.arg == product.out)
    local = {**names, consumer.mask: mask, load.targets[0].id: product.result}
    lines = []
    if any(consumer.offsets in names_in(s) for s in consumer.statements if s is not load):
        lines.append(f"{names[consumer.offsets]} = {product.places}")
    lines += [renamed(reading, s, local) for s in consumer.statements if s is not load]
    value = renamed(reading, consumer.value, local)
    begin, _ = reading.lines_of(product.store)
    indent = " " * product.store.col_offset
    result = product.store.value.args[1].func.value
    edits = [Edit(begin, begin, "".join(f"{indent}{line}\n" for line in lines))]
    edits.append(reading.replace(result, value if value.isidentifier() else f"({value})"))
    if extra:
        edits.append(
            Edit(reading.end(slot), reading.end(slot), "".join(f", {names[n]}" for n in extra))
        )
    return edits


def _host_edits(reading, launch, product, buffer, allocated, names, extra):
    function, call = product.function, product.made.value
    out = product.launch.arguments[product.out]
    signature = function.args
    place = max(
        [
            *signature.args,
            *signature.kwonlyargs,
            *signature.defaults,
            *filter(None, signature.kw_defaults),
        ],
        key=reading.end,
    )
    star = "" if signature.kwonlyargs else ", *"
    taken = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    taken |= {a.arg for a in [*signature.args, *signature.kwonlyargs]}
    own = {n: free(names[n].removesuffix("_ptr"), taken) for n in extra}
    shaped = (
        isinstance(allocated.value.args[0], ast.Tuple) and len(allocated.value.args[0].elts) == 2
    )
    target = buffer if shaped else f"{buffer}.view(-1, {buffer}.shape[-1])"
    if "batched" in product.launch.kernel.name or "bmm" in product.launch.kernel.name:
        target = buffer
    passed = [f"out={target}", *(f"{own[n]}={reading.text(launch.arguments[n])}" for n in extra)]
    edits = [
        reading.replace(
            launch.call, f"{reading.text(call)[:-1].rstrip(', ')}, {', '.join(passed)})"
        )
    ]
    if extra:
        added = "".join(f", {own[n]}" for n in extra)
        edits.append(Edit(reading.end(place), reading.end(place), star + added))
        edits.append(Edit(reading.end(out), reading.end(out), added))
    return edits
