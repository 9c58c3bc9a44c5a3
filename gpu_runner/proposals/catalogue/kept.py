"""Operations that stay calls of torch in the host code: they move numbers, or compute with whole numbers and truth values.

On the track that allows library calls sorting and Fourier transforms stay as well.
"""

from collections.abc import Callable
from typing import Final

from gpu_runner.core.graph import Argument, Graph, Node, Ref, Symbol
from gpu_runner.core.verdicts import Track
from gpu_runner.proposals.catalogue.pointwise import base_name

Host = Callable[[Argument], str]

_MOVES: Final = frozenset(
    "flip roll cat stack constant_pad_nd index_select gather embedding repeat_interleave pixel_shuffle pixel_unshuffle"
    " channel_shuffle masked_select take tril triu index repeat".split()
)
_MADE: Final = frozenset("arange zeros ones full zeros_like ones_like full_like eye".split())
_WHOLE: Final = frozenset(
    "eq ne lt le gt ge add sub mul bitwise_and bitwise_or bitwise_xor bitwise_not logical_and logical_or logical_not"
    " minimum maximum clamp remainder floor_divide where tril triu to _to_copy cumsum sum one_hot".split()
)
_LIBRARY: Final = frozenset("sort topk argsort fft_fft fft_ifft fft_rfft fft_irfft".split())
_EXACT: Final = frozenset(("bool", "int8", "int16", "int32", "int64", "uint8"))
_COMPUTES: Final = frozenset(("tril", "triu"))
"""Of the moves, those that multiply by zero when they are given floats."""


def is_kept(node: Node, graph: Graph, track: Track) -> bool:
    name = base_name(node)
    if node.kind != "call":
        return False
    sources = [graph.node(source) for source in node.inputs]
    exact = all(source.dtype in _EXACT for source in sources)
    if name in _MOVES and (exact or name not in _COMPUTES):
        return True
    if name in _MADE:
        return True
    if name in _WHOLE and sources and exact and node.dtype in _EXACT:
        return True
    return track is Track.LIBRARY_ALLOWED and name in _LIBRARY


def kept_text(node: Node, host: Host, device: str) -> str:
    """The call as torch's users write it.

    Args:
        host: the text of an argument in the host code.
        device: an expression for the device of what is made without an input.
    """
    name = base_name(node)
    texts = [_argument(argument, host) for argument in node.args]
    if name == "index":
        places = [":" if place is None else host(place) for place in node.args[1]]
        return f"{texts[0]}[{', '.join(places)}]"
    options = [
        f"{key}={_option(key, value, host)}"
        for key, value in node.kwargs.items()
        if value is not None
    ]
    if not node.inputs:
        options.append(f"device={device}")
    if name in ("to", "_to_copy"):
        return f"{texts[0]}.to(torch.{node.dtype})"
    if name in ("repeat",):
        return f"{texts[0]}.repeat({texts[1]})"
    return f"torch.{name.replace('fft_', 'fft.')}({', '.join([*texts, *options])})"


def _argument(argument: Argument, host: Host) -> str:
    if isinstance(argument, list):
        return f"({', '.join(_argument(item, host) for item in argument)}{',' if len(argument) == 1 else ''})"
    if isinstance(argument, Ref | Symbol):
        return host(argument)
    return repr(argument)


def _option(key: str, value: Argument, host: Host) -> str:
    return f"torch.{value}" if key == "dtype" else _argument(value, host)
