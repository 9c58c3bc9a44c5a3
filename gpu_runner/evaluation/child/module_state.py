"""The tensors that a module keeps between calls: parameters and buffers, those that it does not save included."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Matched:
    """Names that were loaded, the module's own without counterpart, and the given ones without one."""

    loaded: list[str]
    missing: list[str]
    unexpected: list[str]


def state_of(model: Any) -> dict[str, torch.Tensor]:
    """By name; empty for what is no module."""
    if not isinstance(model, nn.Module):
        return {}
    state = dict(buffers_of(model)) | _innermost(model).state_dict()
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def buffers_of(model: Any) -> list[tuple[str, torch.Tensor]]:
    return list(_innermost(model).named_buffers()) if isinstance(model, nn.Module) else []


def weights_of(model: Any) -> Iterator[torch.Tensor]:
    if isinstance(model, nn.Module):
        yield from model.parameters()
        yield from model.buffers()


def load_state(model: Any, given: Mapping[str, torch.Tensor]) -> Matched:
    """Load by name and shape, through `load_state_dict` for all that it knows."""
    own = state_of(model)
    fitting = {
        name: tensor
        for name, tensor in given.items()
        if name not in own or own[name].shape == tensor.shape
    }
    if isinstance(model, nn.Module):
        saved = _innermost(model).state_dict()
        with torch.no_grad():
            for name, buffer in buffers_of(model):
                if name in fitting and name not in saved:
                    buffer.copy_(fitting[name])
            unsaved = {name for name in own if name not in saved}
            rest = {name: t for name, t in fitting.items() if name not in unsaved}
            _innermost(model).load_state_dict(rest, strict=False)
    missing = [name for name in own if name not in fitting]
    return Matched(
        loaded=[name for name in own if name in fitting],
        missing=missing,
        unexpected=[name for name in given if name not in own or name in missing],
    )


def copy_buffers(source: Mapping[str, torch.Tensor], model: Any) -> None:
    """Give the module's buffers these contents, in whatever precision it keeps them."""
    with torch.no_grad():
        for name, buffer in buffers_of(model):
            if name in source and source[name].shape == buffer.shape:
                buffer.copy_(source[name])


def _innermost(model: nn.Module) -> nn.Module:
    """The module inside what `torch.compile` made of it."""
    inner = getattr(model, "_orig_mod", model)
    assert isinstance(inner, nn.Module)
    return inner
