"""What a call returned, taken apart: the structure as typed JSON, and the tensors in it in order."""

import collections
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gpu_runner.evaluation.child.memory import place
from gpu_runner.evaluation.protocol import Buffer, Encoded, Unencodable, encode

PLAIN_TENSORS = (torch.Tensor, nn.Parameter)
_READERS: dict[type, tuple[str, ...]] = {
    tuple: ("__iter__", "__getitem__", "__len__"),
    list: ("__iter__", "__getitem__", "__len__"),
    dict: ("__iter__", "__getitem__", "items", "values", "keys"),
}
_TORCHS_OWN = frozenset(
    {torch.Size, *(kind for kind in vars(torch.return_types).values() if isinstance(kind, type))}
)


@dataclass(frozen=True)
class Answer:
    """`lazy` names types that could still compute when they are read; `unreadable` says why there are no tensors."""

    tree: Encoded
    tensors: list[torch.Tensor]
    lazy: list[str]
    unreadable: str = ""


def written_out(output: Any) -> Answer:
    """Take a call's result apart; dictionaries in the order of their keys, which is no part of the result."""
    tensors: list[torch.Tensor] = []
    lazy = list(_lazy_containers(output))
    try:
        tree = encode(output if lazy else _in_order(output), tensors)
    except Unencodable as error:
        return Answer({"str": f"<{error}>"}, [], lazy, str(error))
    for tensor in tensors:
        if type(tensor) in PLAIN_TENSORS and tensor.layout != torch.strided:
            reason = f"a {tensor.layout} tensor"
            return Answer({"str": f"<{reason}>"}, [], lazy, reason)
    lazy += [type(t).__qualname__ for t in tensors if type(t) not in PLAIN_TENSORS]
    return Answer(tree, tensors, lazy)


def contiguous_buffer(tensors: Sequence[torch.Tensor]) -> Buffer:
    """Places for tensors of these shapes and dtypes, contiguous, one after the other."""
    blank = [
        torch.empty(t.shape, dtype=t.dtype, device="meta") if t.layout == torch.strided else t
        for t in tensors
    ]
    places, nbytes = place(blank)
    return Buffer(nbytes=nbytes, places=tuple(places))


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value, key=_name_of)}
    if type(value) in (tuple, list):
        return type(value)(_in_order(item) for item in value)
    return value


def _name_of(key: Any) -> str:
    return f"{type(key).__name__} {key!r}" if type(key) in (str, int, bool) else ""


def _lazy_containers(value: Any) -> Iterator[str]:
    """Containers that answer with code of their own when they are read."""
    kind = type(value)
    if kind in _TORCHS_OWN:
        return
    for base in (tuple, list, dict):
        if not isinstance(value, base):
            continue
        own = collections.OrderedDict if kind is collections.OrderedDict else base
        if any(getattr(kind, name, None) is not getattr(own, name) for name in _READERS[base]):
            yield kind.__qualname__
        else:
            for item in value.values() if isinstance(value, dict) else value:
                yield from _lazy_containers(item)
