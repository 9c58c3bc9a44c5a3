"""Recurrent layers and cells on symbolic sizes; torch's own fix the width while they check it.

Every layer multiplies all its inputs at once, then goes step by step. The number of steps is fixed in what is traced, so
that it may not depend on the size.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, Tensor, State], State]
"""From the input's and the state's product with their weights, and the state, to the next state."""


@contextmanager
def symbolic_recurrence() -> Iterator[None]:
    """`nn.LSTM`, `nn.GRU`, `nn.RNN` and their cells call the functions of this module."""
    from torch.nn.modules import rnn

    with ExitStack() as stack:
        for name, cell in _CELLS.items():
            several = name == "lstm"
            for function, text in ((layers, name), (single, f"{name}_cell")):
                own = partial(function, cell, several)
                stack.enter_context(patch.object(rnn._VF, text, own, create=True))
        yield


def layers(
    cell: Cell,
    has_several: bool,
    input: Tensor,
    hx: Any,
    weights: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """The outputs of the last layer, then the last state of every layer and direction, as torch orders them."""
    steps = input.transpose(0, 1) if batch_first else input
    if not isinstance(steps.size(0), int):
        raise ValueError("the number of steps of a recurrent layer depends on the size")
    states = hx if has_several else (hx,)
    directions = 2 if bidirectional else 1
    per_layer = len(weights) // (num_layers * directions)
    last: list[State] = []
    for layer in range(num_layers):
        sides = []
        for direction in range(directions):
            place = layer * directions + direction
            own = weights[place * per_layer : (place + 1) * per_layer]
            start = tuple(state[place] for state in states)
            outputs, end = _one_way(cell, steps, start, own, has_biases, direction == 1)
            sides.append(outputs)
            last.append(end)
        steps = torch.cat(sides, dim=-1) if bidirectional else sides[0]
        if layer < num_layers - 1:
            steps = F.dropout(steps, dropout, train)
    ends = [torch.stack(parts) for parts in zip(*last, strict=True)]
    return (steps.transpose(0, 1) if batch_first else steps, *ends)


def single(
    cell: Cell,
    has_several: bool,
    input: Tensor,
    hx: Any,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Any:
    """One step of a cell; its next state."""
    state = hx if has_several else (hx,)
    following = cell(F.linear(input, w_ih, b_ih), F.linear(state[0], w_hh, b_hh), state)
    return following if has_several else following[0]


def _one_way(
    cell: Cell,
    steps: Tensor,
    state: State,
    weights: Sequence[Tensor],
    has_biases: bool,
    is_backward: bool,
) -> tuple[Tensor, State]:
    w_ih, w_hh, *rest = weights
    b_ih, b_hh = rest[:2] if has_biases else (None, None)
    projection = rest[2:] if has_biases else rest
    products = F.linear(steps, w_ih, b_ih)
    outputs: list[Tensor] = []
    order = range(steps.size(0))
    for place in reversed(order) if is_backward else order:
        state = cell(products[place], F.linear(state[0], w_hh, b_hh), state)
        if projection:
            state = (F.linear(state[0], projection[0]), *state[1:])
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if is_backward else outputs), state


def _gates(product: Tensor, count: int) -> tuple[Tensor, ...]:
    return product.unflatten(-1, (count, product.size(-1) // count)).unbind(dim=-2)


def _lstm(x: Tensor, h: Tensor, state: State) -> State:
    enter, forget, new, leave = _gates(x + h, 4)
    memory = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * memory.tanh(), memory


def _gru(x: Tensor, h: Tensor, state: State) -> State:
    (x_reset, x_keep, x_new), (h_reset, h_keep, h_new) = _gates(x, 3), _gates(h, 3)
    new = (x_new + (x_reset + h_reset).sigmoid() * h_new).tanh()
    keep = (x_keep + h_keep).sigmoid()
    return (new + keep * (state[0] - new),)


def _rnn_tanh(x: Tensor, h: Tensor, state: State) -> State:
    return ((x + h).tanh(),)


def _rnn_relu(x: Tensor, h: Tensor, state: State) -> State:
    return ((x + h).relu(),)


_CELLS: dict[str, Cell] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _rnn_tanh,
    "rnn_relu": _rnn_relu,
}
