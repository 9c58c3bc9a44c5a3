"""Every example is a task that tells right from wrong: it honours the contract, runs, and answers what its inputs say."""

import re
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from gpu_runner.core.contract import check_contract
from gpu_runner.core.probe import probe_assignments, with_assignments

ROOT = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(ROOT.glob("*/*.py"))
AT_LEAST = {"level1": 30, "level2": 30, "level3": 8, "serving": 10}


def loaded(source: str) -> Any:
    module = types.ModuleType("task")
    exec(compile(source, "task.py", "exec"), module.__dict__)
    return module


def outputs(task: Any, seed: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(7)
    model = task.Model(*task.get_init_inputs())
    torch.manual_seed(seed)
    with torch.no_grad():
        answer = model(*task.get_inputs())
    return answer if isinstance(answer, tuple) else (answer,)


class Traffic(TorchDispatchMode):
    """Counts the bytes that operations write, views left out."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not func.is_view:
            self.written += result.numel() * result.element_size()
        return result


@pytest.mark.parametrize("level", AT_LEAST)
def test_there_are_enough_examples_of_a_level(level: str) -> None:
    assert len(list(ROOT.glob(f"{level}/*.py"))) >= AT_LEAST[level]


def test_a_third_of_the_examples_computes_in_half_precision() -> None:
    half = [path for path in EXAMPLES if re.search(r"bfloat16|float16|half\(\)", path.read_text())]
    assert 3 * len(half) >= len(EXAMPLES)


def test_no_two_examples_differ_only_in_their_sizes() -> None:
    without_sizes = [
        re.sub(r"(?m)^\w+ = \d+$", "", path.read_text().rpartition('"""')[2]) for path in EXAMPLES
    ]
    assert len(set(without_sizes)) == len(EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_honours_the_contract(path: Path) -> None:
    source = path.read_text()
    assert check_contract(source) == []
    assert source.startswith('"""'), "an example says in a paragraph what it stands for"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_at_its_first_probe_size_and_depends_on_its_inputs(path: Path) -> None:
    source = path.read_text()
    task = loaded(with_assignments(source, probe_assignments(source)[0]))
    for one, other in zip(outputs(task, 1), outputs(task, 2), strict=True):
        assert torch.isfinite(one).all()
        assert one.numel() == 1 or one.float().std() > 1e-6
        difference = (one.float() - other.float()).square().mean().sqrt()
        assert difference > 1e-3 * one.float().square().mean().sqrt()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fills_a_gpu(path: Path) -> None:
    """By the bytes it reads and writes, or by the arithmetic of its products; without allocating any of it."""
    with FakeTensorMode(), torch.no_grad():
        task = loaded(path.read_text())
        inputs = task.get_inputs()
        model = task.Model(*task.get_init_inputs())
        with FlopCounterMode(display=False) as counter, Traffic() as traffic:
            model(*inputs)
    given = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
    assert given + traffic.written >= 60e6 or counter.get_total_flops() >= 5e9
    assert given < 2e9
