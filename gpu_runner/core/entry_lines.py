"""Library entries as JSON lines, for export and import: a head line with the schema's version, then one entry a line.

Reading reports on each line and raises nothing: a person who imports sees every problem at once. What an import would
change is decided by `planned` from what is there, so that a dry run and the import agree.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpu_runner.core.entries import Entry, EntryContent, EntryState

SCHEMA: Final = "kernel-foundry/entries"
SCHEMA_VERSION: Final = 3
"""2: not_when, task, cures, unmodelled, by_model. 3: the state `checked`. Lines of earlier ones, also without a head line,
are read as they are."""


MAX_LINE: Final = 1 << 20
"""Characters of a line; the longest code and texts of an entry take half of it."""


class Head(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_name: str = Field(alias="schema", pattern=f"^{SCHEMA}$")
    version: int = Field(ge=1, le=SCHEMA_VERSION)


class EntryLine(BaseModel):
    """One exported entry; `version` and `state` say what it was where it came from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uid: str = Field(pattern=r"^[0-9a-f]{32}$")
    version: int = Field(default=1, ge=1)
    state: EntryState = EntryState.NOMINATED
    content: EntryContent


class Outcome(StrEnum):
    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    UNUSABLE = "unusable"


@dataclass(frozen=True)
class LineReport:
    """What an import makes of one line, counted from 1; `problem` says what to mend where it is unusable."""

    number: int
    outcome: Outcome
    line: EntryLine | None = None
    problem: str = ""


def written(entries: Iterable[Entry]) -> Iterator[str]:
    """The lines of an export, each with its line end."""
    yield json.dumps({"schema": SCHEMA, "version": SCHEMA_VERSION}) + "\n"
    for entry in entries:
        line = EntryLine(
            uid=entry.id, version=entry.version, state=entry.state, content=entry.content
        )
        yield line.model_dump_json() + "\n"


def planned(text: str, present: Mapping[str, EntryContent]) -> list[LineReport]:
    """What importing a text would do, one report per line that is neither empty nor the head.

    Args:
        present: the newest content of the entries that are there, by uid. Equal content is no change, so that importing
            twice is importing once.
    """
    reports: list[LineReport] = []
    seen: set[str] = set()
    # Not `splitlines`: within a string JSON admits other characters that end a line for people.
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not raw.strip():
            continue
        if not reports and _looks_like_head(raw):
            try:
                Head.model_validate_json(raw)
            except ValidationError:
                problem = f"not a file of {SCHEMA} that this version reads (up to {SCHEMA_VERSION})"
                return [LineReport(number, Outcome.UNUSABLE, problem=problem)]
            continue
        reports.append(_report(number, raw, present, seen))
    return reports


def _report(
    number: int, raw: str, present: Mapping[str, EntryContent], seen: set[str]
) -> LineReport:
    if len(raw) > MAX_LINE:
        problem = f"the line has {len(raw):,} characters; an entry has at most {MAX_LINE:,}"
        return LineReport(number, Outcome.UNUSABLE, problem=problem)
    try:
        line = EntryLine.model_validate_json(raw)
    except ValidationError as error:
        return LineReport(number, Outcome.UNUSABLE, problem=_in_words(error))
    if problem := _unstorable(line):
        return LineReport(number, Outcome.UNUSABLE, line, problem)
    if line.uid in seen:
        return LineReport(number, Outcome.UNUSABLE, line, "this uid stands twice in the file")
    seen.add(line.uid)
    before = present.get(line.uid)
    if before is None:
        return LineReport(number, Outcome.NEW, line)
    is_same = before == line.content
    return LineReport(number, Outcome.UNCHANGED if is_same else Outcome.CHANGED, line)


def _unstorable(line: EntryLine) -> str:
    """What keeps a line that has the right form from being an entry; empty if nothing does."""
    if any("\0" in text for text in _strings(line.model_dump())):
        return "it holds a NUL character, which no database keeps"
    if not (line.content.title.strip() and line.content.action.strip()):
        return "content.title and content.action: an entry says what it is and what to do"
    return ""


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for inner in value.values() for text in _strings(inner))
    elif isinstance(value, list | tuple):
        yield from (text for inner in value for text in _strings(inner))


def _looks_like_head(raw: str) -> bool:
    try:
        first = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "schema" in first


def _in_words(error: ValidationError) -> str:
    found = [
        f"{'.'.join(map(str, problem['loc'])) or 'line'}: {problem['msg']}"
        for problem in error.errors()
    ]
    return "; ".join(found)[:500]
