"""A player's part at full size on a machine without a GPU: launches and operations over reserved memory, and compilation.

The first call may fold and re-pack parameters, which is not timed; so the second is what counts.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

# torch's checks import it at first use, which takes seconds; a zygote has it ready.
import torch.fx.experimental.symbolic_shapes

from gpu_runner.evaluation.child import untouched
from gpu_runner.evaluation.child.memory import contiguous_stride, dtype_named, place
from gpu_runner.evaluation.child.sessions import Sampling
from gpu_runner.evaluation.protocol import (
    Compile,
    Encoded,
    Model,
    Modelled,
    Placed,
    decode,
    encode,
)

GLANCE = Sampling(programs=1, iterations=1, seconds=0.5)

Build = Callable[[int, Any], Any]
Watch = Callable[[Any, list[torch.Tensor]], contextlib.AbstractContextManager[Any]]
"""Of a module and the tensors among its arguments, what observes a call besides."""


def model_own(
    build: Build, init: Callable[[], Any], inputs: Callable[[], Any], seed: int
) -> Modelled:
    """The reference's call, on what it makes itself."""
    with untouched.full_size(GLANCE):
        made = init()
        module, arguments = build(seed, made), inputs()
    init_tensors: list[torch.Tensor] = []
    tensors: list[torch.Tensor] = []
    init_tree, tree = encode(made, init_tensors), encode(arguments, tensors)
    answer = _second_call(module, arguments)
    return answer.model_copy(
        update={
            "init": init_tree,
            "init_places": tuple(place(init_tensors)[0]),
            "inputs": tree,
            "places": tuple(place(tensors)[0]),
        }
    )


def model_given(build: Build, request: Model, watch: Watch) -> Modelled:
    """Another module's call, on inputs of the places that the reference made."""
    with untouched.full_size(GLANCE):
        module = build(request.seed, reserved_value(request.init, request.init_places))
    return _second_call(module, reserved_value(request.inputs, request.places), watch)


def compile_given(build: Build, request: Compile) -> list[dict[str, Any]]:
    """Every kernel that a call launches, compiled for the target; see `compiling.CompiledKernel`."""
    from gpu_runner.evaluation.child import compiling

    with untouched.full_size():
        module = build(request.seed, reserved_value(request.init, request.init_places))
    arguments = reserved_value(request.inputs, request.places)
    kernels = compiling.compile_call(lambda: call(module, arguments))
    return [kernel.as_json() for kernel in kernels]


def _unwatched(module: Any, tensors: list[torch.Tensor]) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext()


def _second_call(module: Any, arguments: Any, watch: Watch = _unwatched) -> Modelled:
    with untouched.full_size(GLANCE):
        call(module, arguments)
    tensors: list[torch.Tensor] = []
    encode(arguments, tensors)
    outputs: list[torch.Tensor] = []
    with untouched.full_size() as world, watch(module, tensors) as recorder:
        output = call(module, arguments)
        encode(output, outputs)
    return Modelled(
        launches=tuple(launch.as_json() for launch in world.launches),
        operations=tuple(asdict(operation) for operation in world.operations),
        seen=recorder.operations(outputs) if recorder is not None else (),
        outputs=tuple(place(outputs)[0]),
        memory=tuple(world.findings),
    )


def reserved_value(tree: Encoded, places: Sequence[Placed]) -> Any:
    """The value with reserved tensors of these shapes, strides and dtypes."""
    return decode(tree, [_reserved(spec) for spec in places], torch)


def _reserved(spec: Placed) -> torch.Tensor:
    stride = contiguous_stride(spec.shape) if spec.stride is None else spec.stride
    return untouched.reserved(spec.shape, stride, dtype_named(spec.dtype))


def call(module: Any, arguments: Any) -> Any:
    if isinstance(arguments, dict):
        return module(**arguments)
    return module(*(arguments if isinstance(arguments, list | tuple) else [arguments]))
