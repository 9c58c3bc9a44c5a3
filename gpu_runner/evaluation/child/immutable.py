"""Classes that nobody can change any more, as those of the interpreter itself: not even for a moment, unseen.

Any class can be found among the subclasses of a class that it derives from.
"""

import ctypes
from collections.abc import Iterable

_FLAGS_OFFSET = 168
"""Of `tp_flags` in a `PyTypeObject` on 64 bits."""
_IMMUTABLE_TYPE = 1 << 8


def freeze(kinds: Iterable[type]) -> None:
    """From now on, setting or deleting an attribute of these classes raises TypeError.

    Raises:
        RuntimeError: this Python lays its classes out in another way.
    """
    for kind in kinds:
        flags = ctypes.c_ulong.from_address(id(kind) + _FLAGS_OFFSET)
        if flags.value != kind.__flags__:
            raise RuntimeError("the flags of a class do not lie where they are looked for")
        flags.value |= _IMMUTABLE_TYPE
