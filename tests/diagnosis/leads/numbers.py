"""Kernels with wrong numbers: the cause, its line, and where in the output they are."""

from tests.diagnosis.leads.making import Case, candidate, pointwise, product, rows, task

DOUBLE = task("x * 2.0", "torch.randn(37, 53)")
SUM = task("x.sum(1)", "torch.randn(37, 150)")
BELOW_ZERO = task("x.amax(1)", "-1.0 - torch.rand(37, 150)")
SOFTMAX = task("torch.softmax(x, 1)", "torch.randn(37, 100)")
SQUARE_SOFTMAX = task("torch.softmax(x, 1)", "torch.randn(64, 64)")
NORM = task("F.layer_norm(x, (100,))", "torch.randn(37, 100) + 3.0")
PRODUCT = task("x @ w", "torch.randn(50, 70)", "torch.randn(70, 45)")
SQUARE = task("x @ w", "torch.randn(64, 64)", "torch.randn(64, 64)")
ROW = "torch.empty(x.shape[0])"

NORMALISED = """v = tl.load(x + row * n + c, mask=c < n, other=0.0)
mean = tl.sum(v, axis=0) / n
d = v - mean
var = tl.sum(d * d, axis=0) / n  # HERE
tl.store(y + row * n + c, d / tl.sqrt(var + 1e-5), mask=c < n)"""

BY_CHANNEL = """@triton.jit
def own(x, w, y, n, INNER: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = i // INNER % COUNT
    c = tl.minimum(c, COUNT - 2)
    s = tl.load(w + c, mask=i < n)
    tl.store(y + i, tl.load(x + i, mask=i < n) * s, mask=i < n)
"""

BLUR = """@triton.jit
def own(x, y, n, COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r, c = i // COLS, i % COLS
    v = tl.load(x + i, mask=i < n)
    inside = (r > 0) & (r < ROWS - 1) & (c > 0) & (c < COLS - 1) & (i < n)
    around = tl.load(x + i - COLS, mask=inside, other=0.0) + tl.load(x + i + COLS, mask=inside, other=0.0)
    tl.store(y + i, tl.where(inside, around * 0.4, v), mask=i < n)
"""

BLURRED = (
    "torch.cat([x[:1], torch.cat([x[1:-1, :1], (x[:-2, 1:-1] + x[2:, 1:-1]) * 0.5, x[1:-1, -1:]], 1),"
    " x[-1:]], 0)"
)

TILED_SOFTMAX = """@triton.jit
def own(x, y, n, R: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.arange(0, R)
    c = tl.arange(0, BLOCK)
    at = r[:, None] * n + c[None, :]
    v = tl.load(x + at)
    e = tl.exp(v - tl.max(v, axis=0)[None, :])
    tl.store(y + at, e / tl.sum(e, axis=0)[None, :])
"""

CASES = [
    Case(
        "a load's mask ends three elements early",
        DOUBLE,
        pointwise(
            "v = tl.load(x + i, mask=i < n - 3, other=0.0)  # HERE\n"
            "tl.store(y + i, v * 2.0, mask=i < n)"
        ),
        "values",
        "wrong_mask",
        "tail",
    ),
    Case(
        "a row's last columns are not loaded",
        DOUBLE,
        rows(
            "v = tl.load(x + row * n + c, mask=c < n // 8 * 8, other=0.0)  # HERE\n"
            "tl.store(y + row * n + c, v * 2.0, mask=c < n)"
        ),
        "values",
        "wrong_mask",
        "tail of axis 1",
    ),
    Case(
        "the last elements of a sum are left out",
        SUM,
        rows(
            "acc = tl.zeros((BLOCK,), tl.float32)\n"
            "for c0 in range(0, n // BLOCK * BLOCK, BLOCK):  # HERE\n"
            "    acc += tl.load(x + row * n + c0 + c)\n"
            "tl.store(y + row, tl.sum(acc, axis=0))",
            ROW,
            "64",
        ),
        "values",
        "skipped_elements",
        "last elements of the reduction",
    ),
    Case(
        "the last elements of a product's sum are left out",
        PRODUCT,
        product(("range(0, K, BK):", "range(0, K - BK, BK):  # HERE")),
        "values",
        "skipped_elements",
        "last elements of the reduction",
    ),
    Case(
        "a maximum is filled with zero",
        BELOW_ZERO,
        rows(
            "v = tl.load(x + row * n + c, mask=c < n, other=0.0)  # HERE\n"
            "tl.store(y + row, tl.max(v, axis=0))",
            ROW,
        ),
        "trivial_answer",
        "wrong_fill",
    ),
    Case(
        "a softmax is filled with zero",
        SOFTMAX,
        rows(
            "v = tl.load(x + row * n + c, mask=c < n, other=0.0)  # HERE\n"
            "e = tl.exp(v - tl.max(v, axis=0))\n"
            "tl.store(y + row * n + c, e / tl.sum(e, axis=0), mask=c < n)"
        ),
        "values",
        "wrong_fill",
        "everywhere",
    ),
    Case(
        "a sum is filled with one",
        SUM,
        rows(
            "v = tl.load(x + row * n + c, mask=c < n, other=1.0)  # HERE\n"
            "tl.store(y + row, tl.sum(v, axis=0))",
            ROW,
        ),
        "values",
        "wrong_fill",
        "everywhere",
    ),
    Case(
        "a variance counts the lanes beyond the row",
        NORM,
        rows(NORMALISED),
        "values",
        "unmasked_reduction",
        "everywhere",
    ),
    Case(
        "a sum's mask lets the next row in",
        SUM,
        rows(
            "at = row * n + c\n"
            "v = tl.load(x + at, mask=at < n * tl.num_programs(0), other=0.0)  # HERE\n"
            "tl.store(y + row, tl.sum(v, axis=0))",
            ROW,
        ),
        "values",
        "missing_mask",
    ),
    Case(
        "a product accumulates in float16",
        PRODUCT,
        product(
            (
                "acc = tl.zeros((BM, BN), tl.float32)",
                "acc = tl.zeros((BM, BN), tl.float16)  # HERE",
            ),
            (
                'acc += tl.dot(left, right, input_precision="ieee")',
                'acc += tl.dot(left, right, input_precision="ieee").to(tl.float16)',
            ),
        ),
        "values",
        "low_precision",
    ),
    Case(
        "a sum is taken in bfloat16",
        SUM,
        rows(
            "v = tl.load(x + row * n + c, mask=c < n, other=0.0).to(tl.bfloat16)  # HERE\n"
            "tl.store(y + row, tl.sum(v, axis=0).to(tl.float32))",
            ROW,
        ),
        "values",
        "low_precision",
    ),
    Case(
        "the right operand is read transposed",
        SQUARE,
        product(
            (
                "right = tl.load(b + (k0 + k)[:, None] * N + n[None, :], "
                "mask=(k0 + k < K)[:, None] & (n < N)[None, :], other=0.0)",
                "right = tl.load(b + (k0 + k)[:, None] + n[None, :] * N, "
                "mask=(k0 + k < K)[:, None] & (n < N)[None, :], other=0.0)  # HERE",
            ),
        ),
        "values",
        "transposed_strides",
        "everywhere",
    ),
    Case(
        "the result is stored transposed",
        SQUARE,
        product(
            (
                "tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])",
                "tl.store(y + m[:, None] + n[None, :] * N, acc, mask=(m < M)[:, None] & (n < N)[None, :])  # HERE",
            ),
        ),
        "values",
        "transposed_strides",
        "everywhere",
    ),
    Case(
        "a softmax over the other axis",
        SQUARE_SOFTMAX,
        candidate(
            TILED_SOFTMAX.replace(
                "tl.max(v, axis=0)[None, :])", "tl.max(v, axis=0)[None, :])  # HERE"
            ),
            "y = torch.empty_like(x)\nown[(1,)](x, y, 64, R=64, BLOCK=64)\nreturn y",
        ),
        "values",
        "wrong_axis",
        "everywhere",
    ),
    Case(
        "every block is loaded one tile early",
        DOUBLE,
        pointwise(
            "at = tl.maximum(i - BLOCK, i % BLOCK)\n"
            "v = tl.load(x + at, mask=i < n, other=0.0)  # HERE\n"
            "tl.store(y + i, v * 2.0, mask=i < n)"
        ),
        "values",
        "wrong_tile",
    ),
    Case(
        "every element is the next one's",
        DOUBLE,
        pointwise(
            "v = tl.load(x + i + 1, mask=i + 1 < n, other=0.0)  # HERE\n"
            "tl.store(y + i, v * 2.0, mask=i < n)"
        ),
        "values",
        "wrong_tile",
    ),
    Case(
        "one block row is scaled",
        SQUARE,
        product(("acc, mask", "acc * tl.where(tl.program_id(0) == 0, 0.5, 1.0), mask")),
        "values",
        None,
        "block row",
    ),
    Case(
        "one block column is scaled",
        SQUARE,
        product(("acc, mask", "acc * tl.where(tl.program_id(1) == 0, 0.5, 1.0), mask")),
        "values",
        None,
        "block column",
    ),
    Case(
        "the last channel has its neighbour's scale",
        task("x * w[None, :, None, None]", "torch.randn(3, 6, 9, 11)", "torch.randn(6)"),
        candidate(
            BY_CHANNEL,
            "y = torch.empty_like(x)\n"
            "own[(triton.cdiv(x.numel(), 256),)](x, w, y, x.numel(), INNER=99, COUNT=6, BLOCK=256)\nreturn y",
            names="x, w",
        ),
        "values",
        None,
        "channel 5",
    ),
    Case(
        "the last head has its neighbour's slope",
        task(
            "F.scaled_dot_product_attention(x, x, x) * w[None, :, None, None]",
            "torch.randn(2, 4, 16, 8)",
            "torch.randn(4)",
        ),
        candidate(
            """@triton.jit
def own(x, w, y, HEADS: tl.constexpr, T: tl.constexpr, D: tl.constexpr):
    p = tl.program_id(0)
    at = p * T * D + tl.arange(0, T)[:, None] * D + tl.arange(0, D)[None, :]
    q = tl.load(x + at)
    scores = tl.sum(q[:, None, :] * q[None, :, :], axis=2) * 0.35355339059327373
    e = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    e = e / tl.sum(e, axis=1)[:, None]
    s = tl.load(w + tl.minimum(p % HEADS, HEADS - 2))
    tl.store(y + at, tl.sum(e[:, :, None] * q[None, :, :], axis=1) * s)
""",
            "y = torch.empty_like(x)\nown[(8,)](x, w, y, HEADS=4, T=16, D=8)\nreturn y",
            names="x, w",
        ),
        "values",
        None,
        "head 3",
    ),
    Case(
        "only large values are wrong",
        task("x * x * x", "torch.randn(37, 53)"),
        pointwise(
            "v = tl.load(x + i, mask=i < n)\n"
            "v = tl.minimum(tl.maximum(v, -2.0), 2.0)\n"
            "tl.store(y + i, v * v * v, mask=i < n)"
        ),
        "values",
        "large_magnitudes",
        "large magnitudes only",
    ),
    Case(
        "the interior of an image is scaled",
        task(BLURRED, "torch.randn(40, 50)"),
        candidate(
            BLUR,
            "y = torch.empty_like(x)\n"
            "own[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), COLS=50, ROWS=40, BLOCK=256)\nreturn y",
        ),
        "values",
        None,
        "interior",
    ),
    Case(
        "a mean divides by the padded length",
        task("x.mean(1)", "torch.randn(37, 150) + 1.0"),
        rows(
            "v = tl.load(x + row * n + c, mask=c < n, other=0.0)\n"
            "tl.store(y + row, tl.sum(v, axis=0) / BLOCK)  # HERE",
            ROW,
        ),
        "values",
        "scaled",
        "everywhere",
        says="0.5859",
    ),
    Case(
        "the carry of a running sum is lost",
        task("x.cumsum(1)", "torch.randn(37, 150)"),
        rows(
            "for c0 in range(0, n, BLOCK):\n"
            "    v = tl.load(x + row * n + c0 + c, mask=c0 + c < n, other=0.0)\n"
            "    tl.store(y + row * n + c0 + c, tl.cumsum(v, axis=0), mask=c0 + c < n)",
            block="64",
        ),
        "values",
        None,
        "tail of axis 1",
    ),
    Case(
        "an infinite maximum is subtracted from itself",
        SOFTMAX,
        rows(
            'm = float("-inf")\n'
            "for c0 in range(0, 192, BLOCK):\n"
            '    v = tl.load(x + row * n + c0 + c, mask=c0 + c < n, other=float("-inf"))\n'
            "    m = tl.max(v, axis=0)\n"
            "    e = tl.exp(v - m)  # HERE\n"
            "    tl.store(y + row * n + c0 + c, e, mask=c0 + c < n)\n"
            "e = tl.exp(tl.load(x + row * n + c, mask=c < n, other=0.0) - m + m)\n"
            "tl.store(y + row * n + c, e, mask=c < n)",
            block="64",
        ),
        "nan",
        None,
    ),
    Case(
        "a root of negative numbers",
        task("x.abs().sqrt()", "torch.randn(37, 53)"),
        pointwise(
            "v = tl.load(x + i, mask=i < n)\ntl.store(y + i, tl.sqrt(v), mask=i < n)  # HERE"
        ),
        "nan",
        "undefined_value",
    ),
    Case(
        "a product in TF32 under full float32",
        PRODUCT,
        product(
            ("def own(", "def own(  # HERE\n    "),
            ('"ieee"', '"tf32"'),
        ),
        "precision_below_policy",
    ),
]
