"""Operations below the dispatcher, which no switch in Python hides."""

import functools
import math
import operator
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import _tensor_str
from torch.autograd import profiler_legacy

from gpu_runner.evaluation.child.answers import PLAIN_TENSORS
from gpu_runner.evaluation.child.flow import Event
from gpu_runner.evaluation.child.groups import may_compute

OURS = f"ours-{secrets.token_hex(8)}"
END = "-end"
record_span = torch._C._profiler._RecordFunctionFast
"""Names a stretch of time in what `SeenBelow` sees."""


_ALWAYS_TORCHS = (
    "aten prims prim quantized profiler mkldnn mkl onednn _c10d_functional c10d".split()
)
"""Whether this build of torch has operators in them or not."""


@functools.cache
def torchs_namespaces() -> frozenset[str]:
    """Namespaces of the operators that there are before any submitted module is imported; ask first then."""
    names = {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()}
    return frozenset(names | set(_ALWAYS_TORCHS))


def tell_printing_apart(printed: Callable[[torch.Tensor, int, str], str]) -> None:
    """Writing a tensor out as text computes with dispatch switched off; name that in what `SeenBelow` sees.

    Args:
        printed: answers with the text that is handed on, of a tensor, how many of its elements are in it, and the text.
    """
    write = _tensor_str._str

    def named(tensor: Any, *, tensor_contents: Any = None) -> str:
        _keep_options_plain()
        if type(tensor) not in PLAIN_TENSORS:
            tensor = torch.Tensor.as_subclass(tensor, torch.Tensor)
        elements = _printed_elements(tensor)
        with record_span(OURS):
            text = write(tensor, tensor_contents=tensor_contents)
        return printed(tensor, elements, text)

    _tensor_str._str = named


def _keep_options_plain() -> None:
    """Nothing that has code of its own takes part in writing."""
    options = _tensor_str.PRINT_OPTS
    for name, value in vars(options).items():
        if type(value) not in (int, float, bool, type(None)):
            number = float.__float__ if isinstance(value, float) else operator.index
            setattr(options, name, int.__int__(value) if isinstance(value, int) else number(value))


def _printed_elements(tensor: torch.Tensor) -> int:
    options = _tensor_str.PRINT_OPTS
    if tensor.numel() <= options.threshold:
        return tensor.numel()
    return math.prod(min(n, 2 * options.edgeitems) for n in tensor.shape)


class SeenBelow:
    """A context whose record `Recorder.add_hidden` reads: operations below the dispatcher, which nothing switches off.

    Its own reader of the profiler's records: what lies in what is told by their order, and not by times that may tie.
    """

    def __init__(self) -> None:
        self.events: list[_Below] = []

    def __enter__(self) -> "SeenBelow":
        profiler_legacy._enable_profiler_legacy(profiler_legacy.profile().config())
        return self

    def __exit__(self, *error: object) -> None:
        for records in profiler_legacy._disable_profiler_legacy():
            self.events += _nested(records)


@dataclass
class _Below:
    """One operation or named stretch that the profiler saw, and what lay around it."""

    name: str
    around: "_Below | None"


def _nested(records: Any) -> Iterator[_Below]:
    """The records of one thread, in the order of their beginnings."""
    innermost: _Below | None = None
    for record in records:
        if record.kind() == "push":
            innermost = _Below(record.name(), innermost)
            yield innermost
        elif record.kind() == "pop" and innermost is not None:
            innermost = innermost.around


def hidden_operations(profile: Any, span: str) -> Iterator[Event]:
    """Computing operations that ran without a dispatched one around or in them."""
    spans = {span, OURS}
    events = profile.events
    if not any(event.name == span + END for event in events):
        yield _hidden("the profiler")
    dispatched: set[int] = set()
    for event in events:
        if event.name in spans:
            dispatched |= {id(above) for above in _ancestors(event)}
    for event in events:
        if not _may_compute(event.name):
            continue
        if id(event) not in dispatched and not any(e.name in spans for e in _ancestors(event)):
            yield _hidden(event.name)


def _may_compute(name: str) -> bool:
    namespace, _, short = name.partition("::")
    if namespace == "aten":
        return may_compute(short)
    return namespace in torchs_namespaces() - {"prim", "profiler"}


def _hidden(name: str) -> Event:
    return Event(name, "compute", frozenset(), frozenset(), True, hidden=True)


def _ancestors(event: _Below | None) -> Iterator[_Below]:
    while event is not None:
        yield event
        event = event.around
