"""The entries that the project starts with: one readable file each in `library/entries`, and what was found when they ran.

A file opens with TOML between lines of `+++` (when it applies, the task to compare on); the action in words follows, then the
sections Not when, Preconditions, If violated, Before, After. No figure stands in it: effects come from
`library/evaluated.json`, which `benchmarks/library_evaluated.py` writes, and a record counts only for the code that it was
made with. So does the state: what ran and gained is checked, which is used but says that no person has confirmed it; what
gained nothing is kept as rejected, what a model of speed cannot see waits, nominated.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, TypeAdapter

from gpu_runner.core.entries import (
    Effect,
    Entry,
    EntryContent,
    EntryKind,
    EntryState,
    Provenance,
    When,
)
from gpu_runner.core.targets import TARGETS
from gpu_runner.core.verdicts import Fidelity, Precision, Track

FOLDER: Final = Path(__file__).parents[2] / "library"
GAINS: Final = 1.02
"""Smallest modelled ratio that shows an effect; less is within what the model rounds."""

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_CODE = re.compile(r"\A```python\n(.*)\n```\s*\Z", re.DOTALL)
_SECTIONS: Final = ("Not when", "Preconditions", "If violated", "Before", "After")


class UnreadableEntry(ValueError):
    """A file of the library is not in its form; the message names the file and what is wrong."""


class Head(BaseModel):
    """The TOML of an entry's file; `task` is a path from the repository's root."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EntryKind
    title: str
    task: str
    operators: tuple[str, ...]
    bottlenecks: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    shapes: str = ""
    hardware: tuple[str, ...] = ()
    triton: str = ""
    tracks: tuple[Track, ...] = ()
    precision: Precision = Precision.REFERENCE
    cures: str = ""
    unmodelled: str = ""

    @property
    def target(self) -> str:
        """The GPU for which it is evaluated: the first that it names, else the default."""
        return next((name for name in self.hardware if name in TARGETS), "h200")


class Outcome(BaseModel):
    """What the evaluator said about the code before and after, as `verdict` or `verdict/kind`; `ratio` of modelled times."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: str
    target: str
    before: str
    after: str
    ratio: float | None = None


class Starting(BaseModel):
    """An entry as its file says it, and what is on record for this very code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slug: str
    head: Head
    text: dict[str, str]
    task_source: str
    outcomes: tuple[Outcome, ...] = ()

    @property
    def digest(self) -> str:
        parts = (self.task_source, self.head.precision, self.text["Before"], self.text["After"])
        return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:16]

    @property
    def state(self) -> EntryState:
        """Decided by the outcome on the GPU that the entry is for."""
        outcome = next((o for o in self.outcomes if o.target == self.head.target), None)
        if outcome is None or outcome.after != "correct":
            return EntryState.DRAFT
        if self.head.cures:
            return EntryState.CHECKED if outcome.before == self.head.cures else EntryState.REJECTED
        if (outcome.ratio or 0.0) >= GAINS:
            return EntryState.CHECKED
        return EntryState.NOMINATED if self.head.unmodelled else EntryState.REJECTED

    def as_entry(self) -> Entry:
        head, text = self.head, self.text
        content = EntryContent(
            kind=head.kind,
            title=head.title,
            when=When(
                operators=head.operators,
                bottlenecks=head.bottlenecks,
                dtypes=head.dtypes,
                shapes=head.shapes,
                hardware=head.hardware,
                triton_versions=head.triton,
                tracks=head.tracks,
            ),
            not_when=text["Not when"],
            action=text["Action"],
            before=text["Before"],
            after=text["After"],
            task=self.task_source,
            cures=head.cures,
            unmodelled=head.unmodelled,
            effects=tuple(self._effects()),
            preconditions=text["Preconditions"],
            if_violated=text["If violated"],
            provenance=Provenance(task_name=Path(head.task).stem, origin=f"library:{self.slug}"),
        )
        return Entry(id=uid_of(self.slug), state=self.state, content=content)

    def _effects(self) -> Iterator[Effect]:
        for outcome in self.outcomes:
            if outcome.ratio is not None:
                yield Effect(
                    device=outcome.target,
                    fidelity=Fidelity.MODELLED,
                    track=self.head.tracks[0] if self.head.tracks else Track.OWN_KERNELS,
                    precision=self.head.precision,
                    ratio=outcome.ratio,
                )


def uid_of(slug: str) -> str:
    """The lasting id of a starting entry, in the form of every other entry's."""
    return hashlib.sha256(f"starting entry {slug}".encode()).hexdigest()[:32]


def starting_entries(folder: Path = FOLDER) -> tuple[Entry, ...]:
    """All starting entries in the order of their file names.

    Raises:
        UnreadableEntry: a file is not in its form.
    """
    return tuple(starting.as_entry() for starting in read_all(folder))


@cache
def read_all(folder: Path = FOLDER) -> tuple[Starting, ...]:
    """The files of a library's folder with what is on record for each; read once per process."""
    if not (folder / "entries").is_dir():
        raise UnreadableEntry(f"there is no folder of entries in {folder}")
    records = _records(folder / "evaluated.json")
    found = [_read(path, folder.parent) for path in sorted((folder / "entries").glob("*.md"))]
    return tuple(
        one.model_copy(
            update={
                "outcomes": tuple(r for r in records.get(one.slug, ()) if r.digest == one.digest)
            }
        )
        for one in found
    )


def _records(path: Path) -> dict[str, tuple[Outcome, ...]]:
    if not path.exists():
        return {}
    content = json.loads(path.read_text())
    return TypeAdapter(dict[str, tuple[Outcome, ...]]).validate_python(content)


def _read(path: Path, root: Path) -> Starting:
    try:
        _, head, body = path.read_text().split("+++\n", 2)
        fields = tomllib.loads(head)
        action, *sections = _SECTION.split(body)
        text = dict(zip(sections[::2], (part.strip() for part in sections[1::2]), strict=True))
        if tuple(text) != _SECTIONS:
            raise UnreadableEntry(f"its sections are {', '.join(text)}, not {', '.join(_SECTIONS)}")
        return Starting(
            slug=path.stem,
            head=Head.model_validate(fields),
            text={
                "Action": action.strip(),
                **text,
                "Before": _code(text["Before"]),
                "After": _code(text["After"]),
            },
            task_source=_task(root, fields),
        )
    except (ValueError, OSError) as error:
        raise UnreadableEntry(f"{path}: {error}") from error


def _task(root: Path, fields: dict[str, Any]) -> str:
    return (root / str(fields.get("task"))).read_text()


def _code(section: str) -> str:
    match = _CODE.match(section)
    if match is None:
        raise UnreadableEntry("Before and After are one ```python block each")
    return match[1] + "\n"
