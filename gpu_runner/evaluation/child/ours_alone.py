"""Attributes of the interpreter's builder that submitted code must not reach.

Triton hands the builder to everybody, and through it one would find what is counted of a launch, and all findings.
Their values lie in this module, so that the builder's own dictionary has none of them.
"""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import triton

_TRUSTED = tuple(
    str(folder.resolve())
    for folder in (Path(__file__).parents[2], Path(str(triton.__file__)).parent)
)
_trusted_files: set[str] = set()
_values: dict[str, Any] = {}
_tellers: list[Callable[[str, types.FrameType], None]] = []


def tell(teller: Callable[[str, types.FrameType], None]) -> None:
    """Let it know of each attempt: the attribute, and the frame that reaches for it."""
    _tellers.append(teller)


class OursAlone:
    """An attribute of the one builder that there is; AttributeError for all code but ours and Triton's."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, builder: Any, owner: type | None = None) -> Any:
        self._look(sys._getframe(1))
        return _values[self._name]

    def __set__(self, builder: Any, value: Any) -> None:
        self._look(sys._getframe(1))
        _values[self._name] = value

    def _look(self, frame: types.FrameType) -> None:
        filename = frame.f_code.co_filename
        if filename in _trusted_files:
            return
        if not filename.startswith(_TRUSTED):
            for teller in _tellers:
                teller(self._name, frame)
            raise AttributeError(self._name)
        _trusted_files.add(filename)
