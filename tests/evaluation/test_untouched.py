"""Full-size calls over reserved memory: cheap, of the right shapes, and recorded."""

import resource
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gpu_runner.evaluation.child.counting import Operation
from gpu_runner.evaluation.child.untouched import full_size, reserved

GIB = 1 << 30


def recorded(*names: str, operations: list[Operation]) -> bool:
    return [operation.op for operation in operations] == list(names)


def test_gigabytes_cost_neither_time_nor_memory() -> None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with full_size() as world:
        x = torch.randn(1 << 30)
        y = torch.relu(x) + x
    assert y.shape == (1 << 30,)
    assert time.monotonic() - began < 5
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < GIB / 4
    assert recorded("randn", "relu", "add", operations=world.operations)


def test_reserved_memory_reads_as_zero_and_can_be_written() -> None:
    x = reserved((1 << 20, 4), (4, 1), torch.float32)
    x[5, 2] = 3.0
    assert float(x.sum()) == 3.0


def test_decisions_on_untouched_values_do_not_fail() -> None:
    with full_size():
        x = torch.randn(1 << 22)
        assert x.sum().item() == 0.0
        assert not bool((x > 1).any())


def test_small_operations_run_for_real() -> None:
    with full_size():
        offsets = torch.tensor([3, 4, 5]).cumsum(0)
        assert offsets.tolist() == [3, 7, 12]


def test_fresh_memory_reads_as_zero_however_small_it_is() -> None:
    with full_size():
        rooms = [torch.empty(100, dtype=torch.int64) for _ in range(50)]
        kept = torch.ones(100)
        kept.resize_(10, 10)

    assert not any(room.any() for room in rooms)
    assert kept.all()


def test_views_share_their_memory() -> None:
    with full_size() as world:
        x = torch.empty(1 << 20)
        assert x.view(1024, 1024).t()[3:].data_ptr() == x.data_ptr() + 3 * 4
    assert world.operations == []


def test_what_two_arguments_share_is_read_once() -> None:
    with full_size() as world:
        x = torch.empty(1024, 1024)
        x @ x.t()
        x[:512] + x[256:768]
    assert [o.read_bytes for o in world.operations] == [4 * 1024 * 1024, 4 * 768 * 1024]


def test_in_place_operations_return_their_argument() -> None:
    with full_size() as world:
        x = torch.empty(1 << 20)
        assert x.relu_() is x
        out = torch.empty(1 << 20)
        torch.add(x, x, out=out)
    assert recorded("relu_", "add", operations=world.operations)


def test_matrix_products_count_their_operations_and_bytes() -> None:
    with full_size() as world:
        linear = nn.Linear(1024, 4096)
        x = torch.randn(2048, 1024)
    with full_size() as world:
        linear(x)
    (product,) = world.operations
    assert (product.op, product.kind, product.dtype) == ("addmm", "matmul", "float32")
    assert product.flops == 2.0 * 2048 * 1024 * 4096
    assert product.written_bytes == 2048 * 4096 * 4
    assert product.read_bytes == (2048 * 1024 + 1024 * 4096 + 4096) * 4


def test_a_convolution_leaves_its_bias_to_an_addition() -> None:
    with full_size():
        conv, x = nn.Conv2d(64, 128, 3, padding=1), torch.randn(8, 64, 56, 56)
    with full_size() as world:
        y = conv(x)
    assert y.shape == (8, 128, 56, 56)
    assert recorded("convolution", "add_", operations=world.operations)
    assert world.operations[0].flops == 2.0 * y.numel() * 64 * 9


@pytest.mark.parametrize(("is_causal", "share"), [(False, 1.0), (True, 0.5)])
def test_attention_counts_both_products(is_causal: bool, share: float) -> None:
    with full_size():
        q = torch.randn(2, 8, 1024, 64, dtype=torch.bfloat16)
    with full_size() as world:
        F.scaled_dot_product_attention(q, q, q, is_causal=is_causal)
    (operation,) = world.operations
    assert operation.kind == "attention"
    assert operation.flops == share * 4.0 * 2 * 8 * 1024 * 1024 * 64


def test_a_lookup_reads_what_it_returns_and_not_the_table() -> None:
    with full_size():
        table, index = nn.Embedding(1 << 20, 64), torch.zeros(4096, dtype=torch.int64)
    with full_size() as world:
        table(index)
    (operation,) = world.operations
    assert operation.read_bytes == 4096 * 64 * 4 + 4096 * 8


def test_broadcast_operands_count_once() -> None:
    with full_size():
        x, bias = torch.randn(4096, 4096), torch.randn(4096)
    with full_size() as world:
        x + bias.expand(4096, 4096)
    assert world.operations[0].read_bytes == (4096 * 4096 + 4096) * 4


@pytest.mark.parametrize(
    "module",
    [
        nn.BatchNorm2d(64),
        nn.GroupNorm(8, 64),
        nn.MaxPool2d(2),
        nn.AvgPool2d(2),
        nn.ConvTranspose2d(64, 32, 2, stride=2),
        nn.Softmax(dim=1),
        nn.InstanceNorm2d(64),
        nn.AdaptiveAvgPool2d(1),
        nn.Dropout(0.5),
        nn.Hardswish(),
    ],
    ids=lambda module: type(module).__name__,
)
def test_shapes_are_those_of_a_real_call(module: nn.Module) -> None:
    expected = module(torch.randn(2, 64, 32, 32)).shape
    with full_size() as world:
        assert module(torch.randn(2, 64, 32, 32)).shape == expected
    assert all(operation.read_bytes >= 0 for operation in world.operations)
    assert len(world.operations) >= 2


def test_a_wrong_call_still_raises() -> None:
    with full_size(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.randn(1024, 512) @ torch.randn(1024, 512)
