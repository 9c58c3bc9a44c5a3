"""Which numbers of a task are sizes: the integers, dimensions and attributes that differ between full and probe size.

A program that is compiled once has to run at both sizes. So the task is built twice, without memory, and every number
that differs is expressed by the module-level integers that the probe changed: a dimension of 3072 that becomes 192 is
`3 * n_features` when `n_features` goes from 1024 to 64. What stays the same stays a constant of the program.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

_COUNTS = re.compile(r"(heads|groups?|experts|chunks?|windows?|patch(es)?|blocks?)$", re.I)
"""Names of sizes that other sizes are multiples of."""


@dataclass(frozen=True)
class Expression:
    """A size as `text` over names of size symbols; `value` at full size, `probe` at probe size."""

    text: str
    value: int
    probe: int


@dataclass
class Sizes:
    """The size symbols of a task and the expressions over them.

    `symbols` maps a name to its values at full and at probe size; it grows when a number matches no expression.
    `products` are task sizes that are a multiple of another, such as features of heads, written by their factors: so
    that what is divided and multiplied again is known to be the same.
    """

    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)
    products: dict[str, Expression] = field(default_factory=dict)

    @classmethod
    def of(cls, full: Mapping[str, int], probe: Mapping[str, int]) -> "Sizes":
        """From the values of module-level integers by `core.probe`'s keys: `name`, or `name[1]` in a tuple."""
        sizes = cls(
            {
                re.sub(r"\W+", "_", key).strip("_"): (full[key], value)
                for key, value in probe.items()
                if full[key] != value
            }
        )
        sizes._factor()
        return sizes

    def _factor(self) -> None:
        """Replace every symbol that is a multiple of a count of heads or groups by the two factors."""
        for name, (full, probe) in list(self.symbols.items()):
            for part in [other for other in self.symbols if _COUNTS.search(other)]:
                of_full, of_probe = self.symbols[part]
                if part == name or full % of_full or probe % of_probe:
                    continue
                if (
                    min(full // of_full, probe // of_probe) < 2
                    or full * of_probe == probe * of_full
                ):
                    continue
                factor = f"{name}_per_{part}"
                del self.symbols[name]
                self.symbols[factor] = (full // of_full, probe // of_probe)
                self.products[name] = Expression(f"{part} * {factor}", full, probe)
                break

    def expression(self, full: int, probe: int, fallback: str) -> Expression | None:
        """The simplest expression with these two values; None for a constant.

        Args:
            fallback: the name of the new symbol where nothing matches.
        """
        if full == probe:
            return None
        if full < 2 or probe < 2:
            raise ValueError(f"{fallback} is {full} at full and {probe} at probe size")
        for candidate in self._candidates():
            if (candidate.value, candidate.probe) == (full, probe):
                return candidate
        self.symbols[fallback] = (full, probe)
        return Expression(fallback, full, probe)

    def _candidates(self) -> Iterator[Expression]:
        symbols = [Expression(name, *values) for name, values in self.symbols.items()]
        yield from symbols
        symbols += self.products.values()
        yield from self.products.values()
        for factor, one in product(range(2, 17), symbols):
            yield Expression(f"{factor} * {one.text}", factor * one.value, factor * one.probe)
        for divisor, one in product((2, 3, 4, 8, 16), symbols):
            if one.value % divisor == 0 and one.probe % divisor == 0:
                text = (
                    f"({one.text}) // {divisor}" if " " in one.text else f"{one.text} // {divisor}"
                )
                yield Expression(text, one.value // divisor, one.probe // divisor)
        for one, other in product(symbols, symbols):
            yield Expression(
                f"{one.text} * {other.text}", one.value * other.value, one.probe * other.probe
            )
            if one.value % other.value == 0 and one.probe % other.probe == 0:
                text = f"({one.text}) // ({other.text})"
                yield Expression(text, one.value // other.value, one.probe // other.probe)
        for offset, one in product((1, -1, 2, -2), symbols):
            sign = "+" if offset > 0 else "-"
            text = f"{one.text} {sign} {abs(offset)}"
            yield Expression(text, one.value + offset, one.probe + offset)
