"""Every way to start a kernel is a launch that is seen, and that can be made to do nothing."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.compiler import CompiledKernel
from triton.runtime.interpreter import GridExecutor, InterpretedFunction
from triton.runtime.jit import JITFunction

from gpu_runner.evaluation.child.launches import LaunchTap

WRAPPED = (
    (InterpretedFunction, "run"),
    (InterpretedFunction, "__call__"),
    (GridExecutor, "__call__"),
    (JITFunction, "run"),
    (CompiledKernel, "run"),
    (CompiledKernel, "__getitem__"),
)


@triton.jit
def copied(x, y):  # type: ignore[no-untyped-def]
    pass


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> LaunchTap:
    for owner, name in WRAPPED:
        monkeypatch.setattr(owner, name, vars(owner)[name])
    tap = LaunchTap(lambda filename: filename == __file__)
    tap.install()
    return tap


def by_hand(kernel: Any, *args: Any) -> None:
    kernel.run(2, 3, 1, 0, kernel.function, kernel.packed_metadata, None, None, None, *args)


def by_grid(kernel: Any, *args: Any) -> None:
    kernel[(2, 3, 1)](*args, stream=0)


@pytest.mark.parametrize("start", [by_hand, by_grid])
@pytest.mark.parametrize("noop", [False, True])
def test_a_compiled_kernel_is_seen_however_it_is_started(
    tap: LaunchTap, start: Callable[..., None], noop: bool
) -> None:
    started: list[Any] = []
    kernel = object.__new__(CompiledKernel)
    vars(kernel).update(
        src=SimpleNamespace(fn=copied),
        name="copied",
        module=object(),
        function=1,
        packed_metadata=None,
        _run=lambda *args: started.append(args[9:]),
    )
    x, y = torch.ones(4), torch.empty(4)
    tap.reset(None, noop=noop)

    start(kernel, x, y)

    assert [(launch.kernel, launch.grid, launch.own) for launch in tap.launches] == [
        ("copied", (2, 3, 1), True)
    ]
    assert list(tap.launches[0].args)[:2] == ["x", "y"]
    assert started == ([] if noop else [(x, y)])
