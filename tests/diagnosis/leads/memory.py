"""Kernels that reach where they must not, race, or leave elements unwritten; and candidates that are not genuine."""

from tests.diagnosis.leads.making import Case, candidate, pointwise, rows, task

DOUBLE = task("x * 2.0", "torch.randn(37, 53)")
SUM = task("x.sum().reshape(1)", "torch.randn(3000)")
BIG = task("x * 2.0", "torch.randn(37, 53)")

ADDED = """@triton.jit
def own(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
"""

CASES = [
    Case(
        "a load without a mask",
        DOUBLE,
        pointwise("v = tl.load(x + i)  # HERE\ntl.store(y + i, v * 2.0, mask=i < n)"),
        "out_of_bounds",
        "missing_mask",
        says="x + i",
    ),
    Case(
        "a store without a mask",
        DOUBLE,
        pointwise("v = tl.load(x + i, mask=i < n)\ntl.store(y + i, v * 2.0)  # HERE"),
        "out_of_bounds",
        "missing_mask",
        says="y + i",
    ),
    Case(
        "a mask of the wrong size",
        DOUBLE,
        pointwise(
            "v = tl.load(x + i, mask=i < n)\ntl.store(y + i + 5, v * 2.0, mask=i < n)  # HERE"
        ),
        "out_of_bounds",
        "wrong_mask",
        says="y + i + 5",
    ),
    Case(
        "a negative index",
        DOUBLE,
        pointwise(
            "v = tl.load(x + i - 1, mask=i < n)  # HERE\ntl.store(y + i, v * 2.0, mask=i < n)"
        ),
        "out_of_bounds",
        "wrong_mask",
        says="before the start of x",
    ),
    Case(
        "a helper reads without a mask",
        DOUBLE,
        pointwise(
            "tl.store(y + i, fetched(x, i) * 2.0, mask=i < n)",
            before="@triton.jit\ndef fetched(p, at):\n    return tl.load(p + at)  # HERE\n\n\n",
        ),
        "out_of_bounds",
        "missing_mask",
        says="p + at",
    ),
    Case(
        "a grid one block short",
        DOUBLE,
        pointwise(
            "tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)  # HERE",
            "y = torch.empty_like(x)\n"
            "own[(x.numel() // 256,)](x, y, x.numel(), BLOCK=256)\nreturn y",
        ),
        "unwritten",
        "short_grid",
        "tail",
    ),
    Case(
        "a store's mask ends early",
        DOUBLE,
        rows(
            "v = tl.load(x + row * n + c, mask=c < n)\n"
            "tl.store(y + row * n + c, v * 2.0, mask=c < n - 5)  # HERE"
        ),
        "unwritten",
        "wrong_mask",
        "tail of axis 1",
    ),
    Case(
        "a sum over programs without an atomic",
        SUM,
        candidate(
            ADDED + "    tl.store(y, tl.load(y) + tl.sum(v, axis=0))  # HERE",
            "y = torch.zeros(1)\nown[(12,)](x, y, x.numel(), BLOCK=256)\nreturn y",
        ),
        "race",
        "race",
    ),
    Case(
        "programs store their sums over each other",
        SUM,
        candidate(
            ADDED + "    tl.store(y, tl.sum(v, axis=0))  # HERE",
            "y = torch.zeros(1)\nown[(12,)](x, y, x.numel(), BLOCK=256)\nreturn y",
        ),
        "race",
        "race",
    ),
    Case(
        "an atomic into memory that nobody cleared",
        SUM,
        candidate(
            ADDED + "    tl.atomic_add(y, tl.sum(v, axis=0))  # HERE",
            "y = torch.empty(1)\nown[(12,)](x, y, x.numel(), BLOCK=256)\nreturn y",
        ),
        "unwritten",
        "not_cleared",
    ),
    Case(
        "torch multiplies",
        DOUBLE,
        pointwise(
            "tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)",
            "y = torch.empty_like(x)\n"
            "own[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\n"
            "return y * 2.0  # HERE",
        ),
        "torch_computes",
        says="mul",
    ),
    Case(
        "a kernel whose result nobody uses",
        task("x.t().contiguous()", "torch.randn(20, 64)"),
        pointwise(
            "tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)",
            "y = torch.empty_like(x)\n"
            "own[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\n"
            "return x.t().contiguous()",
        ),
        "decoy_kernel",
        says="own",
    ),
    Case(
        "the evaluator's comparison is replaced",
        DOUBLE,
        pointwise(
            "tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)",
            before="torch.equal = lambda *a: True  # HERE\n\n\n",
        ),
        "tampering",
        says="torch.equal",
    ),
    Case(
        "the first result is given again",
        DOUBLE,
        pointwise(
            "tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)",
            "if self.kept is None:\n"
            "    self.kept = torch.empty_like(x)\n"
            "    own[(triton.cdiv(x.numel(), 256),)](x, self.kept, x.numel(), BLOCK=256)\n"
            "return self.kept",
            init="self.kept = None",
        ),
        "remembered_result",
    ),
]
