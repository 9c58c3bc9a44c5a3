"""A model's answer as a source, or exactly what keeps it from being one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_runner.core.contract import check_candidate
from gpu_runner.core.source import fingerprint

# Answers are up to a megabyte of anything: what reads them goes through them once, without looking back.
_MOVE = re.compile(r"^[ \t]*MOVE:[ \t]*(.+)$", re.MULTILINE)
_FENCE_OPENS = re.compile(r"```(?:python|py)?[ \t]*\n")
_FENCE_CLOSES = re.compile(r"```[ \t]*\n?")
_MARK = re.compile(r"^(?:<{7} SEARCH|>{7} REPLACE)", re.MULTILINE)
_SEARCH, _DIVIDER, _REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"


class Unusable(ValueError):
    """The answer is not in the required form; the message is for the model."""


@dataclass(frozen=True)
class Answer:
    source: str
    move: str


def parse_answer(text: str, parent: str | None) -> Answer:
    """Read a whole file or edits of the parent.

    Raises:
        Unusable: no form or both forms, an edit that does not apply exactly once, no `ModelNew`, or nothing changed.
    """
    text = text.replace("\r\n", "\n")
    source = _edited(text, parent) if _MARK.search(text) else _whole(text)
    problem = check_candidate(source)
    if problem is not None:
        place = f" (line {problem.line})" if problem.line else ""
        raise Unusable(f"the resulting file is not usable: {problem.message}{place}")
    if parent is not None and fingerprint(source) == fingerprint(parent):
        raise Unusable("the answer changes nothing but comments or layout")
    move = _MOVE.search(text)
    return Answer(source, move.group(1).strip()[:200] if move else "")


def _whole(text: str) -> str:
    blocks = list(_blocks(text))
    if len(blocks) != 1:
        raise Unusable(
            f"expected exactly one fenced block with the whole file, found {len(blocks)}"
        )
    return blocks[0]


def _blocks(text: str) -> Iterator[str]:
    """What stands between fences."""
    block: list[str] | None = None
    for line in _lines(text):
        if block is None:
            block = [] if _FENCE_OPENS.fullmatch(line) else None
        elif _FENCE_CLOSES.fullmatch(line):
            yield "".join(block)
            block = None
        else:
            block.append(line)


def _edited(text: str, parent: str | None) -> str:
    if parent is None:
        raise Unusable("there is no current file to edit; answer with the whole file")
    edits = list(_edits(text))
    if 2 * len(edits) != len(_MARK.findall(text)):
        raise Unusable("an edit is incomplete: SEARCH, =======, REPLACE must each stand on a line")
    source = parent if parent.endswith("\n") else parent + "\n"
    for number, (old, new) in enumerate(edits, start=1):
        if not old.strip():
            raise Unusable(f"edit {number} searches for nothing")
        occurrences = source.count(old)
        if occurrences != 1:
            raise Unusable(
                f"the search text of edit {number} occurs {occurrences} times in the current file,"
                " not once"
            )
        source = source.replace(old, new)
    return source


def _edits(text: str) -> Iterator[tuple[str, str]]:
    """What is searched for, and what replaces it."""
    old: list[str] | None = None
    new: list[str] | None = None
    for line in _lines(text):
        mark = line.rstrip(" \t\n")
        if old is None:
            old = [] if mark == _SEARCH else None
        elif new is None:
            if mark == _DIVIDER:
                new = []
            else:
                old.append(line)
        elif mark == _REPLACE:
            yield "".join(old), "".join(new)
            old = new = None
        else:
            new.append(line)


def _lines(text: str) -> Iterator[str]:
    """With their ends; a form feed ends none."""
    return iter(re.findall(r"[^\n]*\n|[^\n]+", text))
