"""Neighbouring configurations of a candidate: one compile-time number changed, or two that belong together.

What can be changed is found in a sandboxed child, which answers with spans of text; here a few moves are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.task import TaskSpec
from gpu_runner.proposals.types import Caller, Draft

MOST_DRAFTS: Final = 8
LEAST_SHARE: Final = 0.1
"""What a kernel weighs that takes no time, against 1.1 for one that takes all of it."""
_KNOBS = "gpu_runner.proposals.child.tuning:knobs"


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
    shares = _time_shares(candidate)
    near = _drawn(
        [(Move(knob, choice),) for knob in knobs for choice in knob.choices[:2]], shares, rng
    )
    far = _drawn(
        [(Move(knob, choice),) for knob in knobs for choice in knob.choices[2:]], shares, rng
    )
    pairs = _drawn(_pairs(knobs), shares, rng)
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


def _time_shares(candidate: Candidate) -> dict[str, float]:
    """Each kernel's share of the candidate's time, where its evaluation says so."""
    profile = candidate.evaluation.profile if candidate.evaluation else {}
    call = profile.get("candidate")
    parts = call.get("parts", []) if isinstance(call, dict) else []
    times: dict[str, float] = {}
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("us"), int | float):
            name = str(part.get("name"))
            times[name] = times.get(name, 0.0) + float(part["us"])
    total = sum(times.values())
    return {name: us / total for name, us in times.items()} if total > 0 else {}


def _drawn(
    moves: Sequence[tuple[Move, ...]], shares: Mapping[str, float], rng: random.Random
) -> list[tuple[Move, ...]]:
    """The moves in a random order in which those of kernels that take long tend to come first."""
    keyed = [
        (rng.random() ** (1 / (shares.get(move[0].knob.kernel, 0.0) + LEAST_SHARE)), move)
        for move in moves
    ]
    return [move for _, move in sorted(keyed, key=lambda pair: -pair[0])]


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
