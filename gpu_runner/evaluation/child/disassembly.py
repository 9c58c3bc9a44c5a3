"""What the bundled cuobjdump tells of a kernel's machine code: its registers, and where it spills them.

A loop is whatever control flow can come back to. Where a spill stands decides what it costs: an epilogue's is paid once.
"""

import functools
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import triton

_CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
_INSTRUCTION = re.compile(
    r"/\*(?P<address>[0-9a-f]{4,})\*/ +(?P<guard>@\S+ +)?(?P<opcode>[A-Z]\w*)(?P<rest>[^;\n]*);"
)
_TARGET = re.compile(r"^(?:\.\w+)* *(?P<condition>\S+, *)?0x(?P<target>[0-9a-f]+) *$")
_PLACE = re.compile(r"\[[^\]]*\]")
_WIDTHS = {".128": 16, ".64": 8, ".U16": 2, ".S16": 2, ".U8": 1, ".S8": 1}
_ENDS = frozenset(("EXIT", "RET", "BRX", "JMX", "KILL"))


@dataclass(frozen=True)
class Usage:
    """Of one thread. `spill_bytes_in_loops` is how much of its local memory is accessed within a loop."""

    registers: int
    spill_bytes: int
    spill_bytes_in_loops: int


@functools.lru_cache(maxsize=256)
def usage_of(cubin: bytes) -> Usage:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = _told("-res-usage", file.name)
        registers, spilled = _number("REG", text), _number("STACK", text) + _number("LOCAL", text)
        looped = local_bytes_in_loops(_told("-sass", file.name)) if spilled else 0
    return Usage(registers, spilled, min(spilled, looped))


def _told(option: str, path: str) -> str:
    ran = subprocess.run(
        [str(_CUOBJDUMP), option, path], capture_output=True, text=True, check=True, timeout=30
    )
    return ran.stdout


def _number(name: str, text: str) -> int:
    found = re.findall(rf"{name}:(\d+)", text)
    return int(found[-1]) if found else 0


def local_bytes_in_loops(sass: str) -> int:
    """Bytes of the different places in local memory that instructions within loops load or store.

    Args:
        sass: one function as `cuobjdump -sass` prints it.
    """
    instructions = [match.groupdict() for match in _INSTRUCTION.finditer(sass)]
    places: dict[str, int] = {}
    for i in _looped(_followers(instructions)):
        one = instructions[i]
        if one["opcode"] in ("LDL", "STL") and (place := _PLACE.search(one["rest"])):
            width = next((w for mark, w in _WIDTHS.items() if mark in one["rest"]), 4)
            places[place[0]] = max(width, places.get(place[0], 0))
    return sum(places.values())


def _followers(instructions: Sequence[dict[str, str]]) -> list[list[int]]:
    """For each instruction the numbers of those that may run next."""
    numbers = {int(one["address"], 16): i for i, one in enumerate(instructions)}
    followers = []
    for i, one in enumerate(instructions):
        branch = _TARGET.match(one["rest"]) if one["opcode"] == "BRA" else None
        leaves = branch is not None or one["opcode"] in _ENDS
        may_stay = not leaves or one["guard"] or (branch and branch["condition"])
        after = [i + 1] if may_stay and i + 1 < len(instructions) else []
        target = numbers.get(int(branch["target"], 16)) if branch else None
        followers.append(after if target is None else [*after, target])
    return followers


def _looped(followers: Sequence[Sequence[int]]) -> set[int]:
    """Everything that lies on a cycle: each has a step back, and is what both follows and precedes that step."""
    leaders: list[list[int]] = [[] for _ in followers]
    for i, after in enumerate(followers):
        for j in after:
            leaders[j].append(i)
    looped: set[int] = set()
    for i, after in enumerate(followers):
        for j in after:
            if j <= i and i not in looped:
                looped |= _reached(j, followers) & _reached(i, leaders)
    return looped


def _reached(start: int, steps: Sequence[Sequence[int]]) -> set[int]:
    seen, waiting = {start}, [start]
    while waiting:
        new = set(steps[waiting.pop()]) - seen
        seen |= new
        waiting.extend(new)
    return seen
