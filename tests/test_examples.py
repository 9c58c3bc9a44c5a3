"""Every example is a task that tells right from wrong: it honours the contract, runs, and answers what its inputs say."""

import types
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_runner.core.contract import check_contract
from gpu_runner.core.probe import probe_assignments, with_assignments

ROOT = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(ROOT.glob("level*/*.py"))


def loaded(source: str) -> Any:
    module = types.ModuleType("task")
    exec(compile(source, "task.py", "exec"), module.__dict__)
    return module


def outputs(task: Any, seed: int) -> torch.Tensor:
    torch.manual_seed(7)
    model = task.Model(*task.get_init_inputs())
    torch.manual_seed(seed)
    with torch.no_grad():
        return model(*task.get_inputs())


def test_there_are_examples_of_both_levels() -> None:
    per_level = {level: len(list(ROOT.glob(f"{level}/*.py"))) for level in ("level1", "level2")}
    assert min(per_level.values()) >= 7


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_honours_the_contract(path: Path) -> None:
    source = path.read_text()
    assert check_contract(source) == []
    assert source.startswith('"""'), "an example says in a paragraph what it stands for"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_at_its_first_probe_size_and_depends_on_its_inputs(path: Path) -> None:
    source = path.read_text()
    task = loaded(with_assignments(source, probe_assignments(source)[0]))
    one, other = outputs(task, 1), outputs(task, 2)

    assert torch.isfinite(one).all()
    assert one.numel() == 1 or one.float().std() > 1e-6
    difference = (one.float() - other.float()).square().mean().sqrt()
    assert difference > 1e-3 * one.float().square().mean().sqrt()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fills_a_gpu(path: Path) -> None:
    """By its inputs' bytes, or by the arithmetic of a product or convolution; without allocating any of it."""
    from torch._subclasses import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    with FakeTensorMode(), FlopCounterMode(display=False) as counter, torch.no_grad():
        task = loaded(path.read_text())
        inputs = task.get_inputs()
        task.Model(*task.get_init_inputs())(*inputs)
    size = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
    assert size >= 60e6 or counter.get_total_flops() >= 5e9
    assert size < 2e9
