"""What crosses between judge and player is data, bounded and checked."""

import math
import os
from typing import Any

import pytest
import torch

from gpu_runner.evaluation.child.memory import open_memory, place
from gpu_runner.evaluation.errors import ProtocolError
from gpu_runner.evaluation.protocol import (
    Construct,
    Reported,
    Stored,
    Unencodable,
    answer_from,
    decode,
    encode,
    message_of,
    request_from,
)

VALUES = [
    None,
    True,
    -7,
    10**30,
    0.1,
    -0.0,
    math.inf,
    "text",
    [],
    (1, [2.5, None]),
    {"a": 1, 2: (3,)},
    torch.float16,
    torch.Size([2, 3]),
    torch.device("cpu"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_cross_unchanged(value: Any) -> None:
    there = decode(encode(value), None, torch)

    assert there == value
    assert type(there) is type(value)


def test_nan_crosses() -> None:
    assert math.isnan(decode(encode(math.nan)))


def test_tensors_cross_by_their_place() -> None:
    tensors: list[torch.Tensor] = []
    encoded = encode({"x": [torch.ones(2)], "n": 3}, tensors)

    assert encoded == {
        "dict": [[{"str": "x"}, {"list": [{"tensor": 0}]}], [{"str": "n"}, {"int": "3"}]]
    }
    assert decode(encoded, ["here"]) == {"x": ["here"], "n": 3}


@pytest.mark.parametrize(
    "value", [object(), lambda: 0, {1, 2}, b"bytes", "x" * 70_000, [0] * 30_000]
)
def test_other_values_do_not_cross(value: Any) -> None:
    with pytest.raises(Unencodable):
        encode(value)


def test_deep_nesting_does_not_cross() -> None:
    deep: list[Any] = []
    for _ in range(50):
        deep = [deep]
    with pytest.raises(Unencodable):
        encode(deep)


@pytest.mark.parametrize(
    "encoded",
    [
        {"tensor": 3},
        {"tensor": -1},
        {"tensor": "0"},
        {"dtype": "load"},
        {"dtype": "nn"},
        {"int": "x"},
        {"float": []},
        {"exec": "1"},
        {},
        {"int": "1", "float": "1"},
        7,
        [1],
    ],
    ids=repr,
)
def test_what_encode_would_not_write_is_refused(encoded: Any) -> None:
    with pytest.raises(ProtocolError):
        decode(encoded, ["only"], torch)


def test_an_answer_must_repeat_the_nonce() -> None:
    message = message_of("right", Stored())

    assert answer_from(message, "right", Stored) == Stored()
    with pytest.raises(ProtocolError, match="not asked"):
        answer_from(message, "other", Stored)


@pytest.mark.parametrize(
    "body",
    [
        None,
        {"status": "no such"},
        {"status": "stored", "extra": 1},
        {"status": "reported", "accusations": [{"what": "x", "kind": "innocent", "detail": ""}]},
        {"status": "timed", "times_us": [0.0]},
        {"status": "timed", "times_us": [float("nan")]},
        {"status": "ran", "tree": None, "outputs": {"nbytes": -1, "places": []}},
    ],
    ids=repr,
)
def test_a_misfit_is_refused(body: Any) -> None:
    with pytest.raises(ProtocolError):
        answer_from({"nonce": "n", "body": body}, "n", Reported)


def test_a_request_crosses() -> None:
    request = Construct(seed=3, init=encode([48, 40]))

    assert request_from(message_of("n", request)) == ("n", request)


def test_a_sealed_buffer_cannot_be_mapped_writable() -> None:
    memory = open_memory("cpu")
    tensor = torch.arange(12.0).reshape(3, 4).t()
    places, nbytes = place([tensor])
    with memory.lend(nbytes) as lent:  # type: ignore[attr-defined]
        lent.tensor(places[0]).copy_(tensor)
        lent.seal()
        with memory.adopt(os.dup(lent.fd), nbytes, writable=False) as there:  # type: ignore[attr-defined]
            assert torch.equal(there.tensor(places[0]), tensor)
            assert there.tensor(places[0]).stride() == (1, 4)
        with pytest.raises(PermissionError):
            memory.adopt(os.dup(lent.fd), nbytes, writable=True)


def test_a_place_outside_its_buffer_is_refused() -> None:
    places, _ = place([torch.zeros(5000)])
    with open_memory("cpu").lend(16) as lent, pytest.raises(ValueError, match="does not lie"):  # type: ignore[attr-defined]
        lent.tensor(places[0])
