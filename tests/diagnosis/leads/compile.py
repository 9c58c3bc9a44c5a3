"""Kernels that do not compile."""

from tests.diagnosis.leads.making import Case, candidate, pointwise, product, task

DOUBLE = task("x * 2.0", "torch.randn(37, 53)")
PRODUCT = task("x @ w", "torch.randn(50, 70)", "torch.randn(70, 45)")

CASES = [
    Case(
        "blocks of 256 and 128 are added",
        DOUBLE,
        pointwise(
            "v = tl.load(x + i, mask=i < n)\n"
            "v = v + tl.arange(0, 128)  # HERE\n"
            "tl.store(y + i, v * 2.0, mask=i < n)"
        ),
        "frontend",
        "shape_mismatch",
        says="256 and 128",
    ),
    Case(
        "operands of a dot do not fit",
        PRODUCT,
        product(
            (
                'acc += tl.dot(left, right, input_precision="ieee")',
                'acc += tl.dot(left, right, input_precision="ieee")  # HERE',
            ),
            ("(k0 + k)[:, None] * N + n[None, :]", "(k0 + k)[None, :] * N + n[:, None]"),
            (
                "mask=(k0 + k < K)[:, None] & (n < N)[None, :]",
                "mask=(k0 + k < K)[None, :] & (n < N)[:, None]",
            ),
            tiles="BM=32, BN=64, BK=32",
        ),
        "frontend",
        "shape_mismatch",
        says="64",
    ),
    Case(
        "a range of 100",
        DOUBLE,
        pointwise(
            "j = tl.arange(0, 100)  # HERE\ntl.store(y + j, tl.load(x + j) * 2.0)",
        ),
        "frontend",
        "not_a_power_of_two",
        says="100",
    ),
    Case(
        "a block size of 53 from the launch",
        DOUBLE,
        candidate(
            "@triton.jit\ndef own(x, y, n, BLOCK: tl.constexpr):\n"
            "    row = tl.program_id(0)\n"
            "    c = tl.arange(0, BLOCK)  # HERE\n"
            "    tl.store(y + row * n + c, tl.load(x + row * n + c) * 2.0)",
            "y = torch.empty_like(x)\nown[(x.shape[0],)](x, y, x.shape[1], BLOCK=x.shape[1])\nreturn y",
        ),
        "frontend",
        "not_a_power_of_two",
        says="53",
    ),
    Case(
        "a number is loaded from",
        DOUBLE,
        pointwise("v = tl.load(n + i, mask=i < n)  # HERE\ntl.store(y + i, v * 2.0, mask=i < n)"),
        "frontend",
        "wrong_type",
    ),
    Case(
        "a float is shifted",
        DOUBLE,
        pointwise(
            "v = tl.load(x + i, mask=i < n)\nv = v << 1  # HERE\ntl.store(y + i, v, mask=i < n)"
        ),
        "frontend",
        "wrong_type",
    ),
    Case(
        "a function that triton.language lacks",
        DOUBLE,
        pointwise(
            "v = tl.load(x + i, mask=i < n)\n"
            "v = tl.softplus(v)  # HERE\n"
            "tl.store(y + i, v, mask=i < n)"
        ),
        "frontend",
        "unknown_name",
        says="softplus",
    ),
    Case(
        "a misspelt function",
        DOUBLE,
        pointwise(
            "v = tl.load(x + i, mask=i < n)\n"
            "v = tl.maximun(v, 0.0)  # HERE\n"
            "tl.store(y + i, v, mask=i < n)"
        ),
        "frontend",
        "unknown_name",
        says="tl.maximum",
    ),
    Case(
        "a nested helper adds blocks that do not fit",
        DOUBLE,
        pointwise(
            "tl.store(y + i, outer(tl.load(x + i, mask=i < n)), mask=i < n)",
            before="@triton.jit\ndef inner(v):\n    return v + tl.arange(0, 64)  # HERE\n\n\n"
            "@triton.jit\ndef outer(v):\n    return inner(v) * 2.0\n\n\n",
        ),
        "frontend",
        "shape_mismatch",
        says="64",
    ),
    Case(
        "a helper names what is not there",
        DOUBLE,
        pointwise(
            "tl.store(y + i, twice(tl.load(x + i, mask=i < n)), mask=i < n)",
            before="@triton.jit\ndef twice(v):\n    return v * factor  # HERE\n\n\n",
        ),
        "frontend",
        "unknown_name",
        says="factor",
    ),
    Case(
        "a global variable",
        DOUBLE,
        pointwise(
            "v = tl.load(x + i, mask=i < n)\ntl.store(y + i, v * SCALE, mask=i < n)  # HERE",
            before="SCALE = 2.0\n\n\n",
        ),
        "frontend",
        "not_constexpr",
        says="SCALE",
    ),
    Case(
        "an accumulator changes its shape in the loop",
        DOUBLE,
        pointwise(
            "total = 0.0\n"
            "for k in range(n // 4096, n // 2048 + 1):  # HERE\n"
            "    total = total + tl.load(x + i, mask=i < n)\n"
            "tl.store(y + i, total * 2.0, mask=i < n)"
        ),
        "frontend",
        "wrong_type",
        says="total",
    ),
    Case(
        "a list comprehension",
        DOUBLE,
        pointwise(
            "v = [tl.load(x + i, mask=i < n) for _ in range(2)]  # HERE\n"
            "tl.store(y + i, v[0] * 2.0, mask=i < n)"
        ),
        "frontend",
        "unsupported_python",
    ),
    Case(
        "a tile of two million elements",
        DOUBLE,
        pointwise(
            "j = tl.arange(0, 2048)\n"
            "at = j[:, None] * 1024 + tl.arange(0, 1024)[None, :]  # HERE\n"
            "tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)"
        ),
        "frontend",
        "tile_too_large",
        says="2097152",
    ),
    Case(
        "shared memory beyond the limit",
        task("x @ w", "torch.randn(32, 32).half()", "torch.randn(32, 32).half()"),
        product(
            ("def own(", "def own(  # HERE\n    "),
            (', input_precision="ieee"', ""),
            tiles="BM=128, BN=128, BK=128, num_stages=8, num_warps=8",
            dtype=", dtype=torch.float16",
        ),
        "resources",
        "shared_memory",
        says="bytes of shared memory",
    ),
    Case(
        "64 warps",
        DOUBLE,
        pointwise(
            "tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)",
            "y = torch.empty_like(x)\n"
            "own[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256, num_warps=64)\nreturn y",
        ),
        "resources",
        "threads",
        says="1,024",
    ),
    Case(
        "a launch without an argument",
        DOUBLE,
        pointwise(
            "tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)",
            "y = torch.empty_like(x)\n"
            "own[(triton.cdiv(x.numel(), 256),)](x, y, BLOCK=256)  # HERE\nreturn y",
        ),
        "frontend",
        "launch_arguments",
        says="'n'",
    ),
    Case(
        "a launch with an argument too many",
        DOUBLE,
        pointwise(
            "tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)",
            "y = torch.empty_like(x)\n"
            "own[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256, TILE=4)  # HERE\nreturn y",
        ),
        "frontend",
        "launch_arguments",
        says="TILE",
    ),
]
