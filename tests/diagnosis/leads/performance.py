"""Correct kernels that are slow for one reason, and some that cannot be faster."""

from tests.diagnosis.leads.making import Case, candidate, product, rows, task

SIZES = "ROWS = 8192\nCOLS = 8192"
GRID = "torch.randn(ROWS, COLS)"
DOUBLE = task("x * 2.0", GRID, sizes=SIZES)
TURNED = task("x.t() * 2.0", GRID, sizes=SIZES)
CLAMPED = task("torch.relu(x * 2.0)", GRID, sizes=SIZES)
SMALL = task("torch.relu(x * 2.0) + 1.0", GRID, sizes="ROWS = 64\nCOLS = 1024")
LONG = task("torch.softmax(x, 1)", GRID, sizes="ROWS = 4096\nCOLS = 65536")
SOFTMAX = task("torch.softmax(x, 1)", GRID, sizes="ROWS = 16384\nCOLS = 16384")
HALF = task("x * 2.0", "torch.randn(ROWS, COLS).half()", sizes=SIZES)
FEW = task("x.sum(1)", GRID, sizes="ROWS = 32\nCOLS = 2097152")
MADE = "torch.randn({}).half()"
PRODUCT = task(
    "x @ w", MADE.format("M, K"), MADE.format("K, N"), sizes="M = 4096\nN = 4096\nK = 4096"
)
TAIL = task("x @ w", MADE.format("M, K"), MADE.format("K, N"), sizes="M = 1536\nN = 1536\nK = 4096")
LAYER = task(
    "torch.relu(x @ w)",
    "torch.randn(M, K)",
    "torch.randn(K, N)",
    sizes="M = 4096\nN = 4096\nK = 1024",
)

SCALE = """@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)
"""
CLAMP = """@triton.jit
def clamp(x, y, n, BLOCK: tl.constexpr):  # HERE
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)
"""
INCREASE = """@triton.jit
def increase(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1.0, mask=i < n)
"""
SCALED = (
    "y = torch.empty_like(x)\nn = x.numel()\nscale[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)\n"
)

THREE_PASSES = """m = float("-inf")
for c0 in range(0, n, BLOCK):
    v = tl.load(x + row * n + c0 + c, mask=c0 + c < n, other=float("-inf"))
    m = tl.maximum(m, tl.max(v, axis=0))
total = 0.0
for c0 in range(0, n, BLOCK):
    v = tl.load(x + row * n + c0 + c, mask=c0 + c < n, other=float("-inf"))  # HERE
    total += tl.sum(tl.exp(v - m), axis=0)
for c0 in range(0, n, BLOCK):
    v = tl.load(x + row * n + c0 + c, mask=c0 + c < n, other=float("-inf"))  # HERE
    tl.store(y + row * n + c0 + c, tl.exp(v - m) / total, mask=c0 + c < n)"""

WHOLE_ROW = """at = row.to(tl.int64) * n + c
v = tl.load(x + at, mask=c < n, other=float("-inf"))
e = tl.exp(v - tl.max(v, axis=0))
tl.store(y + at, e / tl.sum(e, axis=0), mask=c < n)"""


def whole_row(warps: int, marked: bool = False) -> str:
    source = rows(WHOLE_ROW)
    source = source.replace("(x.shape[1]))\n", f"(x.shape[1]), num_warps={warps})\n")
    return (
        source.replace("BLOCK: tl.constexpr):", "BLOCK: tl.constexpr):  # HERE")
        if marked
        else source
    )


def half_product(
    tiles: str, tile: int, *changes: tuple[str, str], out: str = "torch.float16"
) -> str:
    source = product(
        ("def own(", "def own(  # HERE\n    "),
        (', input_precision="ieee"', ""),
        *changes,
        tiles=tiles,
        dtype=f", dtype={out}",
    )
    return source.replace("], 32)", f"], {tile})")


CASES = [
    Case(
        "lanes walk down columns",
        DOUBLE,
        candidate(
            """@triton.jit
def own(x, y, rows, cols, BLOCK: tl.constexpr):
    r = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = r.to(tl.int64) * cols + tl.program_id(0)
    v = tl.load(x + at, mask=r < rows)  # HERE
    tl.store(y + at, v * 2.0, mask=r < rows)  # HERE
""",
            "y = torch.empty_like(x)\ngrid = x.shape[1], triton.cdiv(x.shape[0], 1024)\n"
            "own[grid](x, y, x.shape[0], x.shape[1], BLOCK=1024)\nreturn y",
        ),
        "uncoalesced",
    ),
    Case(
        "a transposition stores across",
        TURNED,
        candidate(
            """@triton.jit
def own(x, y, rows, cols, BLOCK: tl.constexpr):
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    r = tl.program_id(0).to(tl.int64)
    v = tl.load(x + r * cols + c, mask=c < cols)
    tl.store(y + c.to(tl.int64) * rows + r, v * 2.0, mask=c < cols)  # HERE
""",
            "y = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype)\n"
            "grid = x.shape[0], triton.cdiv(x.shape[1], 1024)\n"
            "own[grid](x, y, x.shape[0], x.shape[1], BLOCK=1024)\nreturn y",
        ),
        "uncoalesced",
    ),
    Case(
        "three passes over long rows",
        LONG,
        rows(THREE_PASSES, block="4096"),
        "redundant_traffic",
        says="'x'",
    ),
    Case(
        "each row is summed from two loads",
        task("x.sum(1) / x.abs().sum(1)", GRID, sizes="ROWS = 8192\nCOLS = 65536"),
        rows(
            "a = tl.zeros((BLOCK,), tl.float32)\n"
            "b = tl.zeros((BLOCK,), tl.float32)\n"
            "for c0 in range(0, n, BLOCK):\n"
            "    a += tl.load(x + row.to(tl.int64) * n + c0 + c, mask=c0 + c < n, other=0.0)\n"
            "for c0 in range(0, n, BLOCK):\n"
            "    b += tl.abs(tl.load(x + row.to(tl.int64) * n + c0 + c, mask=c0 + c < n, other=0.0))  # HERE\n"
            "tl.store(y + row, tl.sum(a, axis=0) / tl.sum(b, axis=0))",
            "torch.empty(x.shape[0])",
            "4096",
        ),
        "redundant_traffic",
        says="'x'",
    ),
    Case(
        "three launches for a small tensor",
        SMALL,
        candidate(
            f"{SCALE}\n\n{CLAMP.replace('  # HERE', '')}\n\n{INCREASE}",
            f"{SCALED}clamp[(triton.cdiv(n, 1024),)](y, y, n, BLOCK=1024)\n"
            "increase[(triton.cdiv(n, 1024),)](y, y, n, BLOCK=1024)\nreturn y",
        ),
        "launches",
        says="3 launches",
    ),
    Case(
        "a kernel for each row",
        task("x * 2.0", GRID, sizes="ROWS = 24\nCOLS = 4096"),
        candidate(
            SCALE,
            "y = torch.empty_like(x)\nn = x.shape[1]\nfor r in range(x.shape[0]):\n"
            "    scale[(triton.cdiv(n, 1024),)](x[r], y[r], n, BLOCK=1024)\nreturn y",
        ),
        "launches",
        says="24 launches",
    ),
    Case(
        "a second kernel for the activation",
        CLAMPED,
        candidate(
            f"{SCALE}\n\n{CLAMP}",
            f"{SCALED}z = torch.empty_like(x)\n"
            "clamp[(triton.cdiv(n, 1024),)](y, z, n, BLOCK=1024)\nreturn z",
        ),
        "extra_kernels",
        says="clamp",
    ),
    Case(
        "an input is converted and back",
        HALF,
        candidate(
            SCALE,
            f"x = x.float()  # HERE\n{SCALED}return y.half()  # HERE",
        ),
        "needless_copies",
        says="_to_copy",
    ),
    Case(
        "an input is copied before it is read",
        TURNED,
        candidate(
            SCALE,
            f"x = x.t().contiguous()  # HERE\n{SCALED}return y",
        ),
        "needless_copies",
        says="clone",
    ),
    Case(
        "the product is left to a library",
        LAYER,
        candidate(
            CLAMP.replace("  # HERE", ""),
            "y = x @ w  # HERE\nn = y.numel()\n"
            "clamp[(triton.cdiv(n, 1024),)](y, y, n, BLOCK=1024)\nreturn y",
            names="x, w",
        ),
        "outside_own_kernels",
        says="mm",
        track="library_allowed",
    ),
    Case(
        "blocks of 64 on one warp",
        DOUBLE,
        candidate(
            SCALE.replace("tl.constexpr):", "tl.constexpr):  # HERE"),
            "y = torch.empty_like(x)\nn = x.numel()\n"
            "scale[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64, num_warps=1)\nreturn y",
        ),
        "little_in_flight",
        says="blocks",
    ),
    Case(
        "32 programs for 32 long rows",
        FEW,
        rows(
            "a = tl.zeros((BLOCK,), tl.float32)\n"
            "for c0 in range(0, n, BLOCK):\n"
            "    a += tl.load(x + row.to(tl.int64) * n + c0 + c, mask=c0 + c < n, other=0.0)\n"
            "tl.store(y + row, tl.sum(a, axis=0))",
            "torch.empty(x.shape[0])",
            "4096",
        ).replace("tl.constexpr):", "tl.constexpr):  # HERE"),
        "little_in_flight",
        says="grid",
    ),
    Case(
        "shared memory leaves one block resident",
        PRODUCT,
        half_product(
            "BM=128, BN=128, BK=128, num_stages=3, num_warps=4",
            128,
        ),
        "occupancy",
        says="shared memory",
    ),
    Case(
        "a row of 16384 on one warp",
        SOFTMAX,
        whole_row(1, marked=True),
        "spills",
        says="spill",
    ),
    Case(
        "a tile of 256 by 256 on four warps",
        PRODUCT,
        half_product("BM=256, BN=256, BK=32, num_stages=2, num_warps=4", 256),
        "spills",
        says="spill",
    ),
    Case(
        "144 tiles on 132 multiprocessors",
        TAIL,
        half_product("BM=128, BN=128, BK=64, num_stages=3, num_warps=8", 128),
        "tail",
        says="SMs",
    ),
    Case(
        "a product of float16 on the ordinary units",
        PRODUCT,
        half_product(
            "BM=32, BN=32, BK=32",
            32,
            (
                "acc += tl.dot(left, right)",
                "acc += tl.sum(left[:, :, None].to(tl.float32) * right[None, :, :], axis=1)",
            ),
        ),
        "no_tensor_cores",
        says="tl.dot",
    ),
    Case(
        "tiles of 16 by 16",
        PRODUCT,
        half_product("BM=16, BN=16, BK=32", 16),
        "small_tiles",
        says="16",
    ),
    Case(
        "a copy at the memory's ceiling",
        task("x * 2.0", GRID, sizes="ROWS = 16384\nCOLS = 16384"),
        candidate(SCALE.replace("tl.constexpr):", "tl.constexpr):  # HERE"), f"{SCALED}return y"),
        "at_memory_ceiling",
    ),
    Case(
        "a softmax at the memory's ceiling",
        SOFTMAX,
        whole_row(8, marked=True),
        "at_memory_ceiling",
    ),
]
