"""Find what can be tuned in a candidate: tile sizes, warps and stages, wherever their numbers are written.

The request is `{"source": str}`; the answer lists knobs, each with its current value, the values that a move may give it,
and the spans of text to replace. A number that other text repeats (the grid's `cdiv(M, 64)` beside `BLOCK_M=64`) is one
knob with several spans. What a kernel needs to be as it is (a block that must cover a whole row) is no knob.
"""

import ast
import re

from gpu_runner.proposals.child.tuning_sites import (
    Reading,
    Unreadable,
    derived_from_program_id,
    is_call_of,
    last_name,
    mentions_program_id,
    names_in,
)

_TILE_NAME = re.compile(
    r"BLOCK|TILE|GROUP|ROWS_PER|CHUNK|UNROLL|SPLIT|^B[A-Z]?$|^BLK", re.IGNORECASE
)
_WARPS = (1, 2, 4, 8, 16)
_STAGES = (1, 2, 3, 4, 5)
_MAX_KNOBS = 60


def knobs(request):
    """All knobs of a source: `[{"name", "kernel", "value", "choices", "spans": [[start, end, prefix]]}]`."""
    try:
        reading = Reading(request["source"])
    except Unreadable as error:
        return {"knobs": [], "reason": str(error)}
    found = {}
    for launch in reading.launches:
        for knob in [*_tiles(reading, launch), *_options(reading, launch)]:
            found.setdefault(tuple(map(tuple, knob["spans"])), knob)
    for knob in _configurations(reading):
        found.setdefault(tuple(map(tuple, knob["spans"])), knob)
    return {"knobs": list(found.values())[:_MAX_KNOBS]}


def _span(reading, node, prefix=""):
    return [reading.start(node), reading.end(node), prefix]


def _integer(node):
    """The value of an integer literal, also inside tl.constexpr(...); else None."""
    if isinstance(node, ast.Call) and last_name(node.func) == "constexpr" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node
    return None


def _tiles(reading, launch):
    """Tile sizes passed as literals or through a name, grouped where the grid repeats their value."""
    spread = {}
    for name, passed in launch.arguments.items():
        literal = _integer(reading.resolve(passed, launch.scope))
        if name not in launch.kernel.constexprs or literal is None or not _TILE_NAME.search(name):
            continue
        if not _is_power_of_two(literal.value) or not _may_vary(launch.kernel, name):
            continue
        spread[name] = literal
    grid = reading.resolve(launch.grid, launch.scope)
    used = set()
    for name, literal in spread.items():
        if name in used:
            continue
        together = [name]
        repeated = [n for n in ast.walk(grid) if _repeats(n, literal)]
        if _places_programs(launch.kernel, name) and not _grid_knows(reading, launch, grid, name):
            if not repeated:
                continue
            together = [
                other
                for other, value in spread.items()
                if value.value == literal.value and _places_programs(launch.kernel, other)
            ]
        else:
            repeated = []
        used.update(together)
        literals = {id(spread[n]): spread[n] for n in together}
        nodes = [*literals.values(), *repeated]
        yield {
            "name": " and ".join(together),
            "kernel": launch.kernel.name,
            "value": literal.value,
            "choices": _tile_choices(literal.value, launch.kernel, name),
            "spans": [_span(reading, node) for node in nodes],
        }


def _is_power_of_two(value):
    return value > 0 and value & (value - 1) == 0


def _repeats(node, literal):
    return (
        isinstance(node, ast.Constant)
        and type(node.value) is int
        and node.value == literal.value > 1
    )


def _may_vary(kernel, name):
    """Whether the kernel walks its data in steps of the block, so that any size covers all of it."""
    derived = derived_from_program_id(kernel)
    for node in ast.walk(kernel.node):
        if is_call_of(node, "range", "cdiv", "static_range") and any(
            name in names_in(argument) for argument in node.args
        ):
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Mod):
            sides = (node.left, node.right)
            if any(name in names_in(side) for side in sides) and any(
                mentions_program_id(side) or names_in(side) & derived for side in sides
            ):
                return True
    return False


def _places_programs(kernel, name):
    """Whether a program's part of the data begins at a multiple of the block, so that the grid has to follow it."""
    derived = derived_from_program_id(kernel)
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for block, place in ((node.left, node.right), (node.right, node.left)):
                direct = isinstance(block, ast.Name) and block.id == name
                if direct and (mentions_program_id(place) or names_in(place) & derived):
                    return True
    return False


def _grid_knows(reading, launch, grid, name):
    """Whether the grid is computed from the block: META["BLOCK"], the name passed for it, or any name for its value."""
    passed = launch.arguments[name]
    for node in ast.walk(grid):
        if isinstance(node, ast.Constant) and node.value == name:
            return True
        if isinstance(node, ast.Name) and isinstance(passed, ast.Name) and node.id == passed.id:
            return True
    return False


def _tile_choices(value, kernel, name):
    if "GROUP" in name.upper():
        low, high = 1, 32
    elif kernel.uses_dot:
        low, high = 16, 256
    else:
        low, high = 1, 16384
    return [size for size in (value // 2, value * 2, value // 4, value * 4) if low <= size <= high]


def _options(reading, launch):
    """num_warps and num_stages of a launch, written or not; an autotuned kernel takes them from its configurations."""
    if launch.kernel.autotuned:
        return
    loops = any(isinstance(node, ast.For) for node in ast.walk(launch.kernel.node))
    for name, default, choices in (("num_warps", 4, _WARPS), ("num_stages", 3, _STAGES)):
        if name == "num_stages" and not loops:
            continue
        passed = launch.arguments.get(name)
        if passed is None:
            yield _option(launch, name, default, choices, [_insertion(reading, launch, name)])
            continue
        literal = _integer(reading.resolve(passed, launch.scope))
        if literal is not None:
            yield _option(launch, name, literal.value, choices, [_span(reading, literal)])


def _insertion(reading, launch, name):
    """Where a missing option is added: after the last argument."""
    last = max(
        [*launch.call.args, *(keyword.value for keyword in launch.call.keywords)],
        key=reading.end,
        default=None,
    )
    place = reading.end(launch.call) - 1 if last is None else reading.end(last)
    return [place, place, f"{'' if last is None else ', '}{name}="]


def _option(launch, name, value, choices, spans):
    position = choices.index(value) if value in choices else len(choices) // 2
    near = [choices[i] for i in (position - 1, position + 1) if 0 <= i < len(choices)]
    return {
        "name": name,
        "kernel": launch.kernel.name,
        "value": value,
        "choices": [choice for choice in near if choice != value],
        "spans": spans,
    }


def _configurations(reading):
    """The numbers in triton.Config({...}, num_warps=..., num_stages=...) of autotuned kernels."""
    for kernel in reading.kernels.values():
        for decorator in kernel.node.decorator_list:
            for call in ast.walk(decorator):
                if is_call_of(call, "Config") and call.args and isinstance(call.args[0], ast.Dict):
                    yield from _configuration(reading, kernel, call)


def _configuration(reading, kernel, call):
    meta = call.args[0]
    entries = [
        (key.value, value, None)
        for key, value in zip(meta.keys, meta.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]
    entries += [
        (keyword.arg, keyword.value, {"num_warps": _WARPS, "num_stages": _STAGES}[keyword.arg])
        for keyword in call.keywords
        if keyword.arg in ("num_warps", "num_stages")
    ]
    for name, node, choices in entries:
        literal = _integer(node)
        if literal is None or not (choices or _TILE_NAME.search(name)):
            continue
        if choices is None and not (_is_power_of_two(literal.value) and _may_vary(kernel, name)):
            continue
        near = choices or _tile_choices(literal.value, kernel, name)
        if choices and literal.value in choices:
            position = choices.index(literal.value)
            near = [choices[i] for i in (position - 1, position + 1) if 0 <= i < len(choices)]
        yield {
            "name": name,
            "kernel": kernel.name,
            "value": literal.value,
            "choices": list(near),
            "spans": [_span(reading, literal)],
        }
