"""When entries apply: hard filters over a whole library at once, as one bit per entry and value of a condition."""

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpu_runner.core.entries import Effect, Entry
from gpu_runner.core.entry_states import IN_USE
from gpu_runner.core.targets import TARGETS, target_titled
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Fidelity
from gpu_runner.experience.queries import Query

Bits = NDArray[np.bool_]

_BOUND = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)\s*")
_COMPARE: Final[dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


class Conditions:
    """Answers which entries are in use and not excluded by any of their conditions."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        whens = [entry.content.when for entry in entries]
        self._in_use = np.array([entry.state in IN_USE for entry in entries], np.bool_)
        self._operators = Alternatives([when.operators for when in whens])
        self._dtypes = Alternatives([when.dtypes for when in whens])
        self._hardware = Alternatives([when.hardware for when in whens])
        self._tracks = Alternatives([when.tracks for when in whens])
        self._versions = [when.triton_versions for when in whens]

    def admitted(self, query: Query) -> Bits:
        return (
            self._in_use
            & self._operators.hold(query.operators)
            & self._dtypes.hold(query.dtypes)
            & self._hardware.hold(names_of(query.target) if query.target else ())
            & self._tracks.hold((query.track,))
            & self._admits_version(query.triton)
        )

    def _admits_version(self, version: str) -> Bits:
        verdicts = {text: admits(text, version) for text in set(self._versions)}
        return np.array([verdicts[text] for text in self._versions], np.bool_)


class Alternatives:
    """One condition of all entries; an entry without it holds, and so does each where nothing is known of the query."""

    def __init__(self, wanted: Sequence[Iterable[str]]) -> None:
        self._count = len(wanted)
        self.empty = np.array([not values for values in wanted], np.bool_)
        places: dict[str, list[int]] = {}
        for place, values in enumerate(wanted):
            for value in values:
                places.setdefault(value, []).append(place)
        self._places = {value: np.array(found) for value, found in places.items()}

    def hold(self, present: Iterable[str]) -> Bits:
        values = tuple(present)
        if not values:
            return np.ones(self._count, np.bool_)
        bits = self.empty.copy()
        for value in values:
            if value in self._places:
                bits[self._places[value]] = True
        return bits


def names_of(target: str) -> tuple[str, ...]:
    """What a target answers to: its own name and its architecture's."""
    known = TARGETS.get(target)
    if known is None:
        return (target,)
    arch = f"sm_{known.arch}" if isinstance(known.arch, int) else known.arch
    return (target, known.name, arch)


def hardware_of(effect: Effect, task: TaskSpec) -> str:
    """The hardware that an effect speaks for: a target's name wherever there is one, since runs ask by that."""
    if effect.fidelity is Fidelity.MODELLED:
        return task.target
    known = target_titled(effect.device)
    return known.name if known is not None else effect.device


def admits(bounds: str, version: str) -> bool:
    """Whether a version lies in a range such as ">=3.4,<4"; true where either is empty, false where the range is unreadable."""
    if not bounds.strip() or not version:
        return True
    found = _numbers(version)
    for bound in bounds.split(","):
        match = _BOUND.fullmatch(bound)
        if match is None:
            return False
        wanted = _numbers(match[2])
        width = max(len(found), len(wanted))
        if not _COMPARE[match[1]](_padded(found, width), _padded(wanted, width)):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


def _padded(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return numbers + (0,) * (width - len(numbers))
