"""Neighbouring configurations of a candidate: one compile-time number changed, or two that belong together.

What can be changed is found in a sandboxed child, which answers with spans of text; here a few moves are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.task import TaskSpec
from gpu_runner.proposals.types import Draft

MOST_DRAFTS: Final = 8
T = TypeVar("T")
_KNOBS = "gpu_runner.proposals.child.tuning:knobs"


class Caller(Protocol):
    """The part of the evaluation pool that proposals use."""

    def call(
        self, entry: str, request: dict[str, Any], *, nursery: str = ..., timeout_s: float = ...
    ) -> dict[str, Any]: ...


class Knob(BaseModel):
    """A compile-time number; `spans` are (start, end, text to put before the new value)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(max_length=200)
    kernel: str = Field(max_length=200)
    value: int
    choices: tuple[int, ...] = Field(max_length=10)
    spans: tuple[tuple[int, int, str], ...] = Field(max_length=50)


@dataclass(frozen=True)
class Move:
    """A knob and the value that it is given."""

    knob: Knob
    choice: int


_KNOB_LIST = TypeAdapter(list[Knob])


def drafts(pool: Caller, task: TaskSpec, candidate: Candidate, rng: random.Random) -> list[Draft]:
    """At most eight neighbours of a candidate in an order drawn by `rng`, singles before pairs.

    The caller remembers what was tried; the sources of one call differ from each other and from the candidate's.
    """
    answer = pool.call(_KNOBS, {"source": candidate.source})
    knobs = _KNOB_LIST.validate_python(answer["knobs"])
    near = _shuffled([(Move(knob, choice),) for knob in knobs for choice in knob.choices[:2]], rng)
    far = _shuffled([(Move(knob, choice),) for knob in knobs for choice in knob.choices[2:]], rng)
    pairs = _shuffled(_pairs(knobs), rng)
    sources = {candidate.source}
    found: list[Draft] = []
    for moves in [*near[: MOST_DRAFTS - 2], *pairs[:2], *near[MOST_DRAFTS - 2 :], *far]:
        source = moved(candidate.source, moves)
        if source not in sources and len(found) < MOST_DRAFTS:
            sources.add(source)
            found.append(Draft(source=source, origin="tune", move=_described(moves)))
    return found


def moved(source: str, moves: Sequence[Move]) -> str:
    """The source with every span of the moves' knobs set to the chosen values."""
    edits = [
        (start, end, f"{prefix}{move.choice}")
        for move in moves
        for start, end, prefix in move.knob.spans
    ]
    for start, end, text in sorted(edits, reverse=True):
        source = source[:start] + text + source[end:]
    return source


def _shuffled(items: Sequence[T], rng: random.Random) -> list[T]:
    return rng.sample(list(items), len(items))


def _pairs(knobs: Sequence[Knob]) -> list[tuple[Move, ...]]:
    """A tile and the warps that work on it, grown or shrunk together."""
    return [
        (Move(tile, larger), Move(warps, more))
        for tile in knobs
        for warps in knobs
        if warps.name == "num_warps" and tile.name != "num_warps" and tile.kernel == warps.kernel
        for larger in tile.choices[:2]
        for more in warps.choices
        if (larger > tile.value) == (more > warps.value) and tile.name != "num_stages"
    ]


def _described(moves: Sequence[Move]) -> str:
    changes = ", ".join(f"{m.knob.name} {m.knob.value} → {m.choice}" for m in moves)
    return f"{changes} in {moves[0].knob.kernel}"[:300]
