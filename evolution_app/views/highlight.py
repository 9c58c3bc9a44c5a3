"""Python source as lines of HTML, coloured by Pygments, with marked words where a diff wants them.

Lines are those of `str.splitlines`, as everywhere else that numbers lines. Every character of the source is escaped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString
from pygments.lexers.python import PythonLexer
from pygments.token import STANDARD_TYPES, _TokenType

Span = tuple[int, int]
Coloured = tuple[int, int, str]

MAX_COLOURED_LINE = 2000
"""Longer lines are shown plain: nobody reads them, and colouring them is slow."""


@dataclass(frozen=True)
class Line:
    number: int
    text: str
    colours: tuple[Coloured, ...]

    @property
    def html(self) -> SafeString:
        return self.marked((), "ins")

    def marked(self, spans: Sequence[Span], tag: str) -> SafeString:
        """The line with `spans` (half-open, in order) wrapped in `tag`, which is `ins` or `del`."""
        cuts = sorted(
            {
                0,
                len(self.text),
                *(c for s in spans for c in s),
                *(c for s in self.colours for c in s[:2]),
            }
        )
        pieces = SafeString("")
        for begin, end in pairwise(cuts):
            piece = self._coloured(begin, end)
            if any(start <= begin and end <= stop for start, stop in spans):
                piece = format_html("<{0}>{1}</{0}>", SafeString(tag), piece)
            pieces += piece
        return pieces

    def _coloured(self, begin: int, end: int) -> SafeString:
        text = escape(self.text[begin:end])
        for start, stop, css in self.colours:
            if start <= begin and end <= stop:
                return format_html('<span class="{}">{}</span>', css, text)
        return text


@lru_cache(maxsize=128)
def lines_of(source: str) -> tuple[Line, ...]:
    """The source's lines with their colours; cached by content."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    colours = list(_colours(source))
    lines: list[Line] = []
    begin = at = 0
    for number, text in enumerate(source.splitlines(keepends=True), start=1):
        end = begin + len(text)
        while at < len(colours) and colours[at][1] <= begin:
            at += 1
        bare = text.rstrip("\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
        own = tuple(_within(colours, at, begin, begin + len(bare)))
        lines.append(Line(number, bare, own if len(bare) <= MAX_COLOURED_LINE else ()))
        begin = end
    return tuple(lines)


def _within(colours: list[Coloured], at: int, begin: int, end: int) -> Iterator[Coloured]:
    while at < len(colours) and colours[at][0] < end:
        start, stop, css = colours[at]
        if stop > begin:
            yield max(start, begin) - begin, min(stop, end) - begin, css
        at += 1


def _colours(source: str) -> Iterator[Coloured]:
    at = 0
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source):
        css = _css_class(kind)
        if css and text.strip():
            yield at, at + len(text), css
        at += len(text)


def _css_class(kind: _TokenType) -> str:
    while kind not in STANDARD_TYPES and kind.parent is not None:
        kind = kind.parent
    return STANDARD_TYPES.get(kind, "")
