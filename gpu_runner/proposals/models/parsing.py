"""A model's answer as a source, or exactly what keeps it from being one."""

import re
from dataclasses import dataclass

from gpu_runner.core.contract import check_candidate
from gpu_runner.core.source import fingerprint

_MOVE = re.compile(r"^\s*MOVE:\s*(.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```(?:python|py)?[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_EDIT = re.compile(
    r"^<{7} SEARCH[ \t]*\n(.*?)^={7}[ \t]*\n(.*?)^>{7} REPLACE[ \t]*$", re.MULTILINE | re.DOTALL
)
_MARK = re.compile(r"^(?:<{7} SEARCH|>{7} REPLACE)", re.MULTILINE)


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
    blocks = _FENCE.findall(text)
    if len(blocks) != 1:
        raise Unusable(
            f"expected exactly one fenced block with the whole file, found {len(blocks)}"
        )
    return str(blocks[0])


def _edited(text: str, parent: str | None) -> str:
    if parent is None:
        raise Unusable("there is no current file to edit; answer with the whole file")
    edits = _EDIT.findall(text)
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
