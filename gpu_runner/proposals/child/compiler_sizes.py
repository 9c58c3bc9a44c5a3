"""Which numbers of a task are sizes: the integers, dimensions and attributes that differ between full and probe size.

A program that is compiled once has to run at both sizes. So the task is built twice, without memory, and every number
that differs is expressed by the module-level integers that the probe changed: a dimension of 3072 that becomes 192 is
`3 * n_features` when `n_features` goes from 1024 to 64. What stays the same stays a constant of the program. Sizes that
are equal at both, such as height and width, are told apart by a third build where the task allows one.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import floordiv, mul

_COUNTS = re.compile(r"(heads|groups?|experts|chunks?|windows?|patch(es)?|blocks?)$", re.I)
"""Names of sizes that other sizes are multiples of."""


@dataclass(frozen=True)
class Expression:
    """A size as `text` over names of size symbols, and its `values` at full, probe and further sizes."""

    text: str
    values: tuple[int, ...]

    def combined(
        self, text: str, other: "Expression", with_: Callable[[int, int], int]
    ) -> "Expression":
        pairs = zip(self.values, other.values, strict=True)
        return Expression(text, tuple(with_(a, b) for a, b in pairs))

    def is_multiple_of(self, other: "Expression") -> bool:
        pairs = zip(self.values, other.values, strict=True)
        return all(b > 0 and a % b == 0 for a, b in pairs)


@dataclass
class Sizes:
    """The size symbols of a task and the expressions over them.

    `symbols` maps a name to its values at full, probe and further sizes; it grows when a number matches no expression.
    `products` are task sizes that are a multiple of another, such as features of heads, written by their factors: so
    that what is divided and multiplied again is known to be the same.
    """

    symbols: dict[str, tuple[int, ...]] = field(default_factory=dict)
    products: dict[str, Expression] = field(default_factory=dict)

    @classmethod
    def of(cls, *assignments: Mapping[str, int]) -> "Sizes":
        """From values of module-level integers by `core.probe`'s keys, `name` or `name[1]`: full, probe, further."""
        full, probe, *_ = assignments
        sizes = cls(
            {
                re.sub(r"\W+", "_", key).strip("_"): tuple(values[key] for values in assignments)
                for key in full
                if full[key] != probe[key]
            }
        )
        sizes._factor()
        return sizes

    def _factor(self) -> None:
        """Replace every symbol that is a multiple of a count of heads or groups by the two factors."""
        for name, values in list(self.symbols.items()):
            whole = Expression(name, values)
            for part in [other for other in self.symbols if _COUNTS.search(other)]:
                count = Expression(part, self.symbols[part])
                if part == name or not whole.is_multiple_of(count):
                    continue
                factor = whole.combined(f"{name}_per_{part}", count, floordiv)
                if min(factor.values) < 2 or len(set(factor.values)) == 1:
                    continue
                del self.symbols[name]
                self.symbols[factor.text] = factor.values
                self.products[name] = Expression(f"{part} * {factor.text}", values)
                break

    def expression(self, values: Sequence[int], fallback: str) -> Expression | None:
        """The simplest expression with these values; None for a constant.

        Args:
            fallback: the name of the new symbol where nothing matches.
        """
        if len(set(values)) == 1:
            return None
        if min(values) < 2:
            raise ValueError(f"{fallback} is {values[0]} at full and {values[1]} at probe size")
        for candidate in self._candidates():
            if candidate.values == tuple(values):
                return candidate
        self.symbols[fallback] = tuple(values)
        return Expression(fallback, tuple(values))

    def _candidates(self) -> Iterator[Expression]:
        known = [Expression(name, values) for name, values in self.symbols.items()]
        known += self.products.values()
        yield from known
        for factor, one in product(range(2, 17), known):
            yield Expression(f"{factor} * {one.text}", tuple(factor * v for v in one.values))
        for divisor, one in product((2, 3, 4, 8, 16), known):
            number = Expression(str(divisor), (divisor,) * len(one.values))
            if one.is_multiple_of(number):
                text = (
                    f"({one.text}) // {divisor}" if " " in one.text else f"{one.text} // {divisor}"
                )
                yield one.combined(text, number, floordiv)
        for one, other in product(known, known):
            yield one.combined(f"{one.text} * {other.text}", other, mul)
            if one.is_multiple_of(other):
                yield one.combined(f"({one.text}) // ({other.text})", other, floordiv)
        for offset, one in product((1, -1, 2, -2), known):
            sign = "+" if offset > 0 else "-"
            text = f"{one.text} {sign} {abs(offset)}"
            yield Expression(text, tuple(v + offset for v in one.values))


def told_apart(full: Mapping[str, int], probe: Mapping[str, int]) -> dict[str, int] | None:
    """The probe with different values for sizes that are equal at both, such as height and width; None if none are."""
    values = dict(probe)
    seen: dict[tuple[int, int], int] = {}
    for key in full:
        pair = (full[key], probe[key])
        if pair[0] != pair[1]:
            seen[pair] = seen.get(pair, -2) + 2
            values[key] = probe[key] + seen[pair]
    return values if values != dict(probe) else None
