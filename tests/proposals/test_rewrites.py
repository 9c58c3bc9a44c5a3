"""Rewrites: each applies where it should, leaves alone what it should, and what is computed stays the same."""

from pathlib import Path
from typing import Any

import pytest

from gpu_runner.core.candidate import Candidate
from gpu_runner.core.graph import Graph, Node, Ref
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Precision
from gpu_runner.proposals import rewrites
from gpu_runner.proposals.catalogue import function_for
from gpu_runner.proposals.catalogue.render import ORDERS
from gpu_runner.proposals.child.rewrites import rewrites as rewritten
from tests.proposals.interpreted import run_script

HEAD = """
import torch
import triton
import triton.language as tl

"""

CHAIN = (
    HEAD
    + '''
@triton.jit
def silu_kernel(x_ptr, middle_ptr, numel, BLOCK: tl.constexpr):
    """SiLU of twice the input."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < numel
    x = tl.load(x_ptr + offsets, mask=mask)
    t = x * 2.0  # the comment stays
    middle = t * tl.sigmoid(t)
    tl.store(middle_ptr + offsets, middle, mask=mask)


@triton.jit
def pool_kernel(x_ptr, middle_ptr, output_ptr, numel, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < numel
    x = tl.load(x_ptr + 2 * offsets, mask=mask)
    left = tl.load(middle_ptr + 2 * offsets, mask=mask)
    right = tl.load(middle_ptr + (2 * offsets + 1), mask=mask)
    tl.store(output_ptr + offsets, x + (left + right) / 2, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        middle = torch.empty_like(x)
        output = torch.empty(x.numel() // 2)
        grid = lambda META: (triton.cdiv(x.numel(), META["BLOCK"]),)
        silu_kernel[grid](x, middle, x.numel(), BLOCK=256)
        grid = lambda META: (triton.cdiv(x.numel() // 2, META["BLOCK"]),)
        pool_kernel[grid](x, middle, output, x.numel() // 2, BLOCK=256)
        return output
'''
)

PASSES = (
    HEAD
    + """
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = float("-inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=float("-inf"))
        largest = tl.maximum(largest, tl.max(x, axis=0))
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=float("-inf"))
        total += tl.sum(tl.exp(x - largest), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=float("-inf"))
        tl.store(y_ptr + row * n_cols + cols, tl.exp(x - largest) / total, mask=cols < n_cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=32)
        return y
"""
)

PRODUCT = (
    HEAD
    + """
@triton.jit
def product_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        y = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        grid = (triton.cdiv(a.shape[0], 16), triton.cdiv(b.shape[1], 16))
        product_kernel[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], BM=16, BN=16, BK=16)
        return c
"""
)

ROW = (
    HEAD
    + """
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    total = tl.sum(e, axis=0)
    tl.store(y_ptr + row * n + cols, e / total, mask=cols < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""
)


def product_text() -> str:
    function = function_for("mm", name="product")
    assert function is not None
    return function.text


EPILOGUE = (
    HEAD
    + product_text()
    + """

@triton.jit
def gate_kernel(y_ptr, x_ptr, row_ptr, out_ptr, n_cols, numel, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < numel
    row = tl.load(row_ptr + offsets % n_cols, mask=mask)
    acc = tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * tl.sigmoid(acc + row), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, a, b, x, row):
        y = product(a, b)
        gated = torch.empty_like(x)
        grid = lambda META: (triton.cdiv(x.numel(), META["BLOCK"]),)
        gate_kernel[grid](y, x, row, gated, x.shape[1], x.numel(), BLOCK=256)
        return gated
"""
)


def by_name(source: str, products: str = "none") -> dict[str, str]:
    answer = rewritten({"source": source, "products": products})
    return {rewrite["name"]: rewrite["source"] for rewrite in answer["rewrites"]}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (CHAIN, {"fuse_producer", "hint_streams"}),
        (PASSES, {"hold_row_in_one_block", "accumulate_in_lanes", "pipeline_streams"}),
        (PRODUCT, {"group_tiles"}),
        (EPILOGUE, {"fuse_epilogue", "hint_streams"}),
        (ROW, {"hint_streams", "multiply_by_reciprocal"}),
    ],
    ids=["chain", "passes", "product", "epilogue", "row"],
)
def test_the_rewrites_that_apply(source: str, names: set[str]) -> None:
    assert set(by_name(source)) == names


def test_every_rewrite_keeps_what_is_computed(tmp_path: Path) -> None:
    sources = {}
    kinds = {"chain": CHAIN, "passes": PASSES, "product": PRODUCT, "epilogue": EPILOGUE, "row": ROW}
    for kind, source in kinds.items():
        sources[f"{kind}.py"] = source
        changed = by_name(source, "tf32") | by_name(source, "float32")
        sources |= {f"{kind}_{name}.py": text for name, text in changed.items()}
    errors = run_script(
        f"""
        a, b = torch.randn(50, 40), torch.randn(40, 70)
        inputs = {{
            "chain": (torch.randn(1000),), "passes": (torch.randn(5, 100),),
            "product": (a, b), "epilogue": (a, b, torch.randn(50, 70), torch.randn(70)), "row": (torch.randn(5, 100),),
        }}
        errors = {{}}
        for name in {sorted(sources)!r}:
            kind = name.removesuffix(".py").split("_")[0]
            expected = load(kind + ".py").ModelNew()(*inputs[kind])
            errors[name] = error(load(name).ModelNew()(*inputs[kind]), expected)
        errors["product.py"] = error(load("product.py").ModelNew()(a, b), a @ b)
        print(json.dumps(errors))
        """,
        tmp_path,
        sources,
    )
    tolerant = {name: errors.pop(name) for name in list(errors) if "tf32" in name}
    assert max(errors.values()) < 1e-5, errors
    assert max(tolerant.values()) < 1e-2


@pytest.mark.parametrize("template", sorted({template for template, _ in ORDERS}))
def test_products_for_tensor_cores_read_their_operands_as_those_do(template: str) -> None:
    exact, cores = (ORDERS.get((template, p), ()) for p in ("ieee", "tf32"))
    line = "        c = torch.empty"
    laid_out = PRODUCT.replace(line, "".join(f"        {text}\n" for text in exact) + line)

    source = by_name(laid_out, "float32")["emulate_float32"]

    assert 'input_precision="tf32x3"' in source
    assert [text for text in exact if text in source] == []
    assert not exact or all(text in source for text in cores)


def test_fusing_removes_the_buffer_the_launch_and_the_kernel_and_keeps_comments() -> None:
    fused = by_name(CHAIN)["fuse_producer"]
    assert "middle = torch.empty_like" not in fused
    assert "def silu_kernel" not in fused
    assert "silu_kernel[grid]" not in fused
    assert fused.count("grid = lambda") == 1
    assert fused.count("tl.sigmoid") == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return output", "return output + middle.sum()"),
        ("middle = torch.empty_like(x)", "middle = torch.zeros_like(x)"),
        ("mask = offsets < numel\n    x = tl.load(x_ptr + offsets", "mask = offsets < 7\n    x = tl.load(x_ptr + offsets"),
        ("left = tl.load(middle_ptr + 2 * offsets, mask=mask)", "left = tl.load(middle_ptr, mask=None)"),
    ],
    ids=["the buffer is used elsewhere", "not every element is written", "another extent", "another address"],
)  # fmt: skip
def test_a_producer_is_not_fused_when(old: str, new: str) -> None:
    assert old in CHAIN
    assert "fuse_producer" not in by_name(CHAIN.replace(old, new, 1))


def test_an_epilogue_replaces_the_launch_and_what_it_reads_is_passed_on() -> None:
    fused = by_name(EPILOGUE)["fuse_epilogue"]
    assert "gate_kernel" not in fused
    assert (
        "product(a, b, out=gated.view(-1, gated.shape[-1]), x=x, row=row, n_cols=x.shape[1])"
        in fused
    )
    assert fused.count("@triton.jit") == 1


def test_a_size_that_only_the_fused_launch_read_goes_with_it() -> None:
    grid = '        grid = lambda META: (triton.cdiv(x.numel(), META["BLOCK"]),)'
    named = EPILOGUE.replace(
        grid, grid.replace("        grid", "        idle = 1\n        n = x.numel()\n        grid")
    )
    named = named.replace("cdiv(x.numel(), META", "cdiv(n, META").replace(
        "x.shape[1], x.numel(), B", "x.shape[1], n, B"
    )

    fused = by_name(named)["fuse_epilogue"]

    assert "n = x.numel()" in named
    assert "n = x.numel()" not in fused
    assert "idle = 1" in fused


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return gated", "return gated + y"),
        ("        y = product(a, b)\n", "        y = product(a, b)\n        a = x\n"),
        ("        y = product(a, b)\n", "        y = product(a, b, out=x)\n"),
        ("tl.load(y_ptr + offsets, mask=mask)", "tl.load(y_ptr + offsets // 2, mask=mask)"),
    ],
    ids=["the product is used elsewhere", "an argument changes", "the product has its own place", "another address"],
)  # fmt: skip
def test_an_epilogue_is_not_fused_when(old: str, new: str) -> None:
    assert old in EPILOGUE
    assert "fuse_epilogue" not in by_name(EPILOGUE.replace(old, new, 1))


def test_rows_are_not_held_when_the_block_also_places_programs() -> None:
    source = PASSES.replace("row = tl.program_id(0)\n", "row = tl.program_id(0) * BLOCK\n")
    assert "hold_row_in_one_block" not in by_name(source)


@pytest.mark.parametrize(
    ("precision", "flag", "dtype", "offered"),
    [
        (Precision.IEEE, True, "float32", "emulate_float32"),
        (Precision.TF32, False, "float32", "use_tf32"),
        (Precision.REFERENCE, True, "float32", "use_tf32"),
        (Precision.REFERENCE, False, "float32", "emulate_float32"),
        (Precision.TF32, True, "bfloat16", None),
    ],
)
def test_products_change_only_as_the_policy_and_their_type_permit(
    precision: Precision, flag: bool, dtype: str, offered: str | None
) -> None:
    class InProcess:
        def call(self, entry: str, request: dict[str, Any], **_: Any) -> dict[str, Any]:
            return rewritten(request)

    a = Node(name="a", kind="input", shape=(8, 8), dtype=dtype)
    product = Node(name="y", kind="call", op="aten.mm.default", args=(Ref(node="a"), Ref(node="a")))
    graph = Graph(nodes=(a, product), outputs=("y",), tf32_matmul=flag)
    task = TaskSpec(name="task", source="", precision=precision)
    candidate = Candidate(id=1, source=PRODUCT, island=0, origin="person")
    drafts = rewrites.drafts(InProcess(), task, candidate, graph)
    changed = {"rewrite:use_tf32", "rewrite:emulate_float32"} & {draft.origin for draft in drafts}
    assert changed == ({f"rewrite:{offered}"} if offered else set())


def test_the_catalogue_leaves_nothing_to_group() -> None:
    function = function_for("mm")
    assert function is not None
    assert by_name(function.imports + function.text) == {}
