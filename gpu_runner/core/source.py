"""Bounds on submitted source that are safe to check, and the fingerprint by which duplicates are known.

Parsers are attacked with deep nesting: libcst ends the process and `ast` exhausts memory or the stack on a few kilobytes of
brackets. The tokenizer works line by line and does not recurse, so it goes first and everything else relies on its answer.
"""

import ast
import hashlib
import io
import re
import threading
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MAX_BYTES: Final = 64 * 1024
MAX_NESTING: Final = 60
MAX_INDENTATION: Final = 30
MAX_OPERATOR_RUN: Final = 40
MAX_CHAIN: Final = 400
MAX_STATEMENT_TOKENS: Final = 12_000
MAX_BRANCHES: Final = 120

_PARSING: Final = threading.Lock()
"""CPython 3.11 counts the depth of a new tree for all threads together: two parsers at once end in a SystemError."""

_CHAINING = frozenset("+ - * / // % @ ** | & ^ << >> . [ ( < > <= >= == !=".split())
_CHAINING_WORDS = frozenset("if else and or not in is lambda await for".split())
_ENCODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
"""Where Python looks for it: in the first two lines."""
_BLANK_OR_COMMENT = re.compile(r"^[ \t\f]*(?:#|$)")
_LINE_END = re.compile(r"\r\n|\r|\n")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True)
class Problem:
    """What is wrong with a source, and where (line from 1, None: the whole file)."""

    kind: str
    message: str
    line: int | None = None


def without_mark(text: str) -> str:
    """Without the byte order mark that some editors put in front."""
    return text.removeprefix("\ufeff")


@lru_cache(maxsize=256)
def check_bounds(source: str) -> Problem | None:
    """The first bound that a source breaks, or None if any parser may see it.

    The kind is one of `too_large` and `syntax`.
    """
    try:
        size = len(source.encode("utf-8"))
    except UnicodeEncodeError:
        return Problem("syntax", "the source is not valid Unicode text")
    if size > MAX_BYTES:
        return Problem(
            "too_large", f"the source has {size:,} bytes; at most {MAX_BYTES:,} are accepted"
        )
    if "\x00" in source:
        return Problem(
            "syntax",
            "the source contains a null byte",
            source[: source.index("\x00")].count("\n") + 1,
        )
    if (problem := _check_encoding(source)) is not None:
        return problem
    try:
        return _check_tokens(source)
    except tokenize.TokenError as error:
        # The tokens seen so far are within the bounds; the parser names the place better than "EOF in ..." does.
        parsed = _parse(source)
        return (
            parsed
            if isinstance(parsed, Problem)
            else Problem("syntax", str(error.args[0]), error.args[1][0])
        )
    except SyntaxError as error:  # IndentationError too
        return Problem("syntax", error.msg, error.lineno)


def parse(source: str) -> ast.Module | Problem:
    """The syntax tree of a source within the bounds, or what is wrong with it."""
    problem = check_bounds(source)
    if problem is not None:
        return problem
    return _parse(source)


@lru_cache(maxsize=1024)
def fingerprint(source: str) -> str:
    """Equal for sources that differ in comments, docstrings and layout alone; of the text where it does not parse."""
    tree = parse(source)
    text = source if isinstance(tree, Problem) else ast.dump(_without_docstrings(tree))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _parse(source: str) -> ast.Module | Problem:
    try:
        with _PARSING:
            return ast.parse(source)
    except SyntaxError as error:
        return Problem("syntax", error.msg, error.lineno)
    except (ValueError, RecursionError, MemoryError) as error:
        return Problem(
            "syntax", f"the source cannot be parsed: {str(error) or type(error).__name__}"
        )


def _check_encoding(source: str) -> Problem | None:
    """Python would decode the file anew by such a comment, and read another program than the one that was checked."""
    for number, line in enumerate(_LINE_END.split(source, 2)[:2], 1):
        declared = _ENCODING.match(line)
        if declared and declared[1].lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig"):
            message = f"the source declares the encoding {declared[1][:40]}; it is read as UTF-8, remove the line"
            return Problem("syntax", message, number)
        if not _BLANK_OR_COMMENT.match(line):
            return None
    return None


def _check_tokens(source: str) -> Problem | None:
    depth = indentation = run = chain = statement = 0
    branches: dict[int, int] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type in (tokenize.COMMENT, tokenize.NL):
            continue
        if token.type == tokenize.NEWLINE:
            run = chain = statement = 0
            continue
        if token.type == tokenize.INDENT:
            indentation += 1
            branches[indentation] = 0
        elif token.type == tokenize.DEDENT:
            indentation -= 1
        if indentation > MAX_INDENTATION:
            return Problem("syntax", f"more than {MAX_INDENTATION} levels of indentation", line)
        if token.string == "elif":
            branches[indentation] = branches.get(indentation, 0) + 1
            if branches[indentation] > MAX_BRANCHES:
                return Problem(
                    "syntax", f"more than {MAX_BRANCHES} elif branches in one block", line
                )
        statement += 1
        if statement > MAX_STATEMENT_TOKENS:
            return Problem(
                "syntax", f"a statement of more than {MAX_STATEMENT_TOKENS:,} tokens", line
            )
        is_operator = token.type == tokenize.OP
        depth += (token.string in _OPENING) - (token.string in _CLOSING) if is_operator else 0
        if depth > MAX_NESTING:
            return Problem("syntax", f"brackets nested more than {MAX_NESTING} deep", line)
        if token.string in (",", ":") and is_operator:
            chain = 0
        chain += (is_operator and token.string in _CHAINING) or token.string in _CHAINING_WORDS
        if chain > MAX_CHAIN:
            return Problem("syntax", f"an expression of more than {MAX_CHAIN} operators", line)
        prefix = (is_operator and token.string in "-+~*") or token.string in (
            "not",
            "lambda",
            "await",
        )
        if token.string != ":":
            run = run + 1 if prefix else 0
        if run > MAX_OPERATOR_RUN:
            return Problem("syntax", f"more than {MAX_OPERATOR_RUN} operators in a row", line)
    return None


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree
