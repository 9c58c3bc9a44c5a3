import pytest

from gpu_runner.core.contract import check_candidate, check_contract
from gpu_runner.core.task import TaskSpec

TASK = """\
import torch
from torch import nn

N = 8


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)

    def forward(self, x):
        return self.fc(x)


def get_inputs():
    return [torch.randn(N, N)]


def get_init_inputs():
    return [N]
"""


def test_a_task_in_the_kernelbench_form_has_no_problem() -> None:
    assert check_contract(TASK) == []


def test_a_byte_order_mark_is_no_part_of_a_source() -> None:
    marked = "\ufeff" + TASK

    assert check_contract(marked) == []
    assert check_candidate(marked.replace("class Model", "class ModelNew")) is None
    assert TaskSpec(name="x", source=marked).source == TASK


def test_a_reference_function_needs_inputs_only() -> None:
    assert (
        check_contract("def reference(x):\n    return x\ndef get_inputs():\n    return [1]\n") == []
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class Model", "class Net", "neither a class Model"),
        ("def get_inputs", "def inputs", "defines no get_inputs()"),
        ("def get_init_inputs", "def init_inputs", "there is no get_init_inputs()"),
        ("def get_inputs()", "def get_inputs(n)", "get_inputs must take no arguments"),
        ("class Model(nn.Module)", "class Model", "does not derive from torch.nn.Module"),
        ("def forward", "def call", "has no method forward"),
        (TASK, "", "the source is empty"),
        (TASK, "(" * 1000, "nested"),
    ],
)
def test_what_breaks_the_contract_is_said(old: str, new: str, message: str) -> None:
    problems = check_contract(TASK.replace(old, new))

    assert len(problems) == 1
    assert message in problems[0].message


def test_names_bound_below_a_condition_or_by_assignment_count() -> None:
    source = (
        "try:\n    import triton\nexcept ImportError:\n    pass\nfrom zoo import Net as ModelNew\n"
    )

    assert check_candidate(source) is None


def test_a_candidate_needs_model_new() -> None:
    problem = check_candidate("class Model: pass")

    assert problem is not None
    assert problem.kind == "no_entry"
