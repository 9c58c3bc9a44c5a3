"""Shapes and dtypes of a task's inputs and outputs, as its report states them."""

from collections.abc import Sequence
from typing import Any

from gpu_runner.core.task_report import TensorSpec
from gpu_runner.evaluation.child.arena import Arena
from gpu_runner.evaluation.protocol import Encoded, Modelled, Placed


def spec(place: Placed) -> TensorSpec:
    return TensorSpec(shape=place.shape, dtype=place.dtype, stride=place.stride)


def places_of(
    described: Arena | Modelled,
) -> tuple[Sequence[Placed], Encoded, Sequence[Placed]]:
    """The inputs' places, the structure that they stand in, and the outputs' places."""
    if isinstance(described, Modelled):
        return described.places, described.inputs, described.outputs
    inputs = described.described
    return inputs.buffers[0].places, inputs.trees[0], described.outputs.places


def input_specs(tree: Encoded, places: Sequence[Placed]) -> tuple[TensorSpec | None, ...]:
    """One entry per argument of forward; None for what is no tensor by itself."""
    items: list[Any] = []
    if isinstance(tree, dict) and len(tree) == 1:
        ((tag, body),) = tree.items()
        if tag in ("list", "tuple"):
            items = list(body)
        elif tag == "dict":
            items = [item for _, item in body]
    return tuple(_spec_of(item, places) for item in items)


def _spec_of(item: Any, places: Sequence[Placed]) -> TensorSpec | None:
    if isinstance(item, dict) and isinstance(item.get("tensor"), int):
        place = places[item["tensor"]]
        return spec(place)
    return None
