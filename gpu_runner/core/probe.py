"""Probe sizes: from a task's module-level integers, a smaller task that still runs and still has a ragged tail.

KernelBench sources name their sizes at module level (`batch_size = 128`). `probe_assignments` proposes smaller values in
the order in which a caller should try them until the reference runs; `with_assignments` puts them into the source.
The rules are guesses about what sizes mean, so the first proposals may fail, and the last changes nothing.

- A value that is at most 8 stays, and so do kernel sizes, strides, paddings, dilations and seeds.
- Counts of heads and groups become 4; what they divide stays a multiple of them, and features per head a power of two.
- Other sizes become ragged (no multiple of 16), different ones different, until the largest input has 50,000 elements.
- Equal values stay equal; the first proposal lets a batch, a length or an image differ from an equal feature size.
- What the task computes between its inputs and outputs is not read from the source: who has counted it and finds it too
  much asks again for fewer elements.
"""

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_runner.core.source import Problem, parse

MOST_ELEMENTS: Final = 50_000
FEWEST_ELEMENTS: Final = 1_000
MOST_GROWN: Final = 1 << 19
SMALLEST_GROWN: Final = 16
LARGEST_KEPT: Final = 8
_RAGGED: Final = (521, 259, 131, 67, 37, 19, 11)
_ALIGNED: Final = (512, 256, 128, 64, 32, 16)
_BATCH: Final = (67, 37, 19, 11, 5, 3, 2)
_DIVIDERS: Final = 4
_FEATURES_PER_HEAD: Final = 16

_KEPT_NAMES = re.compile(r"kernel|stride|pad|dilat|seed|axis|layers|top_?k|bits", re.I)
_BATCH_NAMES = re.compile(r"batch|^bs$|^b$|samples", re.I)
_DIVIDER_NAMES = re.compile(r"(heads|groups?|experts|patch|window|chunk|block)(_size)?$", re.I)
_HEAD_DIM_NAMES = re.compile(r"head_?(dim|size)|^d_?head|dim_?head|d_k$", re.I)
_LENGTH_NAMES = re.compile(
    r"seq|tok|len|time|steps|height|width|depth|rows|cols|^[hwtlmn]$|image", re.I
)


@dataclass(frozen=True)
class Size:
    """One integer literal assigned at module level; `key` is "name", or "name[1]" inside a tuple or list."""

    key: str
    value: int
    line: int  # from 1
    start: int  # in bytes of the line
    end: int

    @property
    def name(self) -> str:
        return self.key.partition("[")[0]

    @property
    def is_kept(self) -> bool:
        small = self.value <= LARGEST_KEPT and not _BATCH_NAMES.search(self.name)
        return small or self.value <= 2 or bool(_KEPT_NAMES.search(self.name))


def sizes(source: str) -> list[Size]:
    """The module-level integer literals of a source, in order; none if it does not parse within the bounds."""
    tree = parse(source)
    if isinstance(tree, Problem):
        return []
    found = [size for statement in tree.body for size in _sizes_of(statement)]
    last = {size.key: size for size in found}
    # A name assigned twice is not a plain size.
    return [size for size in found if last[size.key] is size and _once(size, found)]


def _once(size: Size, found: list[Size]) -> bool:
    return sum(other.key == size.key for other in found) == 1


def _sizes_of(statement: ast.stmt) -> Iterator[Size]:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        targets: list[ast.expr] = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        return
    value = statement.value
    if value is None or len(targets) != 1:
        return
    target = targets[0]
    if isinstance(target, ast.Name):
        yield from _literals(target.id, value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):
            if isinstance(one, ast.Name):
                yield from _literals(one.id, its)


def _literals(name: str, value: ast.expr) -> Iterator[Size]:
    if isinstance(value, (ast.Tuple, ast.List)):
        for i, element in enumerate(value.elts):
            yield from _literals(f"{name}[{i}]", element)
    elif isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0:
        end = value.end_col_offset
        if end is not None and value.end_lineno == value.lineno:
            yield Size(name, value.value, value.lineno, value.col_offset, end)


def with_assignments(source: str, values: Mapping[str, int]) -> str:
    """The source with these module-level integers replaced, everything else as it was.

    Raises:
        KeyError: a key is no module-level integer of the source.
    """
    known = {size.key: size for size in sizes(source)}
    lines = source.encode().splitlines(keepends=True)
    for size in sorted((known[key] for key in values), key=lambda s: (-s.line, -s.start)):
        line = lines[size.line - 1]
        lines[size.line - 1] = (
            line[: size.start] + str(values[size.key]).encode() + line[size.end :]
        )
    return b"".join(lines).decode()


def probe_assignments(source: str, most_elements: int = MOST_ELEMENTS) -> list[dict[str, int]]:
    """Smaller values to try in order until the reference runs; the last one is empty: no change.

    Args:
        most_elements: of the largest input, and of the largest matrix that two sizes span.
    """
    found = sizes(source)
    if not found:
        return [{}]
    free = _Shrinking(source, found, _by_role, _RAGGED).values(most_elements)
    equal = _Shrinking(source, found, _by_value, _RAGGED).values(most_elements)
    aligned = aligned_assignments(source, most_elements)
    proposals = [free, equal, aligned, _halved(found), {}]
    return [p for i, p in enumerate(proposals) if p not in proposals[:i]]


def aligned_assignments(source: str, most_elements: int = MOST_ELEMENTS) -> dict[str, int]:
    """Smaller values that keep the divisibility of the full ones: multiples of 16 stay multiples of 16.

    For a candidate that fails at a ragged probe only: right at this one, it relies on the full sizes being aligned.
    """
    return _Shrinking(source, sizes(source), _by_role, _ALIGNED).values(most_elements)


def grown_assignments(source: str, most_elements: int = MOST_ELEMENTS) -> list[dict[str, int]]:
    """The aligned probe with one of its sizes back at its full value, that which shrank most first.

    What was made for the probe's sizes, a block that spans a row of it for one, fails at one of these.
    """
    base = aligned_assignments(source, most_elements)
    found = sizes(source)
    shapes = list(_input_shapes(source))

    def largest(values: Mapping[str, int]) -> float:
        all_values = {size.key: float(values.get(size.key, size.value)) for size in found}
        return max((_product(shape, all_values) for shape in shapes), default=0.0)

    pairs = {(size.value, base[size.key]) for size in found if size.key in base}
    grown = []
    for pair in sorted(pairs, key=lambda pair: (-pair[0] / pair[1], pair)):
        together = {s.key for s in found if (s.value, base.get(s.key)) == pair}
        values = {key: value for key, value in base.items() if key not in together}
        while largest(values) > MOST_GROWN and max(values.values(), default=0) > SMALLEST_GROWN:
            key = max(values, key=lambda key: values[key])
            values[key] //= 2
        if largest(values) <= MOST_GROWN:
            grown.append(values)
    return grown


def _halved(found: list[Size]) -> dict[str, int]:
    """Every large value divided by the same power of two, so that all ratios stay."""
    large = [size.value for size in found if not size.is_kept]
    factor = 1
    while large and min(large) // (factor * 2) >= 4 and all(v % (factor * 2) == 0 for v in large):
        factor *= 2
    if factor == 1:
        return {}
    return {size.key: size.value // factor for size in found if not size.is_kept}


def _by_role(size: Size) -> str:
    for role, names in (
        ("batch", _BATCH_NAMES),
        ("divider", _DIVIDER_NAMES),
        ("head_dim", _HEAD_DIM_NAMES),
    ):
        if names.search(size.name):
            return role
    return "length" if _LENGTH_NAMES.search(size.name) else "feature"


def _by_value(size: Size) -> str:
    return "divider" if _DIVIDER_NAMES.search(size.name) else ""


class _Shrinking:
    """Classes of sizes that change together, shrunk step by step until the inputs are small enough."""

    def __init__(
        self,
        source: str,
        found: list[Size],
        role_of: Callable[[Size], str],
        ladder: tuple[int, ...],
    ) -> None:
        self.found = found
        self.ladder = ladder
        self.shapes = list(_input_shapes(source))
        self.classes: dict[tuple[str, int], list[Size]] = {}
        for size in found:
            if not size.is_kept:
                self.classes.setdefault((role_of(size), size.value), []).append(size)
        self.chosen = {key: self._first(key) for key in self.classes}

    def values(self, most_elements: int) -> dict[str, int]:
        while self._elements() > most_elements and self._shrink_one():
            pass
        self._keep_multiples()
        return {
            size.key: self.chosen[key]
            for key, members in self.classes.items()
            for size in members
            if self.chosen[key] != size.value
        }

    def _is_batch(self, key: tuple[str, int]) -> bool:
        return all(_BATCH_NAMES.search(size.name) for size in self.classes[key])

    def _steps(self, key: tuple[str, int]) -> tuple[int, ...]:
        members = self.classes[key]
        if all(_HEAD_DIM_NAMES.search(size.name) for size in members):
            return (_FEATURES_PER_HEAD * 2, _FEATURES_PER_HEAD)
        if key[0] == "divider" or all(_DIVIDER_NAMES.search(size.name) for size in members):
            return (_DIVIDERS,)
        if self._is_batch(key):
            return _BATCH if self.ladder is _RAGGED else (64, 32, 16, 8, 4, 2)
        return self.ladder

    def _first(self, key: tuple[str, int]) -> int:
        """The largest step below the value that no other class has."""
        _, value = key
        for step in self._steps(key):
            if step < value and (self.ladder is _RAGGED or value % step == 0):
                return step
        return value

    def _shrink_one(self) -> bool:
        """One step for a batch that is above 3, else for the largest; False when nothing can shrink."""
        order = sorted(
            self.classes,
            key=lambda key: (self._is_batch(key) and self.chosen[key] > 3, self.chosen[key]),
            reverse=True,
        )
        for key in order:
            smaller = [
                step
                for step in self._steps(key)
                if step < self.chosen[key] and (self.ladder is _RAGGED or key[1] % step == 0)
            ]
            if smaller:
                self.chosen[key] = smaller[0]
                return True
        return False

    def _elements(self) -> float:
        """Of the largest input, and of the largest matrix that two sizes other than the batch can span."""
        values = {size.key: float(size.value) for size in self.found}
        for key, members in self.classes.items():
            values.update({size.key: float(self.chosen[key]) for size in members})
        largest = max((_product(shape, values) for shape in self.shapes), default=0.0)
        others = sorted(float(self.chosen[key]) for key in self.classes if not self._is_batch(key))[
            -2:
        ]
        return max(largest, math.prod(others))

    def _keep_multiples(self) -> None:
        """Make ragged values different, and what heads and groups divide a multiple of them."""
        dividers = [
            (key, self.chosen[key])
            for key in self.classes
            if all(_DIVIDER_NAMES.search(size.name) for size in self.classes[key])
        ]
        kept = [
            (("divider", size.value), size.value)
            for size in self.found
            if size.is_kept and _DIVIDER_NAMES.search(size.name) and size.value > 1
        ]
        taken: set[int] = {size.value for size in self.found if size.is_kept}
        for key in sorted(self.classes, key=lambda key: key[1]):
            if (key, self.chosen[key]) in dividers or self._is_batch(key):
                continue
            divided_by = [(old, new) for (_, old), new in dividers + kept if key[1] % old == 0]
            if key[0] in ("", "feature") and divided_by:
                self.chosen[key] = self._multiple(key, divided_by)
            elif self.ladder is _RAGGED and self.chosen[key] not in (16, 32):
                self.chosen[key] = _unlike(self.chosen[key], taken)
            taken.add(self.chosen[key])

    def _multiple(self, key: tuple[str, int], divided_by: list[tuple[int, int]]) -> int:
        """A multiple of all new dividers; a power of two of features per head where heads divide."""
        unit = math.lcm(*(new for _, new in divided_by))
        is_heads = any("head" in size.name for size in self.found if size.value in dict(divided_by))
        if is_heads:
            features = min(_FEATURES_PER_HEAD, key[1] // max(old for old, _ in divided_by))
            return unit * features
        count = max(2, self.chosen[key] // unit)
        if self.ladder is _ALIGNED:
            return min(unit * (1 << (count.bit_length() - 1)), key[1])
        ragged = count if count % 2 or count == 2 else count - 1
        return min(unit * ragged, key[1])


def _unlike(value: int, taken: set[int]) -> int:
    """The value, or one a little below it that is not taken and no multiple of 16."""
    for candidate in itertools.chain(
        range(value, max(value - 16, 2), -2), range(value + 2, 2000, 2)
    ):
        if candidate not in taken and candidate % 16:
            return candidate
    return value


# --------------------------------------------------------------------------------------------------------------------
# Shapes of the inputs, as far as they can be read

Shape = tuple["int | str", ...]

_RANDOM = re.compile(r"^(randn?|randint|zeros|ones|empty|full|rand_like|normal|uniform)$")


def _product(shape: Shape, values: Mapping[str, float]) -> float:
    return math.prod(values.get(n, 1.0) if isinstance(n, str) else float(n) for n in shape)


def _input_shapes(source: str) -> Iterator[Shape]:
    """Shapes of the tensors that `get_inputs` creates, in names and numbers; what cannot be read counts as 1."""
    tree = parse(source)
    if isinstance(tree, Problem):
        return
    constants = _named_tuples(tree)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name.startswith("get_input"):
            names = {**constants, **_named_tuples(function)}
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and _called(call) is not None:
                    shape = _shape_of(call, names)
                    if shape:
                        yield shape


def _called(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Attribute) and _RANDOM.match(call.func.attr):
        return call.func.attr
    return None


def _named_tuples(scope: ast.Module | ast.FunctionDef) -> dict[str, ast.Tuple | ast.List]:
    return {
        target.id: statement.value
        for statement in scope.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, (ast.Tuple, ast.List))
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def _shape_of(call: ast.Call, names: Mapping[str, ast.Tuple | ast.List]) -> Shape:
    size = next((k.value for k in call.keywords if k.arg == "size"), None)
    arguments = [size] if size is not None else list(call.args)
    if _called(call) == "randint" and size is None:
        arguments = [a for a in arguments if _is_tuple(a, names)]
    return tuple(itertools.chain.from_iterable(_numbers(a, names) for a in arguments))


def _is_tuple(node: ast.expr, names: Mapping[str, ast.Tuple | ast.List]) -> bool:
    return isinstance(node, (ast.Tuple, ast.List)) or (
        isinstance(node, ast.Name) and node.id in names
    )


def _numbers(
    node: ast.expr, names: Mapping[str, ast.Tuple | ast.List], depth: int = 0
) -> Iterator[int | str]:
    if isinstance(node, ast.Starred):
        node = node.value
    if isinstance(node, ast.Name) and node.id in names and depth < 4:
        whole = names[node.id]
        for i, element in enumerate(whole.elts):
            is_literal = isinstance(element, ast.Constant)
            if is_literal:
                yield f"{node.id}[{i}]"
            else:
                yield from _numbers(element, names, depth + 1)
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield node.value
    elif isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from _numbers(element, names, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from _numbers(node.left, names, depth + 1)
        yield from _numbers(node.right, names, depth + 1)
